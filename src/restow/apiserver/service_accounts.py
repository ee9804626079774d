"""Composes the parts for service accounts: issuing, verifying and publishing tokens and keys.

Not here: the parts themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from restow.aio import Clock
from restow.apimachinery.jwt_keys import KeySet, VerifyingKey, read_keys, read_signing_key
from restow.apiserver.certificates import PkiError
from restow.apiserver.option_files import named, read_option
from restow.apiserver.pki import Pki
from restow.apiserver.service_account_options import ServiceAccountOptions
from restow.authentication.service_accounts import AccountAuthenticator, AccountTrust
from restow.authentication.service_accounts_claims import make_legacy
from restow.authentication.service_accounts_objects import AccountObjects
from restow.endpoints.handlers.token_request import TokenLimits, TokenRequestHandler
from restow.endpoints.openid import FIRST_SEGMENTS, OpenIdDocuments
from restow.registry.catalog import Catalog
from restow.registry.store import ResourceStore


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRules:
    """Issuers and keys of accepted and signed tokens; created before the store is open."""

    trust: AccountTrust
    limits: TokenLimits
    jwks_uri: str = ""

    def sign_for_secret(self, namespace: str, account: tuple[str, str], secret: str) -> str:
        """Sign a token without expiry for a Secret; `account` is a name and a uid."""
        claims = make_legacy(namespace=namespace, account=account, secret=secret)
        return self.trust.signing.sign(claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccounts:
    """The parts that other modules access."""

    rules: AccountRules
    authenticator: AccountAuthenticator
    requests: TokenRequestHandler
    documents: OpenIdDocuments

    @property
    def pages(self) -> dict[str, OpenIdDocuments]:
        """Handlers of non-resource paths, by first path segment."""
        return dict.fromkeys(FIRST_SEGMENTS, self.documents)


def account_rules(pki: Pki, options: ServiceAccountOptions) -> AccountRules:
    """Read the key files. Blocks. Raises PkiError for an invalid one."""
    try:
        signing = read_signing_key(pki.service_account_key_pem)
    except ValueError as error:
        flag, path = "--service-account-signing-key-file", pki.service_account_key_file
        place = path if pki.given.account_key_pem is None else f"{flag} {path}"
        raise PkiError(f"{place}: {error}") from error
    keys = [signing.public]
    for path in options.key_files:
        keys += _keys_of(path)
    try:
        trusted = KeySet(keys)
    except ValueError as error:
        raise PkiError(f"--service-account-key-file: {error}") from error
    return AccountRules(
        trust=AccountTrust(
            signing=signing, keys=trusted, issuers=options.issuers, audiences=options.audiences
        ),
        limits=TokenLimits(
            seconds_max=int(options.token_seconds_max), extends=options.extend_token_expiration
        ),
        jwks_uri=options.jwks_uri,
    )


def make_service_accounts(
    rules: AccountRules, store: ResourceStore, catalog: Catalog, *, clock: Clock, address: str
) -> ServiceAccounts:
    """Create all parts, on an open store."""
    trust = rules.trust
    return ServiceAccounts(
        rules=rules,
        authenticator=AccountAuthenticator(trust, AccountObjects(store, catalog, clock), clock),
        requests=TokenRequestHandler(trust, rules.limits),
        documents=OpenIdDocuments(
            issuer=trust.issuers[0], keys=trust.keys, address=address, jwks_uri=rules.jwks_uri
        ),
    )


def _keys_of(path: Path) -> list[VerifyingKey]:
    flag = "--service-account-key-file"
    data = read_option(flag, path)
    with named(flag, path):
        return read_keys(data)
