"""watch: where it starts, what it sends, how it ends."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from restow.endpoints.handlers import watch as watch_handler
from restow.endpoints.handlers.watch_events import COSTLY_BYTES_AT_ONCE, PLAIN_BYTES_AT_ONCE
from restow.httpserver import Peer, PushStream
from restow.storage.interface import Revision
from tests.conformance.api.conftest import StartServer
from tests.conformance.api.servers import CONFIG_MAPS, NS, TOKEN, RunningServer, config_map
from tests.support.api_client import PARTIAL, TABLE, ApiClient, WatchStream
from tests.support.in_process import PushedStream, answer_of, request_of

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
WATCH_LIST = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
END = {"k8s.io/initial-events-end": "true"}
WAIT_SECONDS = 10.0


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the wait for a resource version that is ahead of the store."""
    monkeypatch.setattr(watch_handler, "FUTURE_SECONDS_MAX", 0.2)


def seen(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def version_of(event: dict[str, Any]) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


async def assert_too_old(watch: WatchStream) -> None:
    assert watch.status == 200
    events = await watch.rest()
    assert [event["type"] for event in events] == ["ERROR"]
    found = events[0]["object"]
    assert (found["kind"], found["code"], found["reason"]) == ("Status", 410, "Expired")
    assert found["message"].startswith("too old resource version: ")


@EVERY_STORE
async def test_from_a_version(api: ApiClient) -> None:
    """Every event after a version, in order, each with its own version; the current version
    starts at once."""
    first = await api.post(CONFIG_MAPS, config_map("a"))
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={first.version}")
    assert watch.status == 200
    assert watch.headers["content-type"] == ["application/json"]
    made = await api.post(CONFIG_MAPS, config_map("b"))
    changed = await api.put(f"{CONFIG_MAPS}/b", config_map("b", {"k": "v"}))
    await api.delete(f"{CONFIG_MAPS}/b")
    events = await watch.take(3)
    assert seen(events) == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert events[0]["object"] == made.json
    assert events[1]["object"] == changed.json
    assert events[2]["object"]["data"] == {"k": "v"}
    versions = [version_of(event) for event in events]
    assert versions == sorted(set(versions))
    late = await api.watch(f"{CONFIG_MAPS}?resourceVersion={first.version}")
    assert await late.take(3) == events


@EVERY_STORE
@pytest.mark.parametrize("parameters", ["", "?resourceVersion=0", "?resourceVersion="])
async def test_from_the_beginning(api: ApiClient, parameters: str) -> None:
    """Without a version, or from 0: existing objects as ADDED, then events."""
    for name in ("b", "a"):
        await api.post(CONFIG_MAPS, config_map(name))
    await api.get(CONFIG_MAPS)
    watch = await api.watch(CONFIG_MAPS + parameters)
    assert seen(await watch.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
    await api.post(CONFIG_MAPS, config_map("c"))
    assert seen(await watch.take(1)) == [("ADDED", "c")]
    assert await watch.is_silent()


@EVERY_STORE
async def test_watch_list(api: ApiClient) -> None:
    """Existing objects, the annotated bookmark at a version not below any of them, then events."""
    last = None
    for name in ("b", "a"):
        last = await api.post(CONFIG_MAPS, config_map(name))
    assert last is not None
    for version in ("", "&resourceVersion=0", f"&resourceVersion={last.version}"):
        watch = await api.watch(f"{CONFIG_MAPS}?{WATCH_LIST}{version}")
        events = await watch.take(3)
        assert seen(events) == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")]
        mark = events[2]["object"]
        assert (mark["kind"], mark["apiVersion"]) == ("ConfigMap", "v1")
        assert set(mark) == {"kind", "apiVersion", "metadata"}
        assert mark["metadata"]["annotations"] == END
        assert version_of(events[2]) >= max(version_of(event) for event in events)
        made = await api.post(CONFIG_MAPS, {"metadata": {"name": "c"}})
        following = await watch.next()
        assert following is not None
        assert following["object"] == made.json
        await api.delete(f"{CONFIG_MAPS}/c")
        await api.get(CONFIG_MAPS)  # version 0 may return older state
        await watch.close()


@EVERY_STORE
async def test_watch_list_while_others_write(server: RunningServer, start: StartServer) -> None:
    """However it is interleaved with writes, a stream has each object once and no gap."""
    other = (await start()).client

    async def write() -> None:
        for i in range(60):
            assert (await other.post(CONFIG_MAPS, config_map(f"n{i:02}"))).status == 201

    writing = asyncio.ensure_future(write())
    streams = []
    while not writing.done():
        streams.append(await server.client.watch(f"{CONFIG_MAPS}?{WATCH_LIST}"))
        await asyncio.sleep(0.005)
    await writing
    for stream in streams:
        events = await stream.take(61)
        marks = [i for i, event in enumerate(events) if event["type"] == "BOOKMARK"]
        assert len(marks) == 1
        mark = version_of(events[marks[0]])
        names = [event["object"]["metadata"].get("name") for event in events]
        assert sorted(filter(None, names)) == [f"n{i:02}" for i in range(60)]
        assert all(version_of(event) <= mark for event in events[: marks[0]])
        assert all(version_of(event) > mark for event in events[marks[0] + 1 :])


async def test_no_bookmark_unless_asked_for(api: ApiClient) -> None:
    """Without allowWatchBookmarks no bookmark is sent, not even after the initial events."""
    await api.post(CONFIG_MAPS, config_map("a"))
    parameters = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    watch = await api.watch(f"{CONFIG_MAPS}?{parameters}")
    assert seen(await watch.rest()) == [("ADDED", "a")]


async def test_no_initial_events(api: ApiClient) -> None:
    """sendInitialEvents=false starts with later events."""
    await api.post(CONFIG_MAPS, config_map("a"))
    for version in ("", "&resourceVersion=0"):
        watch = await api.watch(
            f"{CONFIG_MAPS}?sendInitialEvents=false&resourceVersionMatch=NotOlderThan{version}"
        )
        assert await watch.is_silent()
        await api.post(CONFIG_MAPS, {"metadata": {"generateName": "x-"}})
        assert len(await watch.take(1)) == 1


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ("sendInitialEvents=true", 422),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", 422),
        ("resourceVersionMatch=NotOlderThan", 422),
        ("resourceVersion=abc", 400),
        ("resourceVersion=-5", 400),
        ("timeoutSeconds=soon", 400),
        ("labelSelector=a%20b%20c", 400),
        ("fieldSelector=data.x%3D1", 400),
    ],
)
async def test_parameters_of_a_watch(api: ApiClient, parameters: str, code: int) -> None:
    """Invalid parameters are refused before the stream begins."""
    watch = await api.watch(f"{CONFIG_MAPS}?{parameters}")
    assert watch.status == code
    refusal = await watch.refusal()
    assert refusal.reason == {400: "BadRequest", 422: "Invalid"}[code]


