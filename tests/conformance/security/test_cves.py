"""Attacks that comparable servers were vulnerable to, executed over HTTP.

Each test is named after its CVE or issue. `tests/architecture/security_map.py` lists all of them,
including those that are tested elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import orjson
import pytest
import pytest_asyncio

from restow.apimachinery.yaml_codec import YAML_SIZE_MAX
from tests.conformance.security.cells import MINE, OTHER
from tests.conformance.security.world import CUSTOM, MASTER, World, definition, running
from tests.support.api_client import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    PROTOBUF,
    YAML,
    ApiClient,
    Reply,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEED = 9
SECRETS = f"/api/v1/namespaces/{OTHER}/secrets"
MAPS = f"/api/v1/namespaces/{MINE}/configmaps"
LOCALS = f"/apis/{CUSTOM}/v1/namespaces/{MINE}/locals"
GLOBALS = f"/apis/{CUSTOM}/v1/globals"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLIMBING = (
    f"../../secrets/{OTHER}/one",
    f"..%2F..%2Fsecrets%2F{OTHER}%2Fone",
    f"%2e%2e/%2e%2e/secrets/{OTHER}/one",
    f"..%252F..%252Fsecrets%252F{OTHER}%252Fone",
    f"/registry/secrets/{OTHER}/one",
    "..",
    "../",
)
HIDDEN = "bm9ib2R5IHNob3VsZCBzZWUgdGhpcw=="


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with running() as (made, _):
        secret = {"metadata": {"name": "one"}, "data": {"word": HIDDEN}}
        await made.create(SECRETS, secret)
        yield made


@pytest.fixture
def master(world: World) -> ApiClient:
    return world.client(MASTER)


def told(reply: Reply) -> tuple[int, bytes]:
    return reply.status, reply.body[:300]


async def test_cve_2022_3162_selectors_climb_nowhere(master: ApiClient) -> None:
    """A field selector that looks like a path matches nothing, and no object of another kind."""
    for things in (LOCALS, GLOBALS, MAPS, f"/apis/{CUSTOM}/v1/locals", "/api/v1/configmaps"):
        for words in CLIMBING:
            for field in ("metadata.name", "metadata.namespace"):
                target = f"{things}?fieldSelector={field}={words}"
                reply = await master.get(target)
                assert reply.status in (200, 400), told(reply)
                assert reply.status == 400 or reply.json["items"] == [], target
            watch = await master.watch(f"{things}?fieldSelector=metadata.name={words}")
            assert watch.status == 400 or await watch.is_silent(seconds=0.002), words
            await watch.close()
            reply = await master.get(f"{things}?limit=1&continue={words}")
            assert reply.status == 400, told(reply)
            assert HIDDEN.encode() not in reply.body


async def test_cve_2015_5305_names_are_no_paths(master: ApiClient) -> None:
    """Neither fields of a CRD nor names of objects can escape their key prefix."""
    odd = ("../secrets", "a/b", "..", ".", "a%2fb", "a\0b", "a\nb", "%2e%2e")
    for word in odd:
        for field in ("plural", "kind", "singular", "listKind"):
            made = definition("things", "Namespaced")
            del made["status"]
            made["metadata"] = {"name": f"{word if field == 'plural' else 'things'}.{CUSTOM}"}
            made["spec"]["names"][field] = word
            reply = await master.post(CRDS, made)
            assert reply.status in (400, 422), (field, word, told(reply))
        made = definition("things", "Namespaced")
        made["metadata"] = {"name": f"things.{word}"}
        made["spec"]["group"] = word
        assert (await master.post(CRDS, made)).status in (400, 422), word
        made = definition("things", "Namespaced")
        made["spec"]["versions"][0]["name"] = word
        assert (await master.post(CRDS, made)).status in (400, 422), word
        for things in (LOCALS, GLOBALS, MAPS, "/apis/rbac.authorization.k8s.io/v1/clusterroles"):
            kind = {LOCALS: "Local", GLOBALS: "Global"}.get(things)
            obj: dict[str, Any] = {"metadata": {"name": word}}
            if kind is not None:
                obj |= {"kind": kind, "apiVersion": f"{CUSTOM}/v1"}
            reply = await master.post(things, obj)
            assert reply.status in (400, 422), (things, word, told(reply))
    for name in CLIMBING[1:4]:
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            reply = await master.request(
                method, f"{LOCALS}/{name}", b"{}", content_type=MERGE_PATCH
            )
            assert reply.status in (400, 404), (method, name, told(reply))
    assert (await master.get(f"{SECRETS}/one")).json["data"] == {"word": HIDDEN}


async def test_cve_2019_1002100_patches_have_limits(master: ApiClient) -> None:
    """Too many operations, and copies that double the object, are rejected; nothing changes."""
    await master.post(MAPS, {"metadata": {"name": "patched"}, "data": {"a": "x" * 100}})
    before = (await master.get(f"{MAPS}/patched")).json
    many = [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001
    reply = await master.patch(f"{MAPS}/patched", many, JSON_PATCH)
    assert (reply.status, reply.reason) == (413, "RequestEntityTooLarge"), told(reply)
    doubling = [{"op": "add", "path": "/data/l", "value": ["x" * 100]}]
    doubling += [{"op": "copy", "from": "/data/l", "path": "/data/l/-"}] * 9_998
    reply = await master.patch(f"{MAPS}/patched", doubling, JSON_PATCH)
    assert reply.status in (400, 413, 422), told(reply)
    assert (await master.get(f"{MAPS}/patched")).json == before


async def test_cve_2019_11253_bombs(master: ApiClient) -> None:
    """Recursive references and unlimited nesting are rejected for every content type."""
    await master.post(MAPS, {"metadata": {"name": "bombed"}})
    lines = [b"a: &a [x,x,x,x,x,x,x,x,x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]".encode())
    bomb = b"\n".join(lines)
    deep = b"[" * (3 * 1024 * 1024)
    nested = b'{"data":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}"
    for body, kind in ((bomb, YAML), (deep, YAML), (deep[:1000], YAML), (deep, "application/json")):
        for method, target in (("POST", MAPS), ("PUT", f"{MAPS}/bombed")):
            reply = await master.request(method, target, body, content_type=kind)
            assert reply.status in (400, 413), told(reply)
    for body, kind in ((deep, MERGE_PATCH), (nested, MERGE_PATCH), (deep, JSON_PATCH)):
        reply = await master.patch(f"{MAPS}/bombed", body, kind)
        assert reply.status in (400, 413), told(reply)
    for body in (bomb, deep):
        reply = await master.patch(f"{MAPS}/bombed?fieldManager=x", body, APPLY_PATCH)
        assert reply.status in (400, 413), told(reply)


async def test_cve_2019_11254_slow_yaml(world: World, master: ApiClient) -> None:
    """Input that is slow to parse is limited in length, and does not block other requests."""
    room = YAML_SIZE_MAX - 100
    shapes = (
        b"a: " + b"'" * (room // 2 * 2),
        b'a: "' + b"\\\\" * (room // 2),
        b"? " * (room // 2),
        b"- " * (room // 2),
        b"a: " + b"!!str " * (room // 6) + b"x",
        b"#\n" * (room // 2) + b"a: b",
        b"a: {" + b"x: y, " * (room // 6),
        b"x" * 2000 + b": " + b"a " * (room // 3),
        b"a: |\n" + b" \n" * (room // 2),
        b"&a " * (room // 3),
    )
    other = world.client("nobody-special")
    for shape in shapes:
        reply = await master.post(MAPS, shape, content_type=YAML)
        assert 400 <= reply.status < 500, (shape[:20], told(reply))
        assert (await other.get("/version")).status == 200
        reply = await master.post(MAPS, shape * 12, content_type=YAML)
        assert reply.status == 413, (shape[:20], told(reply))


async def series_of(master: ApiClient) -> set[str]:
    page = (await master.get("/metrics")).body.decode()
    return {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}


async def test_cve_2020_8552_metrics_do_not_grow(world: World, master: ApiClient) -> None:
    """User agents and paths chosen by clients do not add series to the metrics."""
    chance = random.Random(SEED)
    clients = [world.client(each) for each in (MASTER, "nobody-special", "")]

    async def wave(count: int) -> None:
        for _ in range(count):
            word = f"{chance.getrandbits(64):x}"
            target = chance.choice(
                (
                    f"/apis/{word}/v1/{word}",
                    f"/apis/apps/{word}/{word}/{word}/{word}",
                    f"/api/v1/namespaces/{word}/{word}/{word}",
                    f"/api/v1/namespaces/{word}/pods/{word}/{word}",
                    f"/api/v1/configmaps?fieldSelector=metadata.name={word}",
                    f"/api/v1/namespaces/{word}/secrets/{word}",
                    f"/{word}/{word}?{word}={word}",
                    f"/healthz/{word}",
                )
            )
            method = chance.choice(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"))
            await chance.choice(clients).request(method, target, headers={"User-Agent": word})

    await wave(400)
    before = await series_of(master)
    await wave(400)
    new = await series_of(master) - before
    assert len(new) < 20, sorted(new)
    assert len(before) < 5_000


async def test_cve_2019_11250_nothing_secret_is_written_down(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """At the highest level no log, response or metric contains a credential, valid or not."""
    word = "s3cr3t-that-nobody-may-read"
    with caplog.at_level(logging.DEBUG):
        for lines in (
            {"Authorization": f"Bearer {word}"},
            {"Authorization": f"Basic {word}"},
            {"Authorization": word},
            {"Cookie": f"restow={word}; session={word}"},
            {"X-Remote-User": word, "Impersonate-User": word},
        ):
            for target in (MAPS, "/version", f"/api?password={word}&access_token={word}"):
                for method in ("GET", "POST"):
                    client = ApiClient(world.port)
                    reply = await client.request(method, target, b"{}", headers=lines)
                    await client.close()
                    if "Impersonate-User" not in lines:
                        assert word.encode() not in reply.body, told(reply)
        for token in (MASTER, "nobody-special"):
            await world.client(token).get(f"{MAPS}?password={word}&limit=none")
    assert word not in caplog.text
    assert "Bearer " not in caplog.text
    assert word.encode() not in (await world.client(MASTER).get("/metrics")).body


async def test_cve_2023_44487_no_http_2(world: World) -> None:
    """A client that starts with HTTP/2 gets an error and is disconnected: there are no streams to
    reset."""
    frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 1_000
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    said = b""
    try:
        writer.write(frames)
        async with asyncio.timeout(10):
            with suppress(ConnectionResetError):  # its other bytes were not read
                while piece := await reader.read(65_536):
                    said += piece
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    assert said.startswith(b"HTTP/1.1 505 ")
    assert said.count(b"\r\nDate: ") == 1


async def test_cve_2024_24786_malformed_protobuf(master: ApiClient) -> None:
    """Truncated, deeply nested and invalid messages are a 400."""
    chance = random.Random(SEED)
    bodies = [b"k8s\0", b"k8s\0\x0a", b"k8s\0" + b"\xff" * 100, b"k8s\0" + b"\x0a\x02" * 10_000]
    bodies += [b"k8s\0" + chance.randbytes(chance.randrange(1, 200)) for _ in range(200)]
    for body in bodies:
        reply = await master.post(MAPS, body, content_type=PROTOBUF)
        assert 400 <= reply.status < 500, (body, told(reply))


BAD_METADATA: tuple[dict[str, Any], ...] = (
    {"labels": {"a b": "c"}},
    {"labels": {"a": "x" * 64}},
    {"annotations": {"a": "x" * (256 * 1024 + 1)}},
    {"finalizers": ["a b"]},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "", "name": "x", "uid": "u"}]},
)
BAD_BODIES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    (MAPS, {}, {"data": {"a b": "c"}}),
    (f"/api/v1/namespaces/{MINE}/secrets", {}, {"data": {"a b": "YQ=="}}),
    (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {"rules": []},
        {"rules": [{"apiGroups": [""], "resources": ["pods"]}]},
    ),
    (
        f"/apis/coordination.k8s.io/v1/namespaces/{MINE}/leases",
        {"spec": {}},
        {"spec": {"leaseDurationSeconds": -1}},
    ),
)


@pytest.mark.parametrize("number", range(len(BAD_BODIES)))
async def test_cve_2025_4563_one_validator_for_all_ways(master: ApiClient, number: int) -> None:
    """Objects that a create rejects are rejected by update and patch with the same causes, also in
    a dry run."""
    things, good, bad = BAD_BODIES[number]
    made = await master.post(things, {"metadata": {"name": "valid"}, **good})
    assert made.status == 201, told(made)
    for change in ({"metadata": each} for each in BAD_METADATA):
        await _same_causes(master, things, made.json, change)
    await _same_causes(master, things, made.json, bad)


async def _same_causes(
    master: ApiClient, things: str, stored: dict[str, Any], change: dict[str, Any]
) -> None:
    def changed(**metadata: Any) -> dict[str, Any]:
        plain = {key: value for key, value in stored.items() if key != "metadata"}
        return {**plain, **change, "metadata": {**metadata, **change.get("metadata", {})}}

    version = stored["metadata"]["resourceVersion"]

    operations = [
        {"op": "add", "path": f"/{key}", "value": value}
        for key, value in change.items()
        if key != "metadata"
    ] + [
        {"op": "add", "path": f"/metadata/{key}", "value": value}
        for key, value in change.get("metadata", {}).items()
    ]
    one = f"{things}/valid"
    causes = []
    for dry in ("", "?dryRun=All"):
        for reply in (
            await master.post(f"{things}{dry}", changed(name="other")),
            await master.put(f"{one}{dry}", changed(name="valid", resourceVersion=version)),
            await master.patch(f"{one}{dry}", change),
            await master.patch(f"{one}{dry}", operations, JSON_PATCH),
        ):
            assert reply.status == 422, (things, change, told(reply))
            found = reply.json["details"]["causes"]
            causes.append(sorted((each["field"], each["reason"]) for each in found))
    assert causes == [causes[0]] * len(causes)
    assert (await master.get(one)).json == stored


async def test_kubernetes_40218_malformed_patches(master: ApiClient) -> None:
    """A patch of invalid form is a 400, one that does not fit a 422, none is a 500."""
    await master.post(MAPS, {"metadata": {"name": "mended"}, "data": {"a": "b"}})
    before = (await master.get(f"{MAPS}/mended")).json
    malformed: tuple[object, ...] = (
        {},
        "x",
        [1],
        [{"op": 1, "path": "/data"}],
        [{"op": "add", "path": 1, "value": 1}],
    )
    unfit: tuple[object, ...] = (
        [{}],
        [{"op": "no", "path": "/data"}],
        [{"op": "add", "path": "data", "value": 1}],
        [{"op": "add", "path": "/data/~2/x", "value": "x"}],
        [{"op": "move", "path": "/data/x"}],
        [{"op": "remove", "path": "/data/none"}],
        [{"op": "replace", "path": "/none/at/all", "value": 1}],
        [{"op": "test", "path": "/data/a", "value": "c"}],
        [
            {"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]},
            {"op": "remove", "path": "/metadata/finalizers/-2"},
        ],
        [{"op": "move", "from": "/data", "path": "/data/a"}],
    )
    rootless: tuple[object, ...] = (
        [{"op": "remove", "path": ""}],
        [{"op": "replace", "path": "", "value": 1}],
        [{"op": "replace", "path": "", "value": None}],
        [{"op": "add", "path": "", "value": []}],
    )
    for patches, codes in ((malformed, {400}), (unfit, {422}), (rootless, {400, 422})):
        for each in patches:
            reply = await master.patch(f"{MAPS}/mended", orjson.dumps(each), JSON_PATCH)
            assert reply.status in codes, (each, told(reply))
    assert (await master.get(f"{MAPS}/mended")).json == before
