"""A complete restow server in this process, and API clients that record their requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from restow.aio import Runtime
from restow.apiserver.options import ServeOptions
from restow.apiserver.server import ApiServer
from restow.client import ApiClient, ClientConfig, HttpTransport, read_kubeconfig
from restow.client.transport import ClientRequest, ClientResponse, Transport

WAIT_SECONDS_MAX = 60.0
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@asynccontextmanager
async def running_server(directory: Path, **more: Any) -> AsyncIterator[ClientConfig]:
    """Runs a server on an in-memory store and yields the client configuration of its
    administrator."""
    options = ServeOptions(data_dir=directory, store="memory:", port=0, grace_seconds=0.1, **more)
    server = await ApiServer.start(options, Runtime.system())
    try:
        yield read_kubeconfig([server.kubeconfig])
    finally:
        await server.stop()


@dataclass(frozen=True)
class Call:
    """A request with the attributes that an authorizer checks."""

    verb: str
    group: str
    resource: str
    """Includes the subresource, if any."""
    namespace: str
    name: str

    @classmethod
    def of(cls, request: ClientRequest) -> Call | None:
        """Returns None for requests that are not for a resource, such as discovery."""
        url = urlsplit(request.target)
        parts = url.path.strip("/").split("/")
        match parts:
            case ["api", _version, *rest]:
                group = ""
            case ["apis", group, _version, *rest]:
                pass
            case _:
                return None
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        if not rest:
            return None
        resource, name, *part = [*rest, ""] if len(rest) == 1 else rest
        verb = _VERBS.get(request.method)
        if verb is None:
            verb = "get" if name else "watch" if "watch" in parse_qs(url.query) else "list"
        return cls(verb, group, "/".join([resource, *part]), namespace, name)


class Recording:
    """A transport that records the requests it sends."""

    def __init__(self, inner: Transport, *, has_rewrite: bool = True) -> None:
        self.server = inner.server
        self.calls: set[Call] = set()
        self._inner = inner
        self._has_rewrite = has_rewrite

    async def prepare(self) -> None:
        await self._inner.prepare()

    def send(self, request: ClientRequest) -> AbstractAsyncContextManager[ClientResponse]:
        return self._send(request)

    @asynccontextmanager
    async def _send(self, request: ClientRequest) -> AsyncIterator[ClientResponse]:
        call = Call.of(request)
        if call is not None:
            self.calls.add(call)
        async with self._inner.send(request) as response:
            if self._has_rewrite or call is not None or request.is_stream:
                yield response
                return
            # Imitate Kubernetes: remove the rewrite subresource from discovery.
            body = orjson.loads(await response.read(bytes_max=10_000_000))
            if isinstance(body.get("resources"), list):
                body["resources"] = [
                    each for each in body["resources"] if not each["name"].endswith("/rewrite")
                ]
            yield ClientResponse(
                response.status, response.headers, _piece(orjson.dumps(body)), self._inner.server
            )

    async def close(self) -> None:
        await self._inner.close()


async def _piece(body: bytes) -> AsyncIterator[bytes]:
    yield body


def recording_client(
    config: ClientConfig, *, has_rewrite: bool = True
) -> tuple[ApiClient, Recording]:
    runtime = Runtime.system()
    transport = Recording(HttpTransport(config, clock=runtime.clock), has_rewrite=has_rewrite)
    return ApiClient(transport, runtime=runtime), transport


def with_token(config: ClientConfig, token: str) -> ClientConfig:
    """Returns the configuration for another user of the same server."""
    return replace(config, token=token, token_file=None, client_cert_pem=None, client_key_pem=None)


async def until(condition: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    """Polls until the condition holds."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            found = condition()
            if found is True or (not isinstance(found, bool) and await found):
                return
            await asyncio.sleep(0.01)