async def test_yaml_cannot_be_streamed(api: ApiClient) -> None:
    """A watch that accepts only YAML gets 406."""
    watch = await api.watch(CONFIG_MAPS, accept="application/yaml")
    assert watch.status == 406
    both = await api.watch(CONFIG_MAPS, accept="application/yaml, application/json")
    assert both.status == 200


async def test_versions_ahead_of_the_store(api: ApiClient, short_wait: None) -> None:
    """A plain watch waits; a watch-list gets the error that the resource version is too large."""
    now = (await api.get(CONFIG_MAPS)).version
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={now + 2}")
    for name in ("a", "b", "c"):
        await api.post(CONFIG_MAPS, config_map(name))
    assert seen(await watch.take(1)) == [("ADDED", "c")]
    early = await api.watch(f"{CONFIG_MAPS}?{WATCH_LIST}&resourceVersion=1000000")
    events = await early.rest()
    assert [event["type"] for event in events] == ["ERROR"]
    found = events[0]["object"]
    assert (found["code"], found["reason"]) == (504, "Timeout")
    assert found["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_selectors_entering_and_leaving(api: ApiClient) -> None:
    """An object that begins to match is ADDED; one that no longer matches is DELETED in its last
    state."""
    now = (await api.get(CONFIG_MAPS)).version
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={now}&labelSelector=on%3D1")
    await api.post(CONFIG_MAPS, config_map("a", {"v": "0"}))
    entered = await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": "1"}, labels={"on": "1"}))
    stayed = await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": "2"}, labels={"on": "1"}))
    left = await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": "3"}))
    await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": "4"}))
    await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": "5"}, labels={"on": "1"}))
    await api.delete(f"{CONFIG_MAPS}/a")
    events = await watch.take(5)
    assert [event["type"] for event in events] == [
        "ADDED",
        "MODIFIED",
        "DELETED",
        "ADDED",
        "DELETED",
    ]
    assert events[0]["object"] == entered.json
    assert events[1]["object"] == stayed.json
    assert events[2]["object"]["data"] == {"v": "2"}
    assert version_of(events[2]) == left.version
    assert events[4]["object"]["data"] == {"v": "5"}
    assert version_of(events[4]) > version_of(events[3])
    assert await watch.is_silent()


async def test_field_selectors_and_the_old_prefix(api: ApiClient) -> None:
    """One object by name: by field selector, by the old watch path, in its namespace only."""
    await api.post(CONFIG_MAPS, config_map("a"))
    named = "fieldSelector=metadata.name%3Db"
    streams = [
        await api.watch(f"{CONFIG_MAPS}?{named}"),
        await api.watch(f"/api/v1/configmaps?{named}"),
        await api.watch("/api/v1/watch/namespaces/default/configmaps/b"),
        await api.watch(f"/api/v1/watch/configmaps?{named}"),
    ]
    await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    await api.post(CONFIG_MAPS, config_map("c"))
    await api.post(CONFIG_MAPS, config_map("b"))
    for stream in streams:
        assert stream.status == 200
        assert seen(await stream.take(1)) == [("ADDED", "b")]
    plain = await api.get(f"{CONFIG_MAPS}/b?watch=1")
    assert (plain.status, plain.json["kind"]) == (200, "ConfigMap")
    posted = await api.post("/api/v1/watch/namespaces/default/configmaps", config_map("d"))
    assert posted.status == 405
    assert (await api.get(f"{CONFIG_MAPS}/d")).status == 404


async def test_one_namespace_of_several(api: ApiClient) -> None:
    """A watch of a namespace gets no events of one whose name has the same prefix."""
    for name in ("def", "default-2"):
        await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    watch = await api.watch("/api/v1/namespaces/def/configmaps")
    for namespace in ("default", "default-2", "def"):
        await api.post(f"/api/v1/namespaces/{namespace}/configmaps", config_map(f"in-{namespace}"))
    assert seen(await watch.take(1)) == [("ADDED", "in-def")]


async def test_the_end(api: ApiClient) -> None:
    """timeoutSeconds ends the stream cleanly, with a last bookmark if bookmarks were requested."""
    version = (await api.get(CONFIG_MAPS)).version
    plain = await api.watch(f"{CONFIG_MAPS}?resourceVersion={version}&timeoutSeconds=1")
    marked = await api.watch(
        f"{CONFIG_MAPS}?resourceVersion={version}&timeoutSeconds=1&allowWatchBookmarks=true"
    )
    await api.post(f"{NS}/secrets", {"metadata": {"name": "s"}})
    newest = (await api.get(CONFIG_MAPS)).version
    assert await plain.rest() == []
    events = await marked.rest()
    assert [event["type"] for event in events] == ["BOOKMARK"]
    assert version_of(events[0]) == newest
    assert "annotations" not in events[0]["object"]["metadata"]


async def test_bookmarks_in_between(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet watch gets periodic bookmarks with the current revision; never backwards, never
    early."""
    monkeypatch.setattr(watch_handler, "BOOKMARK_SECONDS", 0.05)
    version = (await api.get(CONFIG_MAPS)).version
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={version}&allowWatchBookmarks=true")
    events: list[dict[str, Any]] = []
    for i in range(3):
        await api.post(f"{NS}/secrets", {"metadata": {"name": f"s{i}"}})
        await api.post(CONFIG_MAPS, config_map(f"n{i}"))
        await asyncio.sleep(0.12)
    newest = (await api.get(CONFIG_MAPS)).version
    while not events or version_of(events[-1]) < newest or events[-1]["type"] != "BOOKMARK":
        events += await watch.take(1)
    versions = [version_of(event) for event in events]
    assert versions == sorted(versions)
    assert [event["type"] for event in events].count("ADDED") == 3


async def test_other_forms(api: ApiClient) -> None:
    """Tables and metadata in events; column definitions are sent once; bookmarks work too."""
    await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    table = await api.watch(f"{CONFIG_MAPS}?{WATCH_LIST}", accept=TABLE)
    partial = await api.watch(f"{CONFIG_MAPS}?{WATCH_LIST}", accept=PARTIAL)
    await api.post(CONFIG_MAPS, config_map("b"))
    rows = await table.take(3)
    assert [event["type"] for event in rows] == ["ADDED", "BOOKMARK", "ADDED"]
    assert all(event["object"]["kind"] == "Table" for event in rows)
    assert rows[0]["object"]["columnDefinitions"]
    assert not rows[2]["object"].get("columnDefinitions")
    assert rows[2]["object"]["rows"][0]["cells"][0] == "b"
    mark = rows[1]["object"]["rows"][0]["object"]["metadata"]
    assert mark["annotations"] == END
    metadata = await partial.take(3)
    assert [event["object"]["kind"] for event in metadata] == ["PartialObjectMetadata"] * 3
    assert metadata[0]["object"]["apiVersion"] == "meta.k8s.io/v1"
    assert "data" not in metadata[0]["object"]
    assert metadata[1]["object"]["metadata"]["annotations"] == END


@EVERY_STORE
async def test_all_watchers_see_the_same_order(server: RunningServer, start: StartServer) -> None:
    """Watchers on two servers, started at each version, get the same events in the same order."""
    other = (await start()).client
    one = server.client
    version = (await one.get(CONFIG_MAPS)).version
    streams = []
    for i in range(10):
        place = one if i % 2 else other
        assert (await place.post(CONFIG_MAPS, config_map(f"n{i}"))).status == 201
        target = f"{CONFIG_MAPS}?resourceVersion={version}"
        streams.append(await one.watch(target))
        streams.append(await other.watch(target))
    expected = [("ADDED", f"n{i}") for i in range(10)]
    found = [await stream.take(10) for stream in streams]
    assert all(seen(events) == expected for events in found)
    assert all(events == found[0] for events in found)


@EVERY_STORE
async def test_a_server_that_has_just_started(server: RunningServer, start: StartServer) -> None:
    """A watch from before a server's start is served from the store's history."""
    first = await server.client.post(CONFIG_MAPS, config_map("a", {"v": "1"}))
    watch = await server.client.watch(f"{CONFIG_MAPS}?resourceVersion={first.version - 1}")
    await server.client.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": "2"}, labels={"on": "1"}))
    await server.client.post(CONFIG_MAPS, config_map("b"))
    await server.client.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": "3"}))
    await server.client.delete(f"{CONFIG_MAPS}/b")
    events = await watch.take(5)
    fresh = (await start()).client
    again = await fresh.watch(f"{CONFIG_MAPS}?resourceVersion={first.version - 1}")
    later = await fresh.watch(f"{CONFIG_MAPS}?resourceVersion={version_of(events[2])}")
    assert await again.take(5) == events
    assert await later.take(2) == events[3:]
    selected = await fresh.watch(
        f"{CONFIG_MAPS}?resourceVersion={first.version - 1}&labelSelector=on"
    )
    assert [event["type"] for event in await selected.take(2)] == ["ADDED", "DELETED"]
    await server.client.post(CONFIG_MAPS, config_map("c"))
    for stream in (again, later):
        assert seen(await stream.take(1)) == [("ADDED", "c")]


@EVERY_STORE
async def test_a_compacted_version(server: RunningServer, start: StartServer) -> None:
    """After compaction, a watch from before gets 410 Expired in the stream."""
    first = await server.client.post(CONFIG_MAPS, config_map("a"))
    last = first
    for i in range(3):
        last = await server.client.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": str(i)}))
    await server.storage.compact(Revision(last.version))
    fresh = (await start()).client
    await assert_too_old(await fresh.watch(f"{CONFIG_MAPS}?resourceVersion={first.version}"))
    newest = await fresh.watch(f"{CONFIG_MAPS}?resourceVersion={last.version}")
    await fresh.delete(f"{CONFIG_MAPS}/a")
    assert seen(await newest.take(1)) == [("DELETED", "a")]


async def test_more_history_than_fits_into_memory(
    server: RunningServer, start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version no longer held in memory is expired, although the store still has it."""
    first = await server.client.post(CONFIG_MAPS, config_map("a"))
    for i in range(12):
        await server.client.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": str(i)}))
    fresh = await start()
    await fresh.client.get(CONFIG_MAPS)
    cache = fresh.assembly.caches.ready("/registry/configmaps/")
    assert cache is not None
    monkeypatch.setattr(cache, "_changes_max", 8)
    await assert_too_old(await fresh.client.watch(f"{CONFIG_MAPS}?resourceVersion={first.version}"))


async def test_a_slow_reader_gets_410(server: RunningServer) -> None:
    """Events are not buffered for a slow reader: when the ring has wrapped, the stream ends with
    410."""
    api = server.client
    await api.get(CONFIG_MAPS)
    cache = server.assembly.caches.ready("/registry/configmaps/")
    assert cache is not None
    cache._changes_max = 8
    made = await api.post(CONFIG_MAPS, config_map("a", {"v": ""}))
    quick = await api.watch(f"{CONFIG_MAPS}?resourceVersion={made.version}")
    slow = await api.watch(f"{CONFIG_MAPS}?resourceVersion={made.version}")
    slow._reader._transport.pause_reading()  # type: ignore[attr-defined]
    for i in range(40):
        await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": f"{i:07}" * 40_000}))
        assert len(await quick.take(1)) == 1
    slow._reader._transport.resume_reading()  # type: ignore[attr-defined]
    events = await slow.rest()
    assert 0 < len(events) < 40
    assert {event["type"] for event in events[:-1]} == {"MODIFIED"}
    assert events[-1]["type"] == "ERROR"
    assert events[-1]["object"]["code"] == 410


@EVERY_STORE
async def test_a_compaction_past_the_servers_own_watch(server: RunningServer) -> None:
    """A server keeps serving correct answers and watches after the store was compacted."""
    api = server.client
    made = await api.post(CONFIG_MAPS, config_map("a"))
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={made.version}")
    last = made
    for i in range(5):
        last = await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": str(i)}))
    await server.storage.compact(Revision(last.version))
    assert len(await watch.take(5)) == 5
    await api.post(CONFIG_MAPS, config_map("b"))
    assert seen(await watch.take(1)) == [("ADDED", "b")]


async def test_a_reloaded_cache(server: RunningServer) -> None:
    """A server that lost its position in the store reloads its cache and makes its watchers
    relist."""
    api = server.client
    made = await api.post(CONFIG_MAPS, config_map("a"))
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={made.version}")
    from restow.storage.errors import Unavailable

    caches = server.assembly.caches
    caches._watch.fail(Unavailable("lost track"))  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    await api.post(CONFIG_MAPS, config_map("b"))
    assert (await api.get(CONFIG_MAPS)).names == ["a", "b"]
    events = await watch.rest()
    assert events[-1]["type"] == "ERROR"
    assert events[-1]["object"]["code"] == 410
    again = await api.watch(f"{CONFIG_MAPS}?resourceVersion={made.version}")
    assert seen(await again.take(1)) == [("ADDED", "b")]


async def test_a_server_that_stops(server: RunningServer) -> None:
    """A stopping server ends its streams cleanly, so that clients continue elsewhere."""
    watch = await server.client.watch(CONFIG_MAPS)
    assert await watch.is_silent()
    stopping = asyncio.ensure_future(server.listener.stop(grace_seconds=0.1))
    assert await watch.rest() == []
    await stopping


@pytest.mark.parametrize(
    ("accept", "bytes_max"),
    [("application/json", PLAIN_BYTES_AT_ONCE), (TABLE, COSTLY_BYTES_AT_ONCE)],
)
async def test_initial_events_are_sent_in_pieces(
    api: ApiClient, server: RunningServer, accept: str, bytes_max: int
) -> None:
    """Objects are sent in pieces of limited size, all in the end: smaller ones in a form that costs
    more to encode."""
    for number in range(40):
        await api.post(CONFIG_MAPS, config_map(f"a{number:02}", {"k": "x" * 7_000}))
    lines = {"accept": accept}
    target = f"{CONFIG_MAPS}?watch=1&includeObject=Object&{WATCH_LIST}"
    made = request_of("GET", target, lines, b"", token=TOKEN, peer=Peer(0))
    answer = await answer_of(server.assembly.app(made(time.monotonic())))
    assert isinstance(answer, PushStream)
    pieces: list[bytes] = []
    async with asyncio.timeout(WAIT_SECONDS):
        async for piece in PushedStream(answer).pieces():
            pieces.append(piece)
            if b"initial-events-end" in piece:
                break
    assert b"".join(pieces).count(b'"ADDED"') == 40
    overhead = 1_000 * (bytes_max // 7_000)
    assert all(len(piece) <= bytes_max + overhead for piece in pieces)
    assert len(pieces) >= 40 * 7_000 // bytes_max
