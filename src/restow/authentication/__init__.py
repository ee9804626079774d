"""Who sends a request: proxies, tokens, client certificates and sessions, each an `Authenticator`;
and in whose name it is to be done (`impersonation`).

An authenticator says who it is, or that it cannot tell; a credential that is wrong is refused and
never taken for none. Not here: what a user may do.
"""

from restow.authentication.anonymous import EVERYWHERE, NOWHERE, AnonymousAccess
from restow.authentication.authorities import Authorities
from restow.authentication.certificates import CertificateAuthenticator
from restow.authentication.chain import Authentication, Authenticator
from restow.authentication.front_proxy import (
    FrontProxyAuthenticator,
    FrontProxyTrust,
    read_trust,
)
from restow.authentication.sessions import SessionAuthenticator, Sessions
from restow.authentication.tokens import TokenAuthenticator, read_token_file

__all__ = [
    "EVERYWHERE",
    "NOWHERE",
    "AnonymousAccess",
    "Authentication",
    "Authenticator",
    "Authorities",
    "CertificateAuthenticator",
    "FrontProxyAuthenticator",
    "FrontProxyTrust",
    "SessionAuthenticator",
    "Sessions",
    "TokenAuthenticator",
    "read_token_file",
    "read_trust",
]
