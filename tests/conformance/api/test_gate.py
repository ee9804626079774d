"""Authorization of a request before its body is read."""

from __future__ import annotations

import asyncio
import json

from restow.apiserver.build_inputs import AuthParts
from restow.authentication import Authentication
from restow.httpserver import Headers, HttpRequest, HttpResponse, Peer
from restow.request.context import User
from restow.request.request_info import RequestInfo
from restow.storage.errors import Unavailable
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import CONFIG_MAPS, start_server


class Failing:
    """An authorizer that raises an unexpected error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def allows(self, user: User, info: RequestInfo) -> bool:
        raise self.error

    def reason(self, user: User, info: RequestInfo) -> str:
        return ""


async def test_an_error_is_the_same_as_with_a_body() -> None:
    """An error during authorization is returned and counted the same, with or without a body."""
    authorizer = Failing(Unavailable("the disk is gone"))
    auth_parts = AuthParts(authentication=Authentication([]), authorizer=authorizer)
    server = await start_server(MemoryStorage(), auth_parts=auth_parts)
    app = server.assembly.app
    try:
        for error, code in ((Unavailable("the disk is gone"), 503), (KeyError("name"), 500)):
            authorizer.error = error
            early, whole = (
                ask(HttpRequest("POST", CONFIG_MAPS, "", Headers([]), b"{}", Peer(1), 0.0))
                for ask in (app.gate, app)
            )
            assert isinstance(early, HttpResponse)
            assert isinstance(whole, HttpResponse)
            assert (early.status, early.body) == (whole.status, whole.body)
            assert early.status == code
    finally:
        await server.stop()


class Counting:
    """An authorizer that allows everything and counts its calls."""

    def __init__(self) -> None:
        self.verbs: list[str] = []
        self.asked = asyncio.Event()

    def allows(self, user: User, info: RequestInfo) -> bool:
        self.verbs.append(info.verb)
        self.asked.set()
        return True

    def reason(self, user: User, info: RequestInfo) -> str:
        return ""


async def test_a_request_is_authorized_once() -> None:
    """A request whose body arrives in a later segment is authorized when its head is complete,
    and not again when its body is."""
    authorizer = Counting()
    auth_parts = AuthParts(authentication=Authentication([]), authorizer=authorizer)
    server = await start_server(MemoryStorage(), auth_parts=auth_parts)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
        body = json.dumps({"metadata": {"name": "one"}}).encode()
        head = f"POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode())
        async with asyncio.timeout(10):
            await authorizer.asked.wait()  # the head has arrived, the body has not been sent
            writer.write(body)
            answer = await reader.readuntil(b"\r\n")
        writer.close()
        await writer.wait_closed()
        assert answer == b"HTTP/1.1 201 Created\r\n"
        assert authorizer.verbs == ["create"]
    finally:
        await server.stop()
