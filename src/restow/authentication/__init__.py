"""Authentication of requests: front proxies, client certificates, bearer tokens and sessions, each
an `Authenticator`; and impersonation (`impersonation`).

An authenticator returns the user, or None if the request has no credential of its kind. An invalid
credential is rejected with 401 and never treated as anonymous.

Not here: authorization.
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
