"""Connections to admission webhooks, by URL or by a Service of the cluster.

A webhook may be slow, unavailable or wrong, and only the writes that it matches may be affected. So
each has its own connections and its own limit of calls in flight, each call has a deadline, and the
length of a response is limited. Redirects are not followed: the configuration names the server to
call. Responses of a webhook appear in no error or log, except the message for the client.

Limits of this server do not count as failures of a webhook; otherwise a client could bypass a
webhook with `failurePolicy: Ignore` by sending many writes. A call without a free slot waits in a
queue, users share the slots, and the timeout of the call starts when it gets one. A call that waits
too long gets a 429, a call while the server stops a 503. Calls in flight when a configuration
changes are completed.

A Service is resolved like those of aggregated APIs, with the same restrictions on addresses. A URL
may also name this machine: a user who may write one may write any URL.

Not here: the content of a review and of its response (`webhooks`,
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
from restow.request.slot_queue import TOO_LATE, SlotQueue
from restow.request.slots import SlotPool

ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""A patch of the largest object, in base64, with some margin."""
CALLS_MAX: Final = 128
"""Maximum number of calls to one webhook in flight, without those of `system:masters`. Further
calls wait."""
MASTERS_MAX: Final = 128
"""Maximum number of calls of `system:masters` in flight. Further calls get a 429."""
PORT_DEFAULT: Final = 443
UNAVAILABLE: Final = 503

_TOO_MANY: Final = "too many requests wait for an admission webhook, please try again later."

LIMITS: Final = BackendLimits(requests_max=CALLS_MAX + MASTERS_MAX, streams_max=1, kept_max=8)


class WebhookCallFailed(Exception):
    """A webhook call failed, or its response was invalid."""

    def __init__(self, why: str, *, code: int = UNAVAILABLE) -> None:
        super().__init__(why)
        self.code = code
        """The status code for metrics."""


@dataclass(frozen=True, slots=True)
class HookClient:
    """The endpoint of one webhook. Equal endpoints share their connections."""

    url: str = ""
    service: ServiceRef | None = None
    path: str = ""
    ca_bundle: str = field(default="", repr=False)
    """In base64; empty: the CAs that the system trusts."""

    @classmethod
    def of(cls, config: Object) -> HookClient:
        """Read a `clientConfig`. Raises WebhookCallFailed."""
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
        """`allows_loopback`: whether the endpoints of a Service may be on this machine."""
        self._services = services
        self._runtime = runtime
        self._clock = runtime.clock
        self._allows_loopback = allows_loopback
        self._limits = limits
        self._pools: dict[HookClient, _Backend] = {}
        self._replaced: set[_Backend] = set()
        """Backends that no configuration names any more and that still have calls."""
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
        """Send a review and return the body of the response. Raises WebhookCallFailed, or a
        StatusError for a limit of this server.

        `seconds_max` limits both the time in the queue and the time of the call; `by_seconds` is
        the deadline of the request.
        """
        backend = self._backend(client)
        backend.users_count += 1
        try:
            if user.is_master:
                return await self._post(backend, body, seconds_max, by_seconds)
            slot = await backend.queue.enter(user, seconds_max=seconds_max, by_seconds=by_seconds)
            try:
                return await self._post(backend, body, seconds_max, by_seconds)
            finally:
                slot.leave()
        finally:
            backend.users_count -= 1
            if not backend.users_count and backend in self._replaced:
                self._replaced.discard(backend)
                backend.pool.close()

    def keep(self, clients: Iterable[HookClient]) -> None:
        """Close the connections to all other endpoints. Calls in flight or in the queue are
        completed."""
        named = set(clients)
        for client in [each for each in self._pools if each not in named]:
            backend = self._pools.pop(client)
            if backend.users_count:
                self._replaced.add(backend)
            else:
                backend.pool.close()

    async def close(self) -> None:
        self._is_closed = True
        for backend in (*self._pools.values(), *self._replaced):
            backend.pool.abort()
        self._pools.clear()
        self._replaced.clear()

    async def _post(
        self, backend: _Backend, body: bytes, seconds_max: float, by_seconds: float
    ) -> bytes:
        seconds_left = by_seconds - self._clock.monotonic()
        seconds = min(seconds_max, seconds_left)
        if self._is_closed:
            raise _stopping()
        if seconds <= 0:
            raise status.timeout(TOO_LATE)
        # Round up to whole seconds, like kube-apiserver.
        target = f"{backend.target}?timeout={math.ceil(seconds)}s"
        try:
            async with self._clock.timeout(seconds):
                return await self._send(backend, target, body)
        except TimeoutError:
            if seconds_left <= seconds_max:
                # The deadline of the request was shorter than the timeout, so the webhook did not
                # fail.
                raise status.timeout(TOO_LATE) from None
            if self._is_closed:
                raise _stopping() from None
            raise backend.failed(target, "context deadline exceeded") from None
        except BackendBusy as error:
            raise status.too_many_requests(_TOO_MANY) from error
        except ConnectionFailed as error:
            if self._is_closed:
                raise _stopping() from error
            raise backend.failed(target, error.what) from error
        except ValueError as error:  # the request line would be invalid HTTP
            raise backend.failed(target, str(error)) from error

    async def _send(self, backend: _Backend, target: str, body: bytes) -> bytes:
        headers = [
            ("Host", backend.authority),
            ("Content-Type", "application/json"),
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
        ]
        data = encode_passed_request("POST", target, headers, body)
        endpoints = await self._endpoints(backend, target)
        exchange = await backend.pool.exchange(endpoints, BackendRequest(method="POST", data=data))
        try:
            head = exchange.head
            if not 200 <= head.status < 300:
                raise WebhookCallFailed(_refusal(head.status), code=head.status)
            if head.headers.get("content-encoding", "identity") not in {"", "identity"}:
                raise backend.failed(
                    target, "the answer is compressed, although the request accepts only identity"
                )
            pieces, length = [], 0
            async for piece in exchange.pieces():
                length += len(piece)
                if length > ANSWER_BYTES_MAX:
                    raise backend.failed(
                        target, f"the answer has more than {ANSWER_BYTES_MAX} bytes"
                    )
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            exchange.end()

    async def _endpoints(self, backend: _Backend, target: str) -> Sequence[ServiceEndpoint]:
        if backend.service is None:
            return backend.endpoints
        try:
            return await self._services.places(backend.service)
        except NoServiceEndpoint as error:
            raise backend.failed(target, error.message) from error

    def _backend(self, client: HookClient) -> _Backend:
        if self._is_closed:
            raise _stopping()
        found = self._pools.get(client)
        if found is None:
            found = self._pools[client] = self._connect(client)
        return found

    def _connect(self, client: HookClient) -> _Backend:
        endpoints: tuple[ServiceEndpoint, ...] = ()
        if client.service is not None:
            name, port = name_of(client.service), client.service.port
            authority, target = f"{name}:{port}", client.path
            shown = f"https://{authority}"
        else:
            endpoint, target = _endpoint_of(client.url)
            endpoints, authority = (endpoint,), str(endpoint)
            name = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
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
        queue = SlotQueue(
            SlotPool(CALLS_MAX, self._clock.monotonic), self._runtime, refusal=_TOO_MANY
        )
        return _Backend(pool, queue, authority, target, shown, client.service, endpoints)


