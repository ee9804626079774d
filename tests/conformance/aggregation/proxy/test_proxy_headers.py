"""Which headers of a client are forwarded to a backend, and which only the server may set."""

from __future__ import annotations

import pytest

from restow.aggregator.forwarded_headers import NOTHING_ELSE, user_lines
from restow.aggregator.published_headers import PublishedHeaders, identity_headers_of
from restow.apimachinery.status import BadRequest
from restow.request.context import User
from tests.conformance.aggregation.proxy.proxies import (
    FLUNDERS,
    HOST_NAME,
    RawClient,
    Rig,
    echoed,
)

STRIPPED = (
    "X-Remote-User: root",
    "x-remote-user: root",
    "X-REMOTE-GROUP: wheel",
    "X-Remote-Uid: 0",
    "X-Remote-Extra-Scopes: all",
    "X_Remote_User: root",
    "x-remote_group: wheel",
    "X-Remote-Anything: root",
    "Cookie: a=b",
    "Proxy-Authorization: Basic eA==",
    "Proxy-Connection: keep-alive",
    "Keep-Alive: timeout=5",
    "TE: trailers",
    "Trailer: X-After",
    "HTTP2-Settings: AAMAAABk",
    "X-Forwarded-Host: evil",
    "X-Forwarded-Proto: http",
    "X_Forwarded_For: 6.6.6.6",
    "Transfer_Encoding: chunked",
    "Content_Length: 9",
)
PASSED = (
    "Accept: application/json;as=Table",
    "Accept-Encoding: gzip",
    "User-Agent: kubectl/v1.36",
    "If-None-Match: x",
    "Audit-Id: 1234",
    "X-Own: caf\u00e9",
    "Remote-User: fine",
)


async def test_headers_are_stripped(rig: Rig, client: RawClient) -> None:
    """No identity header, credential or hop-by-hop header is forwarded."""
    for line in STRIPPED:
        client.ask(FLUNDERS, line)
        code, _, body = await client.answer()
        assert code == 200
        value = line.partition(": ")[2]
        assert [pair for pair in echoed(body)["headers"] if pair[1] == value] == [], line


async def test_other_headers_pass(rig: Rig, client: RawClient) -> None:
    """All other headers are forwarded byte for byte, and no others are added."""
    client.ask(FLUNDERS, *PASSED)
    _, _, body = await client.answer()
    got = {f"{name.lower()}: {value}" for name, value in echoed(body)["headers"]}
    sent = {f"{name.lower()}: {value}" for name, _, value in (x.partition(": ") for x in PASSED)}
    assert sent <= got
    names = {line.partition(":")[0] for line in got - sent}
    own = {"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-uri"}
    assert names == {"host", "x-remote-user", "x-remote-group", *own}


async def test_headers_in_connection_are_dropped(rig: Rig, client: RawClient) -> None:
    """Headers that the client lists in Connection are dropped; the server's own cannot be."""
    client.ask(FLUNDERS, "Connection: X-Mine, X-Remote-User, X-Forwarded-For", "X-Mine: 1")
    _, _, body = await client.answer()
    headers = {name.lower(): value for name, value in echoed(body)["headers"]}
    assert "x-mine" not in headers
    assert headers["x-remote-user"] == "admin"
    assert headers["x-forwarded-for"] == "127.0.0.1"


async def test_the_user_is_forwarded(rig: Rig, client: RawClient) -> None:
    """User and groups are the authenticated ones, and Host is the name of the Service."""
    client.ask(FLUNDERS, "X-Forwarded-For: 10.1.1.1")
    _, _, body = await client.answer()
    shown = [(name.lower(), value) for name, value in echoed(body)["headers"]]
    assert ("x-remote-user", "admin") in shown
    groups = [value for name, value in shown if name == "x-remote-group"]
    assert groups == ["system:masters", "system:authenticated"]
    assert ("host", HOST_NAME) in shown
    assert ("x-forwarded-for", "10.1.1.1, 127.0.0.1") in shown
    assert ("x-forwarded-host", "localhost") in shown


