"""Tokens that others sign: those of OpenID Connect issuers that the configuration trusts.

A token says who has signed it. If that is one of these issuers, it is theirs to be good or bad:
signature, audience, times and claims must all be right, or it is a 401. If it is not, others may
know it. A token whose key is not known waits once for the issuer to be asked.

Not here: keys (`oidc_keys`), users (`oidc_claims`), files (`oidc_config`).
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
"""How long a token that has run out may still be good on an open connection, as the reference
keeps tokens it has seen."""
NOT_BEFORE_LEEWAY_SECONDS: Final = 300.0
"""Clocks of issuers may be ahead."""

logger = logging.getLogger(__name__)


class OidcIssuer:
    """One issuer. `start` it, `close` it."""

    def __init__(
        self, config: JwtAuthenticator, runtime: Runtime, *, algorithms: tuple[str, ...]
    ) -> None:
        self.config: Final = config
        self.keys: Final = IssuerKeys(config.issuer, algorithms, runtime)
        self._clock = runtime.clock
        self._audiences = frozenset(config.issuer.audiences)

    def user_of(self, token: Jwt) -> User:
        """The user of a token that says it is this issuer's. Raises 401, and `DoAgain`."""
        try:
            self._check_times(token)
            if self._audiences.isdisjoint(jwt.audiences(token.claims)):
                raise JwtInvalid("it is for another audience")
            self._check_signature(token)
            return user_of_claims(self.config, token.claims)
        except JwtInvalid as error:
            logger.debug("a token of issuer %s is refused: %s", self.config.issuer.url, error)
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
        # Before anybody is asked on a stranger's word, all that costs nothing was looked at.
        lack = self.keys.miss()
        if lack is not None:
            raise lack
        raise JwtInvalid("its key is not known")

    def _check_times(self, token: Jwt) -> None:
        now = self._clock.wall().timestamp()
        expires = jwt.moment(token.claims, "exp")
        if expires is None or now > expires:
            raise JwtInvalid("it has run out")
        begins = jwt.moment(token.claims, "nbf")
        if begins is not None and now + NOT_BEFORE_LEEWAY_SECONDS < begins:
            raise JwtInvalid("it is not good yet")


class OidcAuthenticator:
    """All issuers that are trusted now. Satisfies `Authenticator` and `KnowsTokens`."""

    keeps_seconds: Final = KEPT_SECONDS

    def __init__(self, runtime: Runtime, *, algorithms: tuple[str, ...] = ALGORITHMS) -> None:
        self._runtime = runtime
        self._algorithms = algorithms
        self._issuers: dict[str, OidcIssuer] = {}
        self._tasks = runtime.tasks("issuers", on_failure=lambda _: None)

    def take(self, configs: Sequence[JwtAuthenticator]) -> None:
        """Trust these from now on. One that is as it was keeps its keys."""
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
        """The user of a token; None if it is of no issuer that is trusted here. Raises 401, and
        `DoAgain` when the issuer must be asked for its keys."""
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

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Issuers whose keys could not be fetched last, and why."""
        for url, issuer in self._issuers.items():
            if issuer.keys.problem is not None:
                yield url, issuer.keys.problem