@dataclass(slots=True, eq=False)
class _Backend:
    """The connections, queue and address of one webhook."""

    pool: Pool
    queue: SlotQueue
    authority: str
    target: str
    shown: str
    service: ServiceRef | None
    endpoints: Sequence[ServiceEndpoint]
    users_count: int = 0
    """Calls in flight or in the queue."""

    def failed(self, target: str, why: str) -> WebhookCallFailed:
        return WebhookCallFailed(f'failed to call webhook: Post "{self.shown}{target}": {why}')


def _stopping() -> StatusError:
    return status.unavailable(
        "the server is stopping", retry_after_seconds=status.RETRY_AFTER_SECONDS
    )


def _endpoint_of(url: str) -> tuple[ServiceEndpoint, str]:
    """Return the endpoint and the path of a URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or PORT_DEFAULT
    except ValueError as error:
        raise WebhookCallFailed(f"Unparsable URL: {error}") from error
    if parts.scheme != "https" or not host:
        raise WebhookCallFailed("Unparsable URL: expected https://host[/path]")
    return ServiceEndpoint(host, port), _path(parts.path)


def _path(path: str) -> str:
    return quote(path if path.startswith("/") else f"/{path}", safe="/%:@!$&'()*+,;=~")


def _ca_pem(client: HookClient) -> str | None:
    """Return the only CA certificates to trust; None for those that the system trusts."""
    if not client.ca_bundle:
        return None
    try:
        text = base64.b64decode(client.ca_bundle, validate=False).decode("ascii", errors="replace")
    except binascii.Error as error:
        raise ConfigInvalid(f"caBundle is not valid base64: {error}") from error
    return text if text.strip() else None


def _refusal(code: int) -> str:
    """Return the message for an unsuccessful status code. It omits the body, which is untrusted."""
    if code == 404:
        return "failed to call webhook: the server could not find the requested resource"
    if code >= 500:
        why = f"an error on the server (code {code}) has prevented the request from succeeding"
        return f"failed to call webhook: {why}"
    return (
        f"failed to call webhook: the server responded with the status code {code} but did not"
        " return more information"
    )
