"""The keys of one issuer: fetched from its discovery document, cached, and fetched again when a
token names an unknown key.

    https://issuer/.well-known/openid-configuration -> jwks_uri -> keys

Requests use TLS, are limited in size and time, and do not follow redirects, so only the configured
server and the one that it names are contacted. An unauthenticated token can trigger a fetch, but at
a limited rate. The last keys stay valid while the issuer is unreachable.

Not here: the content of a token (`oidc`).
"""

from __future__ import annotations

import logging
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from restow.aio import Runtime, TaskHandle
from restow.apimachinery import status
from restow.apimachinery.jwt_keys import KEYS_MAX, KeySet, VerifyingKey, read_jwk
from restow.authentication.oidc_config import IssuerConfiguration
from restow.client.config import ClientConfig
from restow.client.connections import ConnectionLimits
from restow.client.errors import ClientError
from restow.client.transport import ClientRequest, HttpTransport
from restow.registry.errors import DoAgain

FETCH_SECONDS_MAX: Final = 10.0
"""Time limit for both documents together, because requests wait for them."""
DOCUMENT_BYTES_MAX: Final = 1024 * 1024
FRESH_SECONDS: Final = 300.0
"""Interval of periodic fetches, so that revoked keys are removed."""
REFETCH_SECONDS: Final = 10.0
MISS_FETCH_SECONDS_MIN: Final = 10.0
"""Minimum time between two fetches for tokens with unknown keys."""
WAITING_MAX: Final = 100
"""Maximum number of requests that wait for the keys of one issuer."""

_LIMITS: Final = ConnectionLimits(
    requests_max=1, streams_max=1, kept_max=1, connect_seconds_max=FETCH_SECONDS_MAX
)

logger = logging.getLogger(__name__)


class _FetchFailed(Exception):
    """A fetch failed. The message contains nothing from the response."""


class IssuerKeys:
    """The keys of an issuer in `current`. Call `start` before use and `close` at the end."""

    def __init__(
        self, issuer: IssuerConfiguration, algorithms: tuple[str, ...], runtime: Runtime
    ) -> None:
        self._issuer = issuer
        self._algorithms = algorithms
        self._clock = runtime.clock
        self._tasks = runtime.tasks(
            f"issuer {issuer.url[:64]}", tasks_max=2, on_failure=lambda _: None
        )
        self.current: KeySet | None = None
        self.problem: str | None = "its keys have not been fetched yet"
        """Why the last fetch failed; None if it succeeded."""
        self._fetching: TaskHandle | None = None
        self._fetched_seconds = -MISS_FETCH_SECONDS_MIN
        self._waiting = 0

    def start(self) -> None:
        self._tasks.spawn_loop("keys", self._fetch_periodically())

    async def close(self) -> None:
        await self._tasks.close()

    def fetch_for_unknown_key(self) -> DoAgain | None:
        """Start a fetch for a token with an unknown key and return what to wait for, or None if the
        last fetch was too recent. Raises 503 when too many requests wait."""
        now = self._clock.monotonic()
        if self._fetching is None:
            if now - self._fetched_seconds < MISS_FETCH_SECONDS_MIN:
                return None
            self._fetch()
        if self._waiting >= WAITING_MAX:
            raise status.unavailable(
                "too many requests wait for the keys of an issuer", retry_after_seconds=1
            )
        return _KeysPending(self)

    async def wait(self) -> None:
        """Wait until the current fetch ends, successfully or not."""
        fetching = self._fetching
        if fetching is None:
            return
        self._waiting += 1
        try:
            await fetching.wait()
        finally:
            self._waiting -= 1

    async def _fetch_periodically(self) -> None:
        while True:
            await self._fetch().wait()
            seconds = FRESH_SECONDS if self.problem is None else REFETCH_SECONDS
            await self._clock.sleep(seconds)

    def _fetch(self) -> TaskHandle:
        """Start a fetch, unless one is running."""
        if self._fetching is None:
            self._fetching = self._tasks.spawn("fetch", self._fetch_once())
        return self._fetching

    async def _fetch_once(self) -> None:
        before = self.problem
        try:
            async with self._clock.timeout(FETCH_SECONDS_MAX):
                self.current = await self._fetch_keys()
            self.problem = None
            if before is not None:
                logger.info("fetched the keys of issuer %s", self._issuer.url)
        except TimeoutError:
            self.problem = f"no answer within {FETCH_SECONDS_MAX:g} seconds"
        except (_FetchFailed, ClientError, ValueError) as error:
            self.problem = str(error)
        finally:
            self._fetching = None
            # Measured from the end, so that a slow fetch does not delay each token.
            self._fetched_seconds = self._clock.monotonic()
        if self.problem is not None and self.problem != before:
            logger.warning("cannot fetch the keys of issuer %s: %s", self._issuer.url, self.problem)

    async def _fetch_keys(self) -> KeySet:
        document = await self._get(self._issuer.document_url)
        if document.get("issuer") != self._issuer.url:
            raise _FetchFailed("its discovery document names another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not url.startswith("https://"):
            raise _FetchFailed("its discovery document has no https jwks_uri")
        listed = (await self._get(url)).get("keys")
        if not isinstance(listed, list):
            raise _FetchFailed("the document at its jwks_uri has no list of keys")
        found: list[VerifyingKey] = []
        for each in listed[:KEYS_MAX]:
            try:
                found.append(read_jwk(each, algorithms=self._algorithms))
            except (ValueError, AttributeError):
                continue  # Issuers also publish keys for other purposes.
        if not found:
            raise _FetchFailed(f"none of its keys can be used with {', '.join(self._algorithms)}")
        return KeySet(found)

    async def _get(self, url: str) -> dict[str, Any]:
        parts = urlsplit(url)
        config = ClientConfig(
            server=f"https://{parts.netloc}",
            ca_pem=self._issuer.certificate_authority or None,
            source="issuer",
        )
        transport = HttpTransport(config, clock=self._clock, limits=_LIMITS)
        query = f"?{parts.query}" if parts.query else ""
        request = ClientRequest(
            method="GET",
            target=f"{parts.path or '/'}{query}",
            headers=(("Accept", "application/json"),),
        )
        try:
            async with transport.send(request) as response:
                body = await response.read(bytes_max=DOCUMENT_BYTES_MAX)
        finally:
            await transport.close()
        if response.status != 200:
            raise _FetchFailed(f"{parts.netloc} returned status {response.status}")
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise _FetchFailed(f"{parts.netloc} did not return a JSON object")
        return document


class _KeysPending(DoAgain):
    """The keys are being fetched."""

    def __init__(self, keys: IssuerKeys) -> None:
        super().__init__()
        self._keys = keys

    async def settle(self) -> None:
        await self._keys.wait()
