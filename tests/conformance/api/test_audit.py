"""The audit log over HTTP: the events of each request path, and what is never logged."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.apiserver.audit import Audit, open_audit
from restow.apiserver.audit_options import AuditOptions
from restow.storage.interface import Revision
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import (
    CONFIG_MAPS,
    NS,
    OTHER_TOKEN,
    TOKEN,
    RunningServer,
    config_map,
    start_server,
)
from tests.support.api_client import ApiClient

EVERYTHING = {"level": "RequestResponse"}
METADATA = {"level": "Metadata"}
SECRET = "s3cr3t-do-not-write"
Event = dict[str, Any]


@dataclass(slots=True)
class Audited:
    """A server with an audit log, a client for it, and the events written so far."""

    running: RunningServer
    audit: Audit
    log: Path
    policy: Path
    seen: int = field(default=0)

    @property
    def client(self) -> ApiClient:
        return self.running.client

    def text(self) -> str:
        return self.log.read_text(encoding="ascii")

    def events(self) -> list[Event]:
        """Returns the events written since the previous call."""
        lines = self.text().splitlines()
        fresh, self.seen = lines[self.seen :], len(lines)
        return [orjson.loads(line) for line in fresh]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - a file has no event to wait for
                await asyncio.sleep(0.01)


class RemoteRevisionStorage(MemoryStorage):
    """A store whose revision must be queried, like one that other servers write to as well."""

    def revision_now(self) -> Revision | None:
        return None


@asynccontextmanager
async def audited(
    directory: Path,
    *rules: dict[str, Any],
    mode: str = "blocking",
    storage: MemoryStorage | None = None,
    **fields: Any,
) -> AsyncIterator[Audited]:
    policy = directory / "policy.yaml"
    write_policy(policy, *rules, **fields)
    runtime, log = Runtime.system(), directory / "audit.log"
    options = AuditOptions(path=str(log), policy_file=policy, mode=mode)  # type: ignore[arg-type]
    audit = await open_audit(options, runtime, poll_seconds=0.1)
    assert audit is not None
    storage = storage or MemoryStorage()
    running = await start_server(storage, audit=audit)
    try:
        found = Audited(running, audit, log, policy)
        reply = await running.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        assert reply.status == 201
        found.events()
        yield found
    finally:
        await running.stop()
        await audit.close()
        await storage.close()


def write_policy(path: Path, *rules: dict[str, Any], **fields: Any) -> None:
    document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **fields}
    path.write_bytes(orjson.dumps(document))


def summary(events: list[Event]) -> list[tuple[str, str, int]]:
    return [
        (event["stage"], event["verb"], event.get("responseStatus", {}).get("code", 0))
        for event in events
    ]


async def test_one_request(tmp_path: Path) -> None:
    """A write has the events, fields and field order of Kubernetes."""
    async with audited(tmp_path, EVERYTHING) as server:
        made = config_map("a", {"k": "v"})
        reply = await server.client.request(
            "POST", CONFIG_MAPS, made, headers={"User-Agent": "kit/1"}
        )
        received, complete = server.events()
    assert list(complete) == [
        *("kind", "apiVersion", "level", "auditID", "stage", "requestURI", "verb", "user"),
        *("sourceIPs", "userAgent", "objectRef", "responseStatus", "requestObject"),
        *("responseObject", "requestReceivedTimestamp", "stageTimestamp", "annotations"),
    ]
    moment = received["requestReceivedTimestamp"]
    assert received == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": reply.headers["audit-id"][0],
        "stage": "RequestReceived",
        "requestURI": CONFIG_MAPS,
        "verb": "create",
        "user": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "kit/1",
        "objectRef": {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"},
        "requestReceivedTimestamp": moment,
        "stageTimestamp": moment,
    }
    assert complete == {
        **received,
        "stage": "ResponseComplete",
        "objectRef": {**received["objectRef"], "name": "a"},
        "responseStatus": {"metadata": {}, "code": 201},
        "requestObject": made,
        "responseObject": reply.json,
        "stageTimestamp": complete["stageTimestamp"],
        "annotations": {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": "",
        },
    }
    assert complete["stageTimestamp"] >= moment


async def test_every_request_path(tmp_path: Path) -> None:
    """Reads (fast and slow path), writes with every verb, refusals and documents each leave one
    event with the audit ID of the response."""
    async with audited(tmp_path, METADATA, omitStages=["RequestReceived"]) as server:
        client, ids = server.client, []

        async def ask(method: str, target: str, body: Any = None, **more: Any) -> None:
            reply = await client.request(method, target, body, **more)
            ids.append(reply.headers["audit-id"])

        one = f"{CONFIG_MAPS}/a"
        await ask("POST", CONFIG_MAPS, config_map("a"))
        for _ in range(3):  # the slow path, the one that waits, the fast one
            await ask("GET", one)
        await ask("GET", CONFIG_MAPS)
        await ask("PUT", one, config_map("a", {"x": "1"}))
        await ask("GET", one)
        await ask("PATCH", one, {"data": {"x": "2"}}, content_type="application/merge-patch+json")
        await ask("DELETE", one)
        await ask("GET", one)
        await ask("DELETE", CONFIG_MAPS)
        await ask("POST", CONFIG_MAPS, b"{")
        await ask("GET", "/version")
        await ask("GET", "/nothing/here")
        await ask("PUT", CONFIG_MAPS, {})
        await ask("GET", "/dashboard")
        await ask("GET", f"{one}?pretty=1", accept="application/yaml")
        events = server.events()
    assert summary(events) == [
        ("ResponseComplete", verb, code)
        for verb, code in [
            *(("create", 201), ("get", 200), ("get", 200), ("get", 200), ("list", 200)),
            *(("update", 200), ("get", 200), ("patch", 200), ("delete", 200), ("get", 404)),
            *(("deletecollection", 200), ("create", 400), ("get", 200), ("get", 404)),
            *(("update", 405), ("get", 200), ("get", 404)),
        ]
    ]
    assert [[event["auditID"]] for event in events] == ids
    assert len({event["auditID"] for event in events}) == len(events)
    assert events[9]["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "a" not found',
        "reason": "NotFound",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 404,
    }
    assert events[16]["responseStatus"] == events[9]["responseStatus"]  # parsed from YAML
    assert all("requestObject" not in event for event in events)


async def test_refusals(tmp_path: Path) -> None:
    """An unauthenticated request leaves one event without a user; an unauthorized one, an event
    that says so."""
    async with audited(tmp_path, METADATA) as server:
        port = server.running.port
        for token, wanted in (("wrong", 401), (OTHER_TOKEN, 403), (None, 403)):
            client = ApiClient(port, token=token)
            reply = await client.get(f"{NS}/secrets/nope")
            assert (reply.status, len(reply.headers["audit-id"])) == (wanted, 1)
            await client.close()
        events = server.events()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        gate = server.events()
    assert summary(events) == [
        ("ResponseStarted", "get", 401),
        ("RequestReceived", "get", 0),
        ("ResponseComplete", "get", 403),
        ("RequestReceived", "get", 0),
        ("ResponseComplete", "get", 403),
    ]
    assert events[0]["user"] == {}
    assert "annotations" not in events[0]
    assert events[0]["responseStatus"]["reason"] == "Unauthorized"
    assert events[2]["user"]["username"] == "jane"
    assert events[2]["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert events[4]["user"]["username"] == "system:anonymous"
    assert summary(gate) == [("RequestReceived", "create", 0), ("ResponseComplete", "create", 403)]
    assert f"Audit-Id: {gate[0]['auditID']}\r\n".encode() in head


async def test_watch(tmp_path: Path) -> None:
    """A watch has an event at its start and at its end, whichever side ends it."""
    async with audited(tmp_path, METADATA, omitStages=["RequestReceived"]) as server:
        stream = await server.client.watch(f"{CONFIG_MAPS}?timeoutSeconds=1")
        assert summary(server.events()) == [("ResponseStarted", "watch", 200)]
        assert len(stream.headers["audit-id"]) == 1
        await stream.rest()
        await server.until(lambda: "ResponseComplete" in server.text())
        (ended,) = server.events()
        assert [ended["auditID"]] == stream.headers["audit-id"]
        assert ended["requestURI"] == f"{CONFIG_MAPS}?timeoutSeconds=1&watch=true"
        left = await server.client.watch(CONFIG_MAPS)
        await left.close()
        await server.until(lambda: server.text().count("ResponseComplete") >= 3)
        assert summary(server.events()) == [
            ("ResponseStarted", "watch", 200),
            ("ResponseComplete", "watch", 200),
        ]


async def test_bundled_watches(tmp_path: Path) -> None:
    """Each watch of a bundle has its own start and end events, without its token."""
    async with audited(tmp_path, METADATA, omitStages=["RequestReceived"]) as server:
        inner = f"{CONFIG_MAPS}?watch=1%26timeoutSeconds=1%26token={SECRET}"
        reply = await server.client.get(f"/dashboard/watch?watch={inner}&watch={inner}")
        assert reply.status == 200
        await server.until(lambda: server.text().count("ResponseComplete") >= 4)
        assert SECRET not in server.text()
        events = server.events()
    stages = Counter((event["verb"], event["stage"]) for event in events)
    assert stages["watch", "ResponseStarted"] == stages["watch", "ResponseComplete"] == 2
    assert stages["get", "ResponseComplete"] == 1
    assert len({event["auditID"] for event in events}) == 3


async def test_impersonation(tmp_path: Path) -> None:
    """An impersonated request is logged with both users; policy rules match the requesting user."""
    rule = {"level": "Metadata", "users": ["admin"]}
    async with audited(tmp_path, rule) as server:
        headers = {"Impersonate-User": "jane", "Impersonate-Group": "devs"}
        reply = await server.client.get("/api/v1/nodes", headers=headers)
        assert reply.status == 403
        received, complete = server.events()
    assert received["user"] == complete["user"]
    assert received["user"]["username"] == "admin"
    assert "impersonatedUser" not in received
    assert complete["impersonatedUser"] == {
        "username": "jane",
        "groups": ["devs", "system:authenticated"],
    }


async def test_a_session_of_an_impersonated_user(tmp_path: Path) -> None:
    """Requests of a session whose ticket was created while impersonating are logged with both
    users."""
    async with audited(tmp_path, METADATA, omitStages=["RequestReceived"]) as server:
        headers = {"Impersonate-User": "jane"}
        minted = await server.client.request("POST", "/dashboard/tickets", headers=headers)
        made = await server.client.post("/dashboard/session", {"ticket": minted.json["ticket"]})
        cookie = {"Cookie": made.header("set-cookie").partition(";")[0]}
        server.events()
        anyone = ApiClient(server.running.port)
        reply = await anyone.get("/api/v1/nodes", headers=cookie)
        await anyone.close()
        (event,) = server.events()
    assert reply.status == 403
    assert event["user"]["username"] == "admin"
    assert event["impersonatedUser"]["username"] == "jane"


async def test_a_bundle_without_a_user_is_one_event(tmp_path: Path) -> None:
    """An unauthenticated request for ten watches is one event with a 401."""
    async with audited(tmp_path, METADATA, omitStages=["RequestReceived"]) as server:
        anyone = ApiClient(server.running.port)
        targets = "&".join(["watch=/api/v1/pods%3Fwatch=1"] * 10)
        assert (await anyone.get(f"/dashboard/watch?{targets}")).status == 401
        await anyone.close()
        assert summary(server.events()) == [("ResponseComplete", "get", 401)]


async def test_reason(tmp_path: Path) -> None:
    """The event names the binding that allowed the request, on the fast path too, and follows
    changes."""
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    async with audited(tmp_path, METADATA, omitStages=["RequestReceived"]) as server:
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        await server.client.post(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
        for name in ("b", "c"):
            binding = {
                "metadata": {"name": name},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "Role",
                    "name": "r",
                },
                "subjects": [{"kind": "User", "name": "jane"}],
            }
            reply = await server.client.post(f"{rbac}/rolebindings", binding)
            assert reply.status == 201
        await server.client.post(CONFIG_MAPS, config_map("a"))
        server.events()
        jane = ApiClient(server.running.port, token=OTHER_TOKEN)
        for _ in range(3):
            assert (await jane.get(f"{CONFIG_MAPS}/a")).status == 200
        why = [event["annotations"]["authorization.k8s.io/reason"] for event in server.events()]
        assert (
            why
            == [
                'RBAC: allowed by RoleBinding "b/default" of Role "r" to User "jane"',
            ]
            * 3
        )
        await server.client.delete(f"{rbac}/rolebindings/b")
        server.events()
        assert (await jane.get(f"{CONFIG_MAPS}/a")).status == 200
        await jane.close()
        (event,) = server.events()
    assert '"c/default"' in event["annotations"]["authorization.k8s.io/reason"]


async def test_bodies(tmp_path: Path) -> None:
    """Bodies are logged as JSON whatever their encoding, without managed fields if the policy says
    so; bodies over the limit are omitted, and the event says so."""
    async with audited(tmp_path, EVERYTHING, omitStages=["RequestReceived"]) as server:
        client, one = server.client, f"{CONFIG_MAPS}/a"
        text = b'kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata:\n  k: "v\\x85"\n'
        await client.request(
            "POST", CONFIG_MAPS, text, content_type="application/yaml", accept="application/yaml"
        )
        patch = [{"op": "add", "path": "/data/x", "value": "\u2028"}]
        await client.patch(one, patch, "application/json-patch+json")
        await client.post(CONFIG_MAPS, config_map("big", {"k": "v" * 300_000}))
        await client.get(CONFIG_MAPS)
        await client.delete(one, {"gracePeriodSeconds": 0})
        await client.get("/version")
        made, patched, big, listed, deleted, version = server.events()
    assert made["requestObject"]["data"] == {"k": "v\x85"}
    assert made["responseObject"]["data"] == {"k": "v\x85"}
    assert patched["requestObject"] == patch
    assert patched["responseObject"]["data"]["x"] == "\u2028"
    assert {"requestObject", "responseObject"}.isdisjoint(big)
    assert big["annotations"]["audit.k8s.io/truncated"] == "true"
    assert listed["annotations"]["audit.k8s.io/truncated"] == "true"
    assert deleted["requestObject"] == {"gracePeriodSeconds": 0}
    assert deleted["responseStatus"]["status"] == "Success"
    assert {"requestObject", "responseObject"}.isdisjoint(version)


async def test_no_credentials(tmp_path: Path) -> None:
    """Tokens, cookies, tickets and the content of Secrets are never logged, at the highest level
    either."""
    hidden = base64.b64encode(SECRET.encode()).decode()
    async with audited(tmp_path, EVERYTHING) as server:
        client, port = server.client, server.running.port
        secret = {"metadata": {"name": "s"}, "data": {"k": hidden}}
        assert (await client.post(f"{NS}/secrets", secret)).status == 201
        await client.put(f"{NS}/secrets/s", {**secret, "stringData": {"l": SECRET}})
        await client.patch(f"{NS}/secrets/s", {"stringData": {"k": SECRET}})
        await client.patch(f"{NS}/secrets/s", {"data": {"k": {SECRET: SECRET}}})
        await client.post(f"{NS}/secrets", {"metadata": {"name": "t"}, "data": {"k": SECRET}})
        await client.post(f"{NS}/secrets", {"metadata": {"name": "u"}, "type": [SECRET]})
        for target in (f"{NS}/secrets/s", f"{NS}/secrets", "/api/v1/secrets"):
            await client.get(target)
            await client.get(target, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
        await client.delete(f"{NS}/secrets/s")
        review = {"spec": {"token": SECRET}}
        await client.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
        await client.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": SECRET})
        await client.post(f"{NS}/serviceaccounts/x/token", {"spec": {"audiences": [SECRET]}})
        await client.get(f"/version?token={SECRET}&access_token={SECRET}&%74icket={SECRET}")
        await client.get(
            f"/dashboard/watch?watch=/api/v1/pods?watch=1%26timeoutSeconds=1%26token={SECRET}"
        )
        await client.post("/dashboard/session", {"ticket": SECRET})
        ticket = (await client.post("/dashboard/tickets", {})).json["ticket"]
        await client.get(
            f"{NS}/secrets/s", headers={"Cookie": f"restow-session={SECRET}", "X-Token": SECRET}
        )
        unauthenticated = ApiClient(port, token=SECRET)
        assert (await unauthenticated.get(f"{NS}/secrets/s")).status == 401
        await unauthenticated.close()
        protocol = f"base64url.bearer.authorization.k8s.io.{SECRET}"
        await client.get(f"{NS}/pods/x/exec", headers={"Sec-WebSocket-Protocol": protocol})
        text = server.text()
        secrets = [event for event in server.events() if "secrets" in event["requestURI"]]
    for word in (SECRET, hidden, TOKEN, ticket):
        assert word not in text
    assert {event["level"] for event in secrets} == {"Metadata"}
    assert "REDACTED" in text


INJECTIONS = [
    b"a\x01b",
    b'"},"user":{"username":"root"}',
    b'\\","x":"',
    b"\xc3\xa4\xe2\x80\xa8\xc2\x85",
    b"\xed\xa0\x80\xff",
    b"x\x7f\x1b[31m",
    b"x" * 5000,
]


@pytest.mark.parametrize("agent", INJECTIONS)
async def test_injection(tmp_path: Path, agent: bytes) -> None:
    """Whatever the user agent and the object names are, an event is one line of ASCII with all
    fields intact, and the response has no header that the server did not set."""
    async with audited(tmp_path, METADATA, omitStages=["RequestReceived"]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.running.port)
        name = "".join(f"%{byte:02X}" for byte in agent[:100]).encode()
        writer.write(
            b"GET %b/%b?x=%b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n"
            b"User-Agent: %b\r\nAudit-Id: %b\r\nX-Forwarded-For: %b\r\nConnection: close\r\n\r\n"
            % (CONFIG_MAPS.encode(), name, name, TOKEN.encode(), agent, agent, agent)
        )
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert answer.startswith(b"HTTP/1.1 4")
        lines = server.log.read_bytes()[:-1].split(b"\n")
        assert all(line.isascii() and line.isprintable() for line in map(bytes.decode, lines))
        (event,) = server.events()
        # The HTTP parser refuses control characters, before any header is known.
        is_refused = b"\x01" in agent or b"\x7f" in agent
        assert event["user"].get("username") == (None if is_refused else "admin")
        assert event["sourceIPs"] == ["127.0.0.1"]
        assert len(event["auditID"]) <= 64
    head = answer.partition(b"\r\n\r\n")[0]
    names = [line.partition(b":")[0] for line in head.split(b"\r\n")[1:]]
    assert len(names) == len(set(names))


async def test_echoed_id(tmp_path: Path) -> None:
    """The Audit-ID that a client sends is in the response and the log, for any number of requests;
    a long one is truncated."""
    async with audited(tmp_path, METADATA, omitStages=["RequestReceived"]) as server:
        await server.client.post(CONFIG_MAPS, config_map("a"))
        server.events()
        for said in ("mine-1", "mine-1", "mine-1", "x" * 100):
            reply = await server.client.get(f"{CONFIG_MAPS}/a", headers={"Audit-Id": said})
            assert reply.headers["audit-id"] == [said[:64]]
        found = [event["auditID"] for event in server.events()]
    assert found == ["mine-1", "mine-1", "mine-1", "x" * 64]


async def test_fast_path_at_all_levels(tmp_path: Path) -> None:
    """A get has the same events on the fast and the slow path, at every audit level."""
    one = {"group": "", "resources": ["configmaps"]}
    rules: list[dict[str, Any]] = [
        {"level": "None", "resources": [{**one, "resourceNames": ["none"]}]},
        {"level": "RequestResponse", "resources": [{**one, "resourceNames": ["all"]}]},
        METADATA,
    ]
    async with audited(tmp_path, *rules) as server:
        for name in ("none", "all", "some"):
            await server.client.post(CONFIG_MAPS, config_map(name))
        server.events()
        for _ in range(4):
            await server.client.get(f"{CONFIG_MAPS}/none")
        assert not server.events()
        for name, level in (("all", "RequestResponse"), ("some", "Metadata")):
            shapes = set()
            for _ in range(4):
                await server.client.get(f"{CONFIG_MAPS}/{name}")
                received, complete = server.events()
                assert (received["stage"], complete["stage"]) == (
                    "RequestReceived",
                    "ResponseComplete",
                )
                assert {received["level"], complete["level"]} == {level}
                assert received["auditID"] == complete["auditID"]
                shapes.add((tuple(received), tuple(complete), "responseObject" in complete))
            assert len(shapes) == 1


async def test_a_get_that_waits(tmp_path: Path) -> None:
    """A get that had to wait for the store is logged with its user, whether found or not."""
    async with audited(tmp_path, METADATA, storage=RemoteRevisionStorage()) as server:
        path = f"{CONFIG_MAPS}/a"
        await server.client.post(CONFIG_MAPS, config_map("a"))
        for _ in range(3):
            await server.client.get(path)
        await server.client.delete(path)
        server.events()
        for _ in range(2):
            assert (await server.client.get(path)).status == 404
            received, complete = server.events()
            assert summary([received, complete]) == [
                ("RequestReceived", "get", 0),
                ("ResponseComplete", "get", 404),
            ]
            assert received["user"] == complete["user"]
            assert complete["user"]["username"] == "admin"
            assert complete["annotations"]["authorization.k8s.io/decision"] == "allow"


async def send_raw(server: Audited, *parts: bytes, token: str = TOKEN) -> tuple[int, str]:
    """Sends raw bytes; returns the status of the response and its audit ID."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.running.port)
    head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
    writer.write(head.encode() + b"".join(parts))
    async with asyncio.timeout(10):
        answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    lines = dict(line.split(": ", 1) for line in answer.decode().splitlines()[1:] if line)
    return int(answer.split()[1]), lines.get("Audit-Id", "")