def test_all_attributes_of_a_user_are_forwarded() -> None:
    """Each group has its own header, keys of extras are escaped, and other characters are UTF-8."""
    user = User("jörg", ("a", "b"), "u-1", (("Scopes/of it%", ("x", "y")),))
    assert [(name, value.encode("latin-1").decode()) for name, value in user_lines(user)] == [
        ("X-Remote-User", "jörg"),
        ("X-Remote-Uid", "u-1"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-scopes%2Fof%20it%25", "x"),
        ("X-Remote-Extra-scopes%2Fof%20it%25", "y"),
    ]


@pytest.mark.parametrize("name", [" admin", "admin ", "a\r\nX-Remote-User: b", "a\0", "\ud800"])
def test_a_name_that_would_arrive_as_another_is_refused(name: str) -> None:
    """A user or group that a header cannot carry unchanged is a 400."""
    for user in (User(name), User("x", (name,))):
        with pytest.raises(BadRequest):
            user_lines(user)


async def test_headers_have_a_limit(rig: Rig, client: RawClient) -> None:
    """Headers that this server accepts but backends might not are a 431."""
    client.ask(FLUNDERS, f"X-Long: {'a' * 70_000}")
    code, _, _ = await client.answer()
    assert code == 431
    assert rig.backend.asked == []


async def test_published_headers_are_not_forwarded(rig: Rig, client: RawClient) -> None:
    """Identity headers that the ConfigMap names are never forwarded from a client."""
    data = {
        "requestheader-username-headers": '["X-Remote-User", "X-Forwarded-For"]',
        "requestheader-uid-headers": '["X_Own-Uid"]',
        "requestheader-group-headers": '["Their-Groups", 7, ""]',
        "requestheader-extra-headers-prefix": '["Their-Extra-", " "]',
    }
    name = "extension-apiserver-authentication"
    path = "/api/v1/namespaces/kube-system/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    await rig.server.client.post("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    created = await rig.server.client.post(path, body)
    assert created.status == 201, created.body
    assembly = rig.server.assembly
    rig.proxy._identity_headers = PublishedHeaders(assembly.store, assembly.catalog)
    forged = ("X-Forwarded-For", "x-own-uid", "Their_Groups", "their-extra-scopes")
    client.ask(FLUNDERS, *(f"{each}: root" for each in forged), "Accept: text/plain")
    code, _, answer = await client.answer()
    assert code == 200
    headers = echoed(answer)["headers"]
    assert [value for _, value in headers if "root" in value] == []
    assert "x-forwarded-for" not in {each.lower() for each, _ in headers}
    assert ["accept", "text/plain"] in [[each.lower(), value] for each, value in headers]
    # Once the ConfigMap no longer names it, the header is forwarded again.
    deleted = await rig.server.client.request("DELETE", f"{path}/{name}")
    assert deleted.status == 200
    client.ask(FLUNDERS, "Their-Groups: root")
    _, _, answer = await client.answer()
    assert "root" in [value for _, value in echoed(answer)["headers"]]


@pytest.mark.parametrize("data", [None, {}, {"requestheader-group-headers": "no JSON"}, {"x": 1}])
def test_invalid_entries_are_ignored(data: object) -> None:
    """A ConfigMap without identity headers, or with invalid entries, adds no names."""
    assert identity_headers_of(data) == NOTHING_ELSE


async def test_one_id_in_both_logs(rig: Rig) -> None:
    """The backend gets the audit ID of this server's response, whatever its own response contains;
    a client's ID is truncated to the maximum length."""
    client = rig.server.client
    for said in (None, "mine", "x" * 100, "a b"):
        headers = {} if said is None else {"Audit-Id": said}
        reply = await client.get(FLUNDERS, headers=headers)
        told = [
            value for name, value in echoed(reply.body)["headers"] if name.lower() == "audit-id"
        ]
        assert reply.headers["audit-id"] == told
        if said in ("mine", "x" * 100):
            assert told == [said[:64]]
