"""The keys of one issuer: fetched from where it says, kept, and fetched again when a token names
one that is not among them.

    https://issuer/.well-known/openid-configuration -> jwks_uri -> keys

By TLS alone, bounded in size and time, and no redirect is followed: who is asked is who the
configuration names, and whom that one names. A stranger's token can make an issuer be asked again,
but not often. What was fetched last stays good while the issuer cannot be reached.

Not here: what a token says (`oidc`).
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
"""For both documents together: requests wait for them."""
DOCUMENT_BYTES_MAX: Final = 1024 * 1024
FRESH_SECONDS: Final = 300.0
"""How often keys are fetched although nobody misses one: a key may have been taken back."""
REFETCH_SECONDS: Final = 10.0
ASK_AGAIN_SECONDS: Final = 10.0
"""Between two fetches for the sake of tokens whose keys are not known."""
WAITING_MAX: Final = 100
"""Requests that wait for the keys of one issuer."""

_LIMITS: Final = ConnectionLimits(
    requests_max=1, streams_max=1, kept_max=1, connect_seconds_max=FETCH_SECONDS_MAX
)

logger = logging.getLogger(__name__)


class _FetchFailed(Exception):
    """Why there are no keys; for people, and without any of the answer."""


class IssuerKeys:
    """`start` it, `close` it. `current` is what is known."""

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
        self.problem: str | None = "its keys were not fetched yet"
        """Why the last fetch has failed; None: it has not."""
        self._fetching: TaskHandle | None = None
        self._asked_seconds = -ASK_AGAIN_SECONDS
        self._waiting = 0

    def start(self) -> None:
        self._tasks.spawn_loop("keys", self._keep())

    async def close(self) -> None:
        await self._tasks.close()

    def miss(self) -> DoAgain | None:
        """What to wait for before a token is looked at again whose key is not known; None: it
        need not be. Raises 503 when too many wait."""
        now = self._clock.monotonic()
        if self._fetching is None:
            if now - self._asked_seconds < ASK_AGAIN_SECONDS:
                return None
            self._fetch()
        if self._waiting >= WAITING_MAX:
            raise status.unavailable(
                "too many requests wait for the keys of an issuer", retry_after_seconds=1
            )
        return _Missed(self)

    async def wait(self) -> None:
        """Return when the fetch that is under way has ended, however it did."""
        fetching = self._fetching
        if fetching is None:
            return
        self._waiting += 1
        try:
            await fetching.wait()
        finally:
            self._waiting -= 1

    async def _keep(self) -> None:
        while True:
            await self._fetch().wait()
            seconds = FRESH_SECONDS if self.problem is None else REFETCH_SECONDS
            await self._clock.sleep(seconds)

    def _fetch(self) -> TaskHandle:
        """Begin to fetch, unless somebody has."""
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
                logger.info("the keys of issuer %s are there", self._issuer.url)
        except TimeoutError:
            self.problem = f"no answer within {FETCH_SECONDS_MAX:g} seconds"
        except (_FetchFailed, ClientError, ValueError) as error:
            self.problem = str(error)
        finally:
            self._fetching = None
            # From its end: one that takes its time must not make each token wait for the next.
            self._asked_seconds = self._clock.monotonic()
        if self.problem is not None and self.problem != before:
            logger.warning(
                "the keys of issuer %s cannot be fetched: %s", self._issuer.url, self.problem
            )

    async def _fetch_keys(self) -> KeySet:
        document = await self._get(self._issuer.document_url)
        if document.get("issuer") != self._issuer.url:
            raise _FetchFailed("its discovery document is that of another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not url.startswith("https://"):
            raise _FetchFailed("its discovery document names no jwks_uri that begins with https")
        listed = (await self._get(url)).get("keys")
        if not isinstance(listed, list):
            raise _FetchFailed("its jwks_uri holds no list of keys")
        found: list[VerifyingKey] = []
        for each in listed[:KEYS_MAX]:
            try:
                found.append(read_jwk(each, algorithms=self._algorithms))
            except (ValueError, AttributeError):
                continue  # Issuers publish keys for other purposes besides.
        if not found:
            raise _FetchFailed(f"none of its keys is good for {', '.join(self._algorithms)}")
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
            raise _FetchFailed(f"{parts.netloc} has answered {response.status}")
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise _FetchFailed(f"{parts.netloc} has answered no JSON object")
        return document


class _Missed(DoAgain):
    """Keys are being fetched."""

    def __init__(self, keys: IssuerKeys) -> None:
        super().__init__()
        self._keys = keys

    async def settle(self) -> None:
        await self._keys.wait()
