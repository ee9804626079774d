"""Bearer tokens of trusted OpenID Connect issuers.

The `iss` claim of a token names its issuer. If that issuer is trusted, signature, audience, times
and claims must all be valid, or the request gets a 401. If not, the next authenticator is tried. A
token with an unknown key waits once until the keys of the issuer are fetched.

Not here: keys (`oidc_keys`), users (`oidc_claims`), configuration files (`oidc_config`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from restow.aio import Runtime
from restow.apimachinery import jwt, status
from restow.apimachinery.jwt import Jwt, JwtInvalid
from restow.authentication.credentials import WITHOUT_END, Credential
from restow.authentication.oidc_claims import user_of_claims
from restow.authentication.oidc_config import ALGORITHMS, JwtAuthenticator
from restow.authentication.oidc_keys import IssuerKeys
from restow.authentication.tokens import bearer_token
from restow.httpserver.request import HttpRequest
from restow.request.context import User

KEPT_SECONDS: Final = 10.0
"""How long an expired token may still be valid on an open connection, like kube-apiserver's token
cache."""
NOT_BEFORE_LEEWAY_SECONDS: Final = 300.0
"""Allows for clock skew of issuers."""

logger = logging.getLogger(__name__)


class OidcIssuer:
    """One issuer. Call `start` before use and `close` at the end."""

    def __init__(
        self, config: JwtAuthenticator, runtime: Runtime, *, algorithms: tuple[str, ...]
    ) -> None:
        self.config: Final = config
        self.keys: Final = IssuerKeys(config.issuer, algorithms, runtime)
        self._clock = runtime.clock
        self._audiences = frozenset(config.issuer.audiences)

    def user_of(self, token: Jwt) -> User:
        """Return the user of a token of this issuer. Raises 401, and `DoAgain`."""
        try:
            self._check_times(token)
            if self._audiences.isdisjoint(jwt.audiences(token.claims)):
                raise JwtInvalid("its audience is not accepted")
            self._check_signature(token)
            return user_of_claims(self.config, token.claims)
        except JwtInvalid as error:
            logger.debug("rejected a token of issuer %s: %s", self.config.issuer.url, error)
            raise status.unauthorized() from None

    def _check_signature(self, token: Jwt) -> None:
        keys = self.keys.current
        if keys is not None:
            try:
                keys.check(token)
            except JwtInvalid:
                known = any(each.key_id == token.key_id for each in keys.keys)
                if token.key_id and known:
                    raise
            else:
                return
        # Fetch keys for an unauthenticated request only after all checks that cost nothing.
        pending = self.keys.fetch_for_unknown_key()
        if pending is not None:
            raise pending
        raise JwtInvalid("its key is unknown")

    def _check_times(self, token: Jwt) -> None:
        now = self._clock.wall().timestamp()
        expires = jwt.moment(token.claims, "exp")
        if expires is None or now > expires:
            raise JwtInvalid("it has expired")
        begins = jwt.moment(token.claims, "nbf")
        if begins is not None and now + NOT_BEFORE_LEEWAY_SECONDS < begins:
            raise JwtInvalid("it is not valid yet")


class OidcAuthenticator:
    """Authenticates tokens of all trusted issuers. Satisfies `Authenticator` and
    `TokenIdentifier`."""

    keeps_seconds: Final = KEPT_SECONDS

    def __init__(self, runtime: Runtime, *, algorithms: tuple[str, ...] = ALGORITHMS) -> None:
        self._runtime = runtime
        self._algorithms = algorithms
        self._issuers: dict[str, OidcIssuer] = {}
        self._tasks = runtime.tasks("issuers", on_failure=lambda _: None)

    def take(self, configs: Sequence[JwtAuthenticator]) -> None:
        """Replace the trusted issuers. An unchanged issuer keeps its keys."""
        before, after = self._issuers, dict[str, OidcIssuer]()
        for config in configs:
            known = before.get(config.issuer.url)
            if known is not None and known.config == config:
                after[config.issuer.url] = known
                continue
            issuer = OidcIssuer(config, self._runtime, algorithms=self._algorithms)
            issuer.keys.start()
            after[config.issuer.url] = issuer
        self._issuers = after
        for each in before.values():
            if after.get(each.config.issuer.url) is not each:
                self._tasks.spawn("retire", each.keys.close())

    async def close(self) -> None:
        issuers, self._issuers = self._issuers, {}
        for each in issuers.values():
            await each.keys.close()
        await self._tasks.close()

    def authenticate(self, request: HttpRequest) -> User | None:
        if not self._issuers:
            return None
        token = bearer_token(request)
        return None if token is None else self.user_of(token)

    def user_of(self, token: str) -> User | None:
        """Return the user of a token, or None if its issuer is not trusted. Raises 401, and
        `DoAgain` when the keys of the issuer must be fetched."""
        if token.count(".") != 2:
            return None
        found: Jwt | None = None
        with suppress(JwtInvalid):
            found = jwt.read(token)
        if found is None:
            return None
        named = found.claims.get("iss")
        issuer = self._issuers.get(named) if isinstance(named, str) else None
        return None if issuer is None else issuer.user_of(found)

    def credential_of(self, request: HttpRequest) -> Credential:
        token = bearer_token(request)
        with suppress(JwtInvalid):
            if token is not None:
                return Credential(jwt.moment(jwt.read(token).claims, "exp"))
        return WITHOUT_END

    def fetch_failures(self) -> Iterator[tuple[str, str]]:
        """Return the issuers whose last fetch of keys failed, and why."""
        for url, issuer in self._issuers.items():
            if issuer.keys.problem is not None:
                yield url, issuer.keys.problem
