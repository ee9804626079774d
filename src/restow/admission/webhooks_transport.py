"""The ways to admission webhooks: by a URL, or by a Service of the cluster.

A webhook may be slow, gone, or wrong, and only writes that it has a say in may notice. So each has
its own connections and its own bound on calls under way, each call has a deadline, and an answer
that is too long is not read. Redirects are not followed: a configuration names who is asked. What a
webhook answers is in no error and no log, but for what it says to the client of a write.

What this server cannot do is no failure of a webhook, or who sends enough writes could have some
pass by one that may be left out. A call for which there is no place waits for one, users have their
shares of the places, and its own time begins when it has one. If that takes too long it is a 429,
when the server stops a 503, and what is under way when a configuration changes comes to its end.

A Service is looked for as the servers of remote APIs are, and no backend may be where those may
not. A URL may also name this machine: whoever writes one may write any.

Not here: what is asked, and what an answer means (`webhooks`,
`restow.apimachinery.admission_review`).
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit

from restow.admission.slot_queue import TOO_LATE, SlotQueue
from restow.aggregator.exchanges import BackendRequest
from restow.aggregator.interface import ServiceRef
from restow.aggregator.pools import BackendBusy, BackendLimits, Pool
from restow.aggregator.services import NoServiceEndpoint, ServiceEndpoint, Services, name_of
from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.client.config import ClientConfig
from restow.client.errors import ConfigInvalid, ConnectionFailed
from restow.client.http1 import encode_passed_request
from restow.registry.resource import Object
from restow.request.context import User
from restow.request.slots import SlotPool

ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""A patch of the longest object, in base64, and something besides."""
CALLS_MAX: Final = 128
"""Questions to one webhook under way, but for those of masters. One more waits."""
MASTERS_MAX: Final = 128
"""Those of masters. One more is told to come again."""
PORT_DEFAULT: Final = 443
UNAVAILABLE: Final = 503

_TOO_MANY: Final = "too many requests wait for an admission webhook, please try again later."

LIMITS: Final = BackendLimits(requests_max=CALLS_MAX + MASTERS_MAX, streams_max=1, kept_max=8)


class WebhookCallFailed(Exception):
    """A webhook has not answered, or nothing that is an answer; why."""

    def __init__(self, why: str, *, code: int = UNAVAILABLE) -> None:
        super().__init__(why)
        self.code = code
        """For metrics: what the call has come to."""


@dataclass(frozen=True, slots=True)
class HookClient:
    """How one webhook is reached. Those that are equal share their connections."""

    url: str = ""
    service: ServiceRef | None = None
    path: str = ""
    ca_bundle: str = field(default="", repr=False)
    """In base64; empty: what the system trusts."""

    @classmethod
    def of(cls, config: Object) -> HookClient:
        """That of a `clientConfig`. Raises CallFailed."""
        service, bundle = config.get("service"), str(config.get("caBundle") or "")
        if isinstance(service, dict):
            found = ServiceRef(
                namespace=str(service.get("namespace") or ""),
                name=str(service.get("name") or ""),
                port=service.get("port") or PORT_DEFAULT,
            )
            return cls(service=found, path=_path(str(service.get("path") or "")), ca_bundle=bundle)
        if not config.get("url"):
            raise WebhookCallFailed("webhook configuration must have either service or URL")
        return cls(url=str(config["url"]), ca_bundle=bundle)