async def test_bodies_that_are_too_large(tmp_path: Path) -> None:
    """A request body over the limit is logged, with Content-Length or chunked, with the audit ID of
    the response; an unauthorized client is refused for that instead."""
    long = b"Content-Length: 999999999\r\n\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n", b"400000\r\n", b"x" * 0x400000, b"\r\n"
    async with audited(tmp_path, EVERYTHING, omitStages=["RequestReceived"]) as server:
        for parts in ((long,), chunked):
            code, mark = await send_raw(server, *parts)
            [event] = server.events()
            assert (code, event["responseStatus"]["code"], event["auditID"]) == (413, 413, mark)
            assert (event["user"]["username"], event["verb"]) == ("admin", "create")
        for token, wanted in ((OTHER_TOKEN, 403), ("wrong", 401)):
            code, mark = await send_raw(server, long, token=token)
            [event] = server.events()
            assert (code, event["responseStatus"]["code"], event["auditID"]) == (
                wanted,
                wanted,
                mark,
            )
        code, mark = await send_raw(server, b"Transfer-Encoding: chunked\r\n\r\n", b"nonsense\r\n")
        [event] = server.events()
        assert (code, event["responseStatus"]["code"], event["auditID"]) == (400, 400, mark)


class StuckStorage(RemoteRevisionStorage):
    """A store that blocks queries of its revision while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def revision(self) -> Revision:
        await self.goes_on.wait()
        return await super().revision()


async def test_requests_that_take_too_long(tmp_path: Path) -> None:
    """A request that times out has its event, and the response its audit ID."""
    storage = StuckStorage()
    async with audited(tmp_path, METADATA, storage=storage) as server:
        await server.client.get(CONFIG_MAPS)
        server.events()
        storage.goes_on.clear()
        reply = await server.client.get(f"{CONFIG_MAPS}?timeout=1s")
        storage.goes_on.set()
        assert reply.status == 504
        await server.until(lambda: server.text().count("504") > 0)
        event = server.events()[-1]
        assert (event["stage"], event["responseStatus"]["code"]) == ("ResponseComplete", 504)
        assert reply.headers["audit-id"] == [event["auditID"]]


async def test_policy_is_followed(tmp_path: Path) -> None:
    """A changed policy takes effect without a restart; an invalid one is ignored."""
    async with audited(tmp_path, {"level": "None"}) as server:
        await server.client.post(CONFIG_MAPS, config_map("a"))
        for _ in range(3):
            await server.client.get(f"{CONFIG_MAPS}/a")
        assert not server.events()
        before = server.audit.policy
        write_policy(server.policy, METADATA, omitStages=["RequestReceived"])
        await server.until(lambda: server.audit.policy is not before)
        for _ in range(3):
            await server.client.get(f"{CONFIG_MAPS}/a")
        assert len(server.events()) == 3


async def test_counts_and_batches(tmp_path: Path) -> None:
    """In batch mode all events are in the file after the server has stopped, and metrics count
    them."""
    policy: list[dict[str, Any]] = [{"level": "None", "nonResourceURLs": ["*"]}, METADATA]
    async with audited(tmp_path, *policy, mode="batch", omitStages=["RequestReceived"]) as server:
        for number in range(50):
            await server.client.post(CONFIG_MAPS, config_map(f"a{number}"))
        await server.until(lambda: server.text().count("\n") >= 51)
        metrics = ""
        async with asyncio.timeout(10):
            # The metric is updated shortly after the file is written.
            while "apiserver_audit_event_total 51.0" not in metrics:
                metrics = (await server.client.get("/metrics")).body.decode()
        await server.client.post(CONFIG_MAPS, config_map("last"))
        log = server.log
    assert 'apiserver_audit_level_total{level="Metadata"} 51.0' in metrics
    assert 'restow_audit_events_dropped_total{cause="buffer"} 0.0' in metrics
    assert '"name":"last"' in log.read_text().splitlines()[-1]


async def test_ids_without_a_log() -> None:
    """Every response has a unique audit ID, also from a server without an audit log."""
    storage = MemoryStorage()
    running = await start_server(storage)
    try:
        client = running.client
        await client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        await client.post(CONFIG_MAPS, config_map("a"))
        targets = [f"{CONFIG_MAPS}/a"] * 4 + [CONFIG_MAPS, "/version", "/none", f"{CONFIG_MAPS}/b"]
        targets += ["/api//v1", "/api/v1/namespaces/default/configmaps?limit=x"]
        ids = [(await client.get(target)).headers["audit-id"] for target in targets]
        assert all(len(each) == 1 for each in ids)
        assert len({each[0] for each in ids}) == len(ids)
    finally:
        await running.stop()
        await storage.close()
