"""Headers for browsers, in responses of the API itself."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.conformance.api.servers import CONFIG_MAPS, TOKEN, RunningServer, config_map

WAIT_SECONDS: Final = 10.0
YAML: Final = "Accept: application/yaml"
PROTOBUF: Final = "Accept: application/vnd.kubernetes.protobuf"
TABLE: Final = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"
REQUESTS: Final = (
    (200, "GET", f"{CONFIG_MAPS}/one", ""),
    (200, "GET", f"{CONFIG_MAPS}/one?pretty=1", ""),
    (200, "GET", f"{CONFIG_MAPS}/one", YAML),
    (200, "GET", f"{CONFIG_MAPS}/one", PROTOBUF),
    (200, "GET", CONFIG_MAPS, ""),
    (200, "GET", CONFIG_MAPS, TABLE),
    (200, "GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1", ""),
    (200, "GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1", PROTOBUF),
    (200, "GET", "/", ""),
    (200, "GET", "/apis", ""),
    (200, "GET", "/openapi/v2", ""),
    (200, "GET", "/openapi/v3", ""),
    (200, "GET", "/openapi/v3/api/v1", ""),
    (200, "GET", "/metrics", ""),
    (200, "GET", "/metrics/slis", ""),
    (200, "GET", "/healthz", ""),
    (404, "GET", "/nothing", ""),
    (404, "GET", f"{CONFIG_MAPS}/none", ""),
    (400, "GET", "/api//v1", ""),
    (405, "TRACE", "/api/v1", ""),
    (400, "GET", "nothing", ""),
)


async def head_of(server: RunningServer, method: str, target: str, line: str) -> bytes:
    """The head of the response to one request, on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}"]
    writer.write("\r\n".join([*lines, *([line] if line else []), "", ""]).encode())
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()


async def test_browsers_must_not_guess_the_type_of_any_response(server: RunningServer) -> None:
    """Every response of the API forbids content type sniffing, in all forms and for all errors."""
    assert (await server.client.post(CONFIG_MAPS, config_map("one"))).status == 201
    for code, method, target, line in REQUESTS * 2:
        head = await head_of(server, method, target, line)
        assert int(head[9:12]) == code, (method, target, head)
        assert head.count(b"\r\nX-Content-Type-Options: nosniff\r\n") == 1, (method, target, head)