class HookCalls:
    """Connections to all webhooks of a server."""

    def __init__(
        self,
        services: Services,
        runtime: Runtime,
        *,
        allows_loopback: bool = False,
        limits: BackendLimits = LIMITS,
    ) -> None:
        """`allows_loopback`: whether the servers of a Service may be on this machine."""
        self._services = services
        self._runtime = runtime
        self._clock = runtime.clock
        self._allows_loopback = allows_loopback
        self._limits = limits
        self._pools: dict[HookClient, _Way] = {}
        self._replaced: set[_Way] = set()
        """Those that nobody names any more, and that are still being asked."""
        self._is_closed = False

    async def post(
        self,
        client: HookClient,
        body: bytes,
        *,
        seconds_max: float,
        user: User,
        by_seconds: float = math.inf,
    ) -> bytes:
        """The body of its answer. Raises CallFailed, or a StatusError: what this server cannot do.

        It has so many seconds to answer, and so many may be waited for before it is asked; but no
        longer than until `by_seconds`.
        """
        way = self._way(client)
        way.users_count += 1
        try:
            if user.is_master:
                return await self._post(way, body, seconds_max, by_seconds)
            slot = await way.line.enter(user, seconds_max=seconds_max, by_seconds=by_seconds)
            try:
                return await self._post(way, body, seconds_max, by_seconds)
            finally:
                slot.leave()
        finally:
            way.users_count -= 1
            if not way.users_count and way in self._replaced:
                self._replaced.discard(way)
                way.pool.close()

    def keep(self, clients: Iterable[HookClient]) -> None:
        """End the connections to all others: nobody names them any more. What is under way, or
        waits for its turn, is not ended."""
        named = set(clients)
        for client in [each for each in self._pools if each not in named]:
            way = self._pools.pop(client)
            if way.users_count:
                self._replaced.add(way)
            else:
                way.pool.close()

    async def close(self) -> None:
        self._is_closed = True
        for way in (*self._pools.values(), *self._replaced):
            way.pool.abort()
        self._pools.clear()
        self._replaced.clear()

    async def _post(self, way: _Way, body: bytes, seconds_max: float, by_seconds: float) -> bytes:
        left = by_seconds - self._clock.monotonic()
        seconds = min(seconds_max, left)
        if self._is_closed:
            raise _stopping()
        if seconds <= 0:
            raise status.timeout(TOO_LATE)
        # Whole seconds, as others round them: up.
        target = f"{way.target}?timeout={math.ceil(seconds)}s"
        try:
            async with self._clock.timeout(seconds):
                return await self._ask(way, target, body)
        except TimeoutError:
            if left <= seconds_max:
                # The client has not given it the time, which is no failure of the webhook's.
                raise status.timeout(TOO_LATE) from None
            if self._is_closed:
                raise _stopping() from None
            raise way.failed(target, "context deadline exceeded") from None
        except BackendBusy as error:
            raise status.too_many_requests(_TOO_MANY) from error
        except ConnectionFailed as error:
            if self._is_closed:
                raise _stopping() from error
            raise way.failed(target, error.what) from error
        except ValueError as error:  # what the question would have said is no HTTP
            raise way.failed(target, str(error)) from error

    async def _ask(self, way: _Way, target: str, body: bytes) -> bytes:
        lines = [
            ("Host", way.authority),
            ("Content-Type", "application/json"),
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
        ]
        data = encode_passed_request("POST", target, lines, body)
        places = await self._places(way, target)
        exchange = await way.pool.exchange(places, BackendRequest(method="POST", data=data))
        try:
            head = exchange.head
            if not 200 <= head.status < 300:
                raise WebhookCallFailed(_refusal(head.status), code=head.status)
            if head.headers.get("content-encoding", "identity") not in {"", "identity"}:
                raise way.failed(target, "its answer is compressed, unasked")
            pieces, length = [], 0
            async for piece in exchange.pieces():
                length += len(piece)
                if length > ANSWER_BYTES_MAX:
                    raise way.failed(target, f"its answer has more than {ANSWER_BYTES_MAX} bytes")
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            exchange.end()

    async def _places(self, way: _Way, target: str) -> Sequence[ServiceEndpoint]:
        if way.service is None:
            return way.places
        try:
            return await self._services.places(way.service)
        except NoServiceEndpoint as error:
            raise way.failed(target, error.message) from error

    def _way(self, client: HookClient) -> _Way:
        if self._is_closed:
            raise _stopping()
        found = self._pools.get(client)
        if found is None:
            found = self._pools[client] = self._made(client)
        return found

    def _made(self, client: HookClient) -> _Way:
        places: tuple[ServiceEndpoint, ...] = ()
        if client.service is not None:
            name, port = name_of(client.service), client.service.port
            authority, target = f"{name}:{port}", client.path
            shown = f"https://{authority}"
        else:
            place, target = _place_of(client.url)
            places, authority = (place,), str(place)
            name = f"[{place.host}]" if ":" in place.host else place.host
            shown = f"https://{urlsplit(client.url).netloc}"
        try:
            config = ClientConfig(
                server=f"https://{name}", ca_pem=_ca_pem(client), source="the admission webhook"
            )
            pool = Pool(
                config,
                self._runtime,
                limits=self._limits,
                allows_loopback=client.service is None or self._allows_loopback,
            )
        except (ConfigInvalid, ValueError) as error:
            raise WebhookCallFailed(f"could not get REST client: {error}", code=500) from error
        line = SlotQueue(
            SlotPool(CALLS_MAX, self._clock.monotonic), self._runtime, refusal=_TOO_MANY
        )
        return _Way(pool, line, authority, target, shown, client.service, places)


@dataclass(slots=True, eq=False)
class _Way:
    """One webhook, ready to be asked."""

    pool: Pool
    line: SlotQueue
    authority: str
    target: str
    shown: str
    service: ServiceRef | None
    places: Sequence[ServiceEndpoint]
    users_count: int = 0
    """Calls under way, and those that wait for their turn."""

    def failed(self, target: str, why: str) -> WebhookCallFailed:
        return WebhookCallFailed(f'failed to call webhook: Post "{self.shown}{target}": {why}')


def _stopping() -> StatusError:
    return status.unavailable(
        "the server is stopping", retry_after_seconds=status.RETRY_AFTER_SECONDS
    )


def _place_of(url: str) -> tuple[ServiceEndpoint, str]:
    """Where a URL leads, and the path there."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or PORT_DEFAULT
    except ValueError as error:
        raise WebhookCallFailed(f"Unparsable URL: {error}") from error
    if parts.scheme != "https" or not host:
        raise WebhookCallFailed("Unparsable URL: it is no https://host[/path]")
    return ServiceEndpoint(host, port), _path(parts.path)


def _path(path: str) -> str:
    return quote(path if path.startswith("/") else f"/{path}", safe="/%:@!$&'()*+,;=~")


def _ca_pem(client: HookClient) -> str | None:
    """The only certificates that are trusted; None: those that the system trusts."""
    if not client.ca_bundle:
        return None
    try:
        text = base64.b64decode(client.ca_bundle, validate=False).decode("ascii", errors="replace")
    except binascii.Error as error:
        raise ConfigInvalid(f"its caBundle is no base64: {error}") from error
    return text if text.strip() else None


def _refusal(code: int) -> str:
    """What an answer means that is no success. Its body is not told: who knows whose it is."""
    if code == 404:
        return "failed to call webhook: the server could not find the requested resource"
    if code >= 500:
        why = f"an error on the server (code {code}) has prevented the request from succeeding"
        return f"failed to call webhook: {why}"
    return (
        f"failed to call webhook: the server responded with the status code {code} but did not"
        " return more information"
    )
