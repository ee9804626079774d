"""Calls with deadline, retries and errors, and streams of lines.

Between the verbs (`client`) and the wire (`transport`). All errors raised here are StatusErrors or
ClientErrors.

Not here: the meaning of paths and bodies.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson

from restow.aio import Runtime
from restow.apimachinery.status_error import StatusError
from restow.client.errors import ConnectionFailed, connection_failed, status_of_answer
from restow.client.retry_policy import RetryPolicy
from restow.client.transport import ClientRequest, ClientResponse, Transport

_ERROR_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of requests: duration, size of responses and events, number of pages."""

    request_seconds_max: float = 60.0
    """Timeout of a request and its whole response; for a stream, until the response begins."""
    answer_bytes_max: int = 256 * 1024 * 1024
    event_bytes_max: int = 16 * 1024 * 1024
    pages_max: int = 1_000_000
    """Pages of one list."""


class Caller:
    """Sends the requests of all verbs."""

    def __init__(
        self,
        transport: Transport,
        *,
        runtime: Runtime,
        retry: RetryPolicy,
        limits: ClientLimits,
        user_agent: str,
    ) -> None:
        self.transport = transport
        self.runtime = runtime
        self.retry = retry
        self.limits = limits
        self.user_agent = user_agent

    async def call(
        self,
        method: str,
        target: str,
        *,
        accept: str,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Return the body of a successful response. A body that is not bytes is sent as JSON."""
        request = self._request(method, target, accept=accept, body=body, content_type=content_type)
        attempts = 0
        while True:
            attempts += 1
            try:
                return await self._call_once(request)
            except StatusError as error:
                wait_seconds = self.retry.wait_seconds(
                    error,
                    method=method,
                    attempts=attempts,
                    randomness=self.runtime.randomness,
                )
                if wait_seconds is None:
                    raise
            await self.runtime.clock.sleep(wait_seconds)

    async def call_json(
        self,
        method: str,
        target: str,
        *,
        accept: str = "application/json",
        body: Any = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Send a request; return the response, decoded as a JSON object."""
        answer = await self.call(
            method, target, accept=accept, body=body, content_type=content_type
        )
        return self.decode(answer)

    @asynccontextmanager
    async def stream(
        self, target: str, *, accept: str, seconds_max: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Iterate over the lines of a streaming response, until `seconds_max`."""
        clock = self.runtime.clock
        request = self._request("GET", target, accept=accept, is_stream=True)
        await self.transport.prepare()
        deadline = clock.monotonic() + seconds_max
        async with AsyncExitStack() as stack:
            try:
                async with clock.timeout(self.limits.request_seconds_max):
                    response = await stack.enter_async_context(self.transport.send(request))
                    await _check(response)
            except TimeoutError as error:
                raise connection_failed(error, server=self.transport.server) from error
            yield await stack.enter_async_context(aclosing(self._lines(response, deadline)))

    def decode(self, body: bytes) -> dict[str, Any]:
        """Decode a JSON object; raises ConnectionFailed otherwise."""
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise self._not_json(body) from error
        if not isinstance(value, dict):
            raise self._not_json(body)
        return value

    async def _call_once(self, request: ClientRequest) -> bytes:
        await self.transport.prepare()
        try:
            async with (
                self.runtime.clock.timeout(self.limits.request_seconds_max),
                self.transport.send(request) as response,
            ):
                await _check(response)
                return await response.read(bytes_max=self.limits.answer_bytes_max)
        except TimeoutError as error:
            raise connection_failed(
                error, server=self.transport.server, may_have_happened=request.is_write
            ) from error

    async def _lines(
        self, response: ClientResponse, deadline: float
    ) -> AsyncGenerator[bytes, None]:
        clock = self.runtime.clock
        pieces = response.pieces()
        rest = bytearray()
        while True:
            try:
                async with clock.timeout(max(deadline - clock.monotonic(), 0)):
                    piece = await anext(pieces, None)
            except TimeoutError as error:
                raise connection_failed(error, server=self.transport.server) from error
            if piece is None:
                return  # the rest is an incomplete line: the stream broke
            searched = len(rest)
            rest += piece
            begin = 0
            while (end := rest.find(b"\n", max(begin, searched))) >= 0:
                if line := bytes(rest[begin:end]).strip():
                    yield line
                begin = end + 1
            del rest[:begin]
            if len(rest) > self.limits.event_bytes_max:
                raise ConnectionFailed(
                    self.transport.server,
                    f"an event is larger than {self.limits.event_bytes_max} bytes",
                    advice="Watch metadata only",
                )

    def _request(
        self,
        method: str,
        target: str,
        *,
        accept: str,
        body: Any = None,
        content_type: str = "",
        is_stream: bool = False,
    ) -> ClientRequest:
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        headers = [("User-Agent", self.user_agent), ("Accept", accept)]
        if data:
            headers.append(("Content-Type", content_type))
        return ClientRequest(
            method=method,
            target=target,
            headers=tuple(headers),
            body=data,
            is_stream=is_stream,
        )

    def _not_json(self, body: bytes) -> ConnectionFailed:
        return ConnectionFailed(
            self.transport.server,
            f"the response is not a JSON object: it begins with {body[:64]!r}",
            advice="Check that this is the address of a Kubernetes API server",
        )


async def _check(response: ClientResponse) -> None:
    if not 200 <= response.status < 300:
        body = await response.read(bytes_max=_ERROR_BYTES_MAX)
        raise status_of_answer(response.status, response.headers, body)
