"""Past attacks on proxies of API servers, each with its CVE number."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from restow.aggregator.services import ServiceEndpoint
from restow.client.transport import ClientRequest
from tests.conformance.aggregation.proxy.conftest import StartRig
from tests.conformance.aggregation.proxy.proxies import FLUNDERS, RawClient, Rig
from tests.support.aggregated_backend import Asked, BackendConnection

UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")
SECOND = "/apis/samples.example.com/v1/secrets"
SPECIAL = (
    *("169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
    *("2002:a9fe:a9fe::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"),
    *("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "::7f00:1"),
    # Not addresses, so names: the addresses they resolve to are checked.
    *("010.0.0.1", "2130706433", "0x7f.1", "localhost", "fe80::1%lo"),
)


async def test_cve_2018_1002105_a_failed_upgrade_opens_nothing(rig: Rig, client: RawClient) -> None:
    """Bytes after an upgrade that the backend refused are a new request of their own user."""

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.answer(b"no", status="400 Bad Request")

    rig.backend.script = script
    client.ask(FLUNDERS, *UPGRADE)
    client.ask(SECOND, "X-Remote-User: admin", "X-Remote-Group: system:masters", token=None)
    code, _, body = await client.answer()
    assert (code, body) == (400, b"no")
    code, _, _ = await client.answer()
    assert code == 403  # anonymous
    assert [asked.target for asked in rig.backend.asked] == [FLUNDERS]
    # Later bytes as well; an authorized request is forwarded with its own user.
    client.ask(SECOND, "X-Remote-User: root")
    assert (await client.answer())[0] == 400
    assert rig.backend.asked[-1].all("x-remote-user") == ["admin"]


@pytest.mark.parametrize("lines", [(), UPGRADE], ids=["get", "upgrade"])
async def test_cve_2018_1002102_and_2020_8559_redirects_are_not_followed(
    rig: Rig, client: RawClient, lines: Sequence[str]
) -> None:
    """A backend that redirects, also instead of upgrading, is a 502; no other server is called."""

    async def script(_asked: Asked, line: BackendConnection) -> None:
        place = ("Location", "https://169.254.169.254/latest")
        await line.answer(b"", status="302 Found", headers=[place])

    rig.backend.script = script
    client.ask(FLUNDERS, *lines)
    code, headers, body = await client.answer()
    assert code == 502
    assert "location" not in headers
    assert b"169.254" not in body
    assert len(rig.backend.asked) == 1


@pytest.mark.parametrize("code", [300, 301, 302, 303, 305, 307, 308, 399])
async def test_cve_2022_3172_redirects_do_not_reach_the_client(rig: Rig, code: int) -> None:
    """Each redirect is a 502 without Location: a client would follow it with its credentials."""

    async def script(_asked: Asked, line: BackendConnection) -> None:
        headers = [("Location", "https://evil.example"), ("Refresh", "0")]
        await line.answer(b"go", status=f"{code} Go", headers=headers)

    rig.backend.script = script
    reply = await rig.server.client.get(FLUNDERS)
    assert (reply.status, reply.json["kind"]) == (502, "Status")
    expected = "the backend attempted to redirect this request, which is not permitted"
    assert reply.message == expected
    assert "location" not in reply.headers
    assert "refresh" not in reply.headers


async def test_cve_2022_3172_not_modified_passes(rig: Rig) -> None:
    """A 304 is not a redirect: it is returned, without a Location header."""

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.write(b"HTTP/1.1 304 Not Modified\r\nETag: e\r\nLocation: https://evil\r\n\r\n")

    rig.backend.script = script
    reply = await rig.server.client.get(FLUNDERS)
    assert (reply.status, reply.header("etag")) == (304, "e")
    assert "location" not in reply.headers


async def test_cve_2022_3172_own_fetches_follow_nothing(rig: Rig) -> None:
    """Documents that the server fetches itself (discovery, OpenAPI) come from the backend alone."""

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.answer(b"", status="301 Moved", headers=[("Location", "/elsewhere")])

    rig.backend.script = script
    request = ClientRequest(method="GET", target="/apis")
    async with rig.backends.send(rig.api, request) as response:
        assert response.status == 301
    assert [asked.target for asked in rig.backend.asked] == ["/apis"]


async def test_cve_2020_8562_no_connection_to_special_addresses(start_rig: StartRig) -> None:
    """Loopback, link-local and the like are rejected in every spelling, before any connection."""

    async def resolve(_name: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    rig = await start_rig(allows_loopback=False, resolve=resolve)
    for host in SPECIAL:
        rig.services.found = [ServiceEndpoint(host, rig.backend.port)]
        reply = await rig.server.client.get(FLUNDERS)
        assert (reply.status, reply.reason) == (503, "ServiceUnavailable"), host
    assert rig.backend.connections == 0


async def test_cve_2020_8562_a_name_is_resolved_once(start_rig: StartRig) -> None:
    """The address that was checked is the one that is used, even if the name changes later."""
    answers = [["127.0.0.1"], ["169.254.0.1"], ["169.254.0.1", "127.0.0.1"]]
    asked: list[str] = []

    async def resolve(name: str, _port: int) -> Sequence[str]:
        asked.append(name)
        return answers[len(asked) - 1]

    rig = await start_rig(resolve=resolve)
    rig.services.found = [ServiceEndpoint("rebinding.example", rig.backend.port)]
    for _ in range(3):
        assert (await rig.server.client.get(FLUNDERS)).status == 200
    assert asked == ["rebinding.example"]
    await rig.backend.stop()
    await rig.backend.listen()
    # The next connection resolves again: a rejected address is skipped, a permitted one is used.
    assert (await rig.server.client.get(FLUNDERS)).status == 503
    assert (await rig.server.client.get(FLUNDERS)).status == 200
    assert (len(asked), rig.backend.connections) == (3, 2)


async def test_cve_2018_1002105_upgrades_have_no_body(rig: Rig, client: RawClient) -> None:
    """An upgrade request with a body is rejected: two parsers could differ on it."""
    client.ask(FLUNDERS, *UPGRADE, "Content-Length: 4", method="POST")
    client.writer.write(b"GET ")
    assert (await client.answer())[0] == 400
    assert rig.backend.asked == []
