"""Who may not is told so before the body is read."""

import asyncio

from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import RunningServer, start_server

ANNOUNCED = 3_000_000


async def refusal_of(server: RunningServer, authorization: str) -> str:
    """The status line for a request that announces a large body and sends none of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\n"
        + f"{authorization}Content-Length: {ANNOUNCED}\r\n\r\n".encode()
    )
    line = await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    await writer.wait_closed()
    return line.decode().strip()


async def test_refused_before_the_body() -> None:
    """A wrong token gets its 401, and nobody its 403, while the body is still to come."""
    storage = MemoryStorage()
    server = await start_server(storage)
    try:
        wrong = await refusal_of(server, "Authorization: Bearer wrong\r\n")
        nobody = await refusal_of(server, "")
    finally:
        await server.stop()
        await storage.close()
    assert wrong == "HTTP/1.1 401 Unauthorized"
    assert nobody == "HTTP/1.1 403 Forbidden"
