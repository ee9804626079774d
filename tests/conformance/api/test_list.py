"""get and list: pages, resource versions, selectors, and consistency between two servers."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from restow.endpoints.handlers import get, list_objects
from restow.endpoints.handlers import watch as watch_handler
from restow.endpoints.list_selectors import ListSelectors
from restow.registry.watch_cache import Entry
from restow.storage.interface import Delete, Key, Revision, Transaction
from tests.conformance.api.conftest import StartServer
from tests.conformance.api.servers import CONFIG_MAPS, NS, RunningServer, config_map
from tests.support.api_client import PARTIAL_LIST, TABLE, ApiClient, Reply

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the wait for a resource version that is ahead of the store."""
    monkeypatch.setattr(get, "FUTURE_SECONDS_MAX", 0.2)
    monkeypatch.setattr(watch_handler, "FUTURE_SECONDS_MAX", 0.2)


async def fill(api: ApiClient, count: int, **metadata: Any) -> None:
    for i in range(count):
        reply = await api.post(CONFIG_MAPS, config_map(f"n{i:02}", {"v": "1"}, **metadata))
        assert reply.status == 201


async def pages(api: ApiClient, target: str, **options: Any) -> list[Reply]:
    """Returns all pages of a list."""
    found = [await api.get(target, **options)]
    separator = "&" if "?" in target else "?"
    while token := found[-1].json["metadata"].get("continue"):
        found.append(await api.get(f"{target}{separator}continue={token}", **options))
        assert found[-1].status == 200, found[-1].body
    return found


@EVERY_STORE
async def test_a_list(api: ApiClient) -> None:
    """A list has its kind, the resource version of the read, and items in key order."""
    empty = await api.get(CONFIG_MAPS)
    assert empty.json["items"] == []
    await fill(api, 3)
    reply = await api.get(CONFIG_MAPS)
    assert (reply.json["kind"], reply.json["apiVersion"]) == ("ConfigMapList", "v1")
    assert reply.names == ["n00", "n01", "n02"]
    assert reply.version >= max(
        int(item["metadata"]["resourceVersion"]) for item in reply.json["items"]
    )
    assert set(reply.json["metadata"]) == {"resourceVersion"}


@pytest.mark.parametrize(
    "selector", ["labelSelector=odd%3D1", "fieldSelector=metadata.name!%3Dn00"]
)
async def test_long_lists_yield_to_other_requests(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, selector: str
) -> None:
    """A list with a selector yields to other requests; its pages equal those of an uninterrupted
    list."""
    for number in range(25):
        labels = {"odd": str(number % 2)}
        await api.post(CONFIG_MAPS, config_map(f"n{number:02}", labels=labels))
    target = f"{CONFIG_MAPS}?{selector}"
    at_once = [(await api.get(target)).names]
    at_once += [page.names for page in await pages(api, f"{target}&limit=5")]

    monkeypatch.setattr(list_objects, "SLICE_ITEMS", 4)
    monkeypatch.setattr(list_objects, "FEW_ITEMS", 4)
    looked: list[int] = []
    turns: list[int] = []
    matches = ListSelectors.matches

    def tick() -> None:
        turns.append(len(looked))
        ticking[0] = asyncio.get_running_loop().call_soon(tick)

    def counted(selection: ListSelectors, path: str, entry: Entry) -> bool:
        looked.append(1)
        return matches(selection, path, entry)

    monkeypatch.setattr(ListSelectors, "matches", counted)
    ticking = [asyncio.get_running_loop().call_soon(tick)]
    in_slices = [(await api.get(target)).names]
    in_slices += [page.names for page in await pages(api, f"{target}&limit=5")]
    ticking[0].cancel()
    assert in_slices == at_once
    assert max(later - earlier for earlier, later in pairwise(turns)) <= 4


async def test_timeout_of_a_request(api: ApiClient) -> None:
    """A request that takes longer than `timeout` gets reason Timeout, soon after the limit."""
    await api.post(CONFIG_MAPS, config_map("a"))
    future = "resourceVersion=1000000000000"
    for target in (f"{CONFIG_MAPS}/a?{future}", f"{CONFIG_MAPS}?{future}"):
        async with asyncio.timeout(get.FUTURE_SECONDS_MAX - 0.5):
            reply = await api.get(f"{target}&timeout=100ms")
        assert (reply.status, reply.json["reason"]) == (504, "Timeout")
        assert "did not complete within the allotted timeout" in reply.json["message"]
    assert (await api.get(f"{CONFIG_MAPS}/a?timeout=100ms")).status == 200
    stream = f"{CONFIG_MAPS}?watch=true&timeoutSeconds=1&timeout=1ms&resourceVersion=0"
    assert (await api.get(stream)).status == 200


@EVERY_STORE
async def test_gets_between_changes(api: ApiClient) -> None:
    """Byte-identical repeated gets return every preceding change, and all are counted in
    metrics."""
    target = f"{CONFIG_MAPS}/a"
    await api.post(CONFIG_MAPS, config_map("a", {"v": "0"}))
    for number in range(1, 4):
        await api.put(target, config_map("a", {"v": str(number)}))
        found = [(await api.get(target)).json["data"]["v"] for _ in range(4)]
        assert found == [str(number)] * 4
    await api.delete(target)
    assert [(await api.get(target)).status for _ in range(3)] == [404] * 3
    text = (await api.get("/metrics")).body.decode()
    line = 'code="200",group="",resource="configmaps",subresource="",verb="get",version="v1"'
    assert f"apiserver_request_total{{{line}}} 12.0" in text


@EVERY_STORE
async def test_lists_between_changes(api: ApiClient) -> None:
    """Cached responses of whole lists reflect every preceding change, for long lists too."""
    big = "x" * 100_000
    for name in ("a", "c"):
        await api.post(CONFIG_MAPS, config_map(name, {"v": big}))
    assert [(await api.get(CONFIG_MAPS)).names for _ in range(2)] == [["a", "c"]] * 2
    await api.post(CONFIG_MAPS, config_map("b", {"v": big}))
    assert (await api.get(CONFIG_MAPS)).names == ["a", "b", "c"]
    await api.put(f"{CONFIG_MAPS}/b", config_map("b", {"v": "small"}))
    items = (await api.get(CONFIG_MAPS)).json["items"]
    assert [len(item["data"]["v"]) for item in items] == [100_000, 5, 100_000]
    await api.delete(f"{CONFIG_MAPS}/a")
    for _ in range(2):
        assert (await api.get(CONFIG_MAPS)).names == ["b", "c"]
        assert (await api.get("/api/v1/configmaps")).names == ["b", "c"]


async def test_all_namespaces_in_order_of_key(api: ApiClient) -> None:
    """Across namespaces: ordered by namespace, then name; an unknown namespace has no items."""
    for namespace in ("b", "a", "a-b"):
        await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for name in ("z", "a"):
            await api.post(f"/api/v1/namespaces/{namespace}/configmaps", config_map(name))
    reply = await api.get("/api/v1/configmaps")
    places = [
        f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        for item in reply.json["items"]
    ]
    assert places == ["a-b/a", "a-b/z", "a/a", "a/z", "b/a", "b/z"]
    assert (await api.get("/api/v1/namespaces/a/configmaps")).names == ["a", "z"]
    nowhere = await api.get("/api/v1/namespaces/nowhere/configmaps")
    assert (nowhere.status, nowhere.names) == (200, [])


@EVERY_STORE
async def test_pages(api: ApiClient) -> None:
    """Pages have exact remainingItemCount values and one resource version."""
    await fill(api, 7)
    found = await pages(api, f"{CONFIG_MAPS}?limit=3")
    assert [reply.names for reply in found] == [
        ["n00", "n01", "n02"],
        ["n03", "n04", "n05"],
        ["n06"],
    ]
    assert [reply.json["metadata"].get("remainingItemCount") for reply in found] == [4, 1, None]
    assert len({reply.version for reply in found}) == 1
    exact = await api.get(f"{CONFIG_MAPS}?limit=7")
    assert set(exact.json["metadata"]) == {"resourceVersion"}


@EVERY_STORE
async def test_pages_have_the_version_of_the_first(api: ApiClient) -> None:
    """Writes between pages are not included: all pages are one snapshot, with its counts."""
    await fill(api, 6)
    first = await api.get(f"{CONFIG_MAPS}?limit=2")
    token = first.json["metadata"]["continue"]
    await api.post(CONFIG_MAPS, config_map("n025"))
    await api.delete(f"{CONFIG_MAPS}/n03")
    await api.put(f"{CONFIG_MAPS}/n04", config_map("n04", {"v": "2"}))
    second = await api.get(f"{CONFIG_MAPS}?limit=2&continue={token}")
    assert (second.names, second.version) == (["n02", "n03"], first.version)
    assert second.json["metadata"]["remainingItemCount"] == 2
    token = second.json["metadata"]["continue"]
    third = await api.get(f"{CONFIG_MAPS}?limit=2&continue={token}")
    assert (third.names, third.version) == (["n04", "n05"], first.version)
    assert third.json["items"][0]["data"] == {"v": "1"}
    assert "continue" not in third.json["metadata"]
    rest = await api.get(f"{CONFIG_MAPS}?continue={token}")
    assert rest.names == ["n04", "n05"]


@EVERY_STORE
async def test_pages_with_a_selector(api: ApiClient) -> None:
    """With a selector there is no remainingItemCount, before and after other writes, and no
    empty last page."""
    for i in range(10):
        labels = {"odd": str(i % 2)}
        await api.post(CONFIG_MAPS, config_map(f"n{i}", labels=labels))
    target = f"{CONFIG_MAPS}?labelSelector=odd%3D1&limit=2"
    found = await pages(api, target)
    assert [reply.names for reply in found] == [["n1", "n3"], ["n5", "n7"], ["n9"]]
    assert all("remainingItemCount" not in reply.json["metadata"] for reply in found)
    token = found[0].json["metadata"]["continue"]
    await api.delete(f"{CONFIG_MAPS}/n9")
    await api.post(CONFIG_MAPS, config_map("n99"))
    again = await api.get(f"{target}&continue={token}")
    assert again.names == ["n5", "n7"]
    last = await api.get(f"{target}&continue={again.json['metadata']['continue']}")
    assert last.names == ["n9"]
    assert "continue" not in last.json["metadata"]
    even = await api.get(f"{CONFIG_MAPS}?labelSelector=odd%3D0&limit=5")
    assert "continue" not in even.json["metadata"]


@EVERY_STORE
async def test_tokens_work_on_every_server(server: RunningServer, start: StartServer) -> None:
    """A list begun on one server continues on another, at the same resource version."""
    await fill(server.client, 5)
    other = (await start()).client
    first = await server.client.get(f"{CONFIG_MAPS}?limit=2")
    await server.client.delete(f"{CONFIG_MAPS}/n04")
    token = first.json["metadata"]["continue"]
    second = await other.get(f"{CONFIG_MAPS}?limit=10&continue={token}")
    assert (second.names, second.version) == (["n02", "n03", "n04"], first.version)


async def test_invalid_continue_tokens(api: ApiClient) -> None:
    """Forged continue tokens, and those of another list, get 400."""
    import base64

    await fill(api, 3)
    await api.post(f"{NS}/secrets", {"metadata": {"name": "s1"}})
    await api.post(f"{NS}/secrets", {"metadata": {"name": "s2"}})
    mine = (await api.get(f"{CONFIG_MAPS}?limit=1")).json["metadata"]["continue"]
    secret = (await api.get(f"{NS}/secrets?limit=1")).json["metadata"]["continue"]
    forged = base64.urlsafe_b64encode(
        b'{"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets/"}'
    ).decode()
    changed = mine[:20] + ("A" if mine[20] != "A" else "B") + mine[21:]
    bad = [forged, secret, changed, "x", "%00", "=", "a" * 5000, mine + "AAAA", "\u00e9"]
    for token in bad:
        reply = await api.get(f"{CONFIG_MAPS}?limit=1&continue={token}")
        assert (reply.status, reply.reason) == (400, "BadRequest"), token
    for target in (
        f"/api/v1/configmaps?continue={mine}",
        f"{CONFIG_MAPS}?labelSelector=a&continue={mine}",
        f"{CONFIG_MAPS}?fieldSelector=metadata.name!%3Dx&continue={mine}",
    ):
        assert (await api.get(target)).status == 400, target


@EVERY_STORE
async def test_an_expired_token(server: RunningServer) -> None:
    """After compaction of the version: 410, with a token to continue at the current version."""
    api = server.client
    await fill(api, 4)
    first = await api.get(f"{CONFIG_MAPS}?limit=2")
    token = first.json["metadata"]["continue"]
    last = await api.post(CONFIG_MAPS, config_map("n09"))
    await server.storage.compact(Revision(last.version))
    gone = await api.get(f"{CONFIG_MAPS}?limit=2&continue={token}")
    assert (gone.status, gone.reason) == (410, "Expired")
    assert gone.json["code"] == 410
    fresh = gone.json["metadata"]["continue"]
    rest = await api.get(f"{CONFIG_MAPS}?limit=10&continue={fresh}")
    assert rest.names == ["n02", "n03", "n09"]
    assert rest.version >= last.version
    exact = await api.get(
        f"{CONFIG_MAPS}?resourceVersion={first.version}&resourceVersionMatch=Exact"
    )
    assert (exact.status, exact.reason) == (410, "Expired")
    assert "continue" not in exact.json["metadata"]


@EVERY_STORE
async def test_versions_and_matches(api: ApiClient) -> None:
    """The table of resourceVersion, resourceVersionMatch and limit."""
    await fill(api, 2)
    old = (await api.get(CONFIG_MAPS)).version
    await api.post(CONFIG_MAPS, config_map("n02"))
    new = (await api.get(CONFIG_MAPS)).version
    then, now = ["n00", "n01"], ["n00", "n01", "n02"]
    table = [
        ("", now, new),
        ("limit=5", now, new),
        ("resourceVersion=", now, new),
        ("resourceVersion=0", now, None),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan", now, None),
        (f"resourceVersion={old}", now, new),
        (f"resourceVersion={old}&limit=5", then, old),
        (f"resourceVersion={old}&resourceVersionMatch=NotOlderThan&limit=5", now, new),
        (f"resourceVersion={old}&resourceVersionMatch=Exact", then, old),
        (f"resourceVersion={old}&resourceVersionMatch=Exact&limit=1", ["n00"], old),
        (f"resourceVersion={new}&resourceVersionMatch=Exact", now, new),
    ]
    for parameters, names, version in table:
        reply = await api.get(f"{CONFIG_MAPS}?{parameters}")
        assert (reply.status, reply.names) == (200, names), parameters
        assert version is None or reply.version == version, parameters
    page = await api.get(f"{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact&limit=1")
    assert page.json["metadata"]["remainingItemCount"] == 1


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersionMatch=NotOlderThan", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("resourceVersion=5&resourceVersionMatch=Newest", 422),
        ("sendInitialEvents=true", 422),
        ("sendInitialEvents=true&resourceVersion=1&resourceVersionMatch=NotOlderThan", 422),
        ("continue=TOKEN&resourceVersionMatch=Exact", 422),
        ("continue=TOKEN&resourceVersion=5", 400),
        ("continue=TOKEN&resourceVersion=0", 200),
        ("resourceVersion=abc", 400),
        ("resourceVersion=-1", 400),
        ("resourceVersion=1e9", 400),
        ("resourceVersion=18446744073709551616", 400),
        ("limit=abc", 400),
        ("limit=1.5", 400),
        ("limit=99999999999999999999999", 400),
        ("limit=-1", 200),
        ("limit=2147483648", 200),
        ("limit=9223372036854775807", 200),
        ("labelSelector=a%20b%20c", 400),
        ("fieldSelector=spec.x%3D1", 400),
        ("fieldSelector=metadata.name", 400),
    ],
)
async def test_parameters_of_a_list(api: ApiClient, parameters: str, code: int) -> None:
    """An invalid value gets 400; options that exclude each other, 422."""
    await fill(api, 2)
    token = (await api.get(f"{CONFIG_MAPS}?limit=1")).json["metadata"]["continue"]
    reply = await api.get(f"{CONFIG_MAPS}?{parameters.replace('TOKEN', token)}")
    assert reply.status == code
    if code != 200:
        assert reply.reason == {400: "BadRequest", 422: "Invalid"}[code]


async def test_a_version_ahead_of_the_store(api: ApiClient, short_wait: None) -> None:
    """After a short wait: 504, with the cause that clients check."""
    for target in (
        f"{CONFIG_MAPS}?resourceVersion=1000000",
        f"{CONFIG_MAPS}?resourceVersion=1000000&resourceVersionMatch=Exact",
        f"{CONFIG_MAPS}?resourceVersion=9223372036854775807",
        f"{CONFIG_MAPS}/a?resourceVersion=1000000",
    ):
        reply = await api.get(target)
        assert (reply.status, reply.reason) == (504, "Timeout"), target
        assert reply.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert reply.header("retry-after") == "1"


async def test_a_version_that_arrives(server: RunningServer, start: StartServer) -> None:
    """A read of a resource version just ahead of the cache waits until it arrives."""
    made = await server.client.post(CONFIG_MAPS, config_map("a"))
    other = (await start()).client
    wanted = made.version + 1
    waiting = asyncio.ensure_future(other.get(f"{CONFIG_MAPS}/b?resourceVersion={wanted}"))
    await asyncio.sleep(0.05)
    await server.client.post(CONFIG_MAPS, config_map("b"))
    reply = await waiting
    assert (reply.status, reply.version) == (200, wanted)


@EVERY_STORE
async def test_servers_see_each_others_writes(server: RunningServer, start: StartServer) -> None:
    """A write that one server acknowledged is visible on the other: get, list, delete and
    conflict."""
    one, two = server.client, (await start()).client
    assert (await two.get(CONFIG_MAPS)).names == []
    for i in range(10):
        made = await one.post(CONFIG_MAPS, config_map(f"n{i}"))
        assert (await two.get(f"{CONFIG_MAPS}/n{i}")).json == made.json
        changed = await two.patch(f"{CONFIG_MAPS}/n{i}", {"data": {"k": "v"}})
        listed = await one.get(CONFIG_MAPS)
        assert listed.json["items"][-1] == changed.json
        stale = await one.put(f"{CONFIG_MAPS}/n{i}", made.json)
        assert stale.reason == "Conflict"
    await one.delete(f"{CONFIG_MAPS}/n3")
    assert (await two.get(f"{CONFIG_MAPS}/n3")).status == 404
    assert "n3" not in (await two.get(CONFIG_MAPS)).names
    await two.delete("/api/v1/namespaces/default/configmaps")
    assert (await one.get(CONFIG_MAPS)).names == []


@EVERY_STORE
async def test_namespaces_of_another_server(server: RunningServer, start: StartServer) -> None:
    """A namespace created or deleted on one server exists, or is terminating, on the other at
    once."""
    one, two = server.client, (await start()).client
    assert (await two.get("/api/v1/namespaces")).status == 200
    for i in range(5):
        await one.post("/api/v1/namespaces", {"metadata": {"name": f"team{i}"}})
        place = f"/api/v1/namespaces/team{i}/configmaps"
        assert (await two.post(place, config_map("a"))).status == 201
        await one.patch(f"/api/v1/namespaces/team{i}", {"metadata": {"labels": {"a": "b"}}})
        assert (await two.post(place, config_map("b"))).status == 201
        await one.delete(f"/api/v1/namespaces/team{i}")
        refused = await two.post(place, config_map("c"))
        assert (refused.status, refused.reason) == (403, "Forbidden")


async def test_label_selectors(api: ApiClient) -> None:
    """Each operator, and combinations."""
    for name, labels in (
        ("a", {"app": "web", "tier": "1"}),
        ("b", {"app": "db", "tier": "2"}),
        ("c", {"app": "web", "tier": "3"}),
        ("d", {}),
    ):
        await api.post(CONFIG_MAPS, config_map(name, labels=labels))
    table = {
        "app=web": ["a", "c"],
        "app==web": ["a", "c"],
        "app!=web": ["b", "d"],
        "app": ["a", "b", "c"],
        "!app": ["d"],
        "app in (web,db)": ["a", "b", "c"],
        "app notin (web)": ["b", "d"],
        "tier>1": ["b", "c"],
        "tier<3": ["a", "b"],
        "app=web,tier!=1": ["c"],
        "app=none": [],
    }
    for selector, names in table.items():
        from urllib.parse import quote

        reply = await api.get(f"{CONFIG_MAPS}?labelSelector={quote(selector)}")
        assert reply.names == names, selector


async def test_field_selectors(api: ApiClient) -> None:
    """metadata.name and metadata.namespace for all kinds; further fields for some kinds."""
    await fill(api, 3)
    await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    await api.post("/api/v1/namespaces/other/configmaps", config_map("n01"))
    everywhere = "/api/v1/configmaps?fieldSelector="
    assert (await api.get(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dn01")).names == ["n01"]
    assert (await api.get(f"{everywhere}metadata.name%3Dn01")).names == ["n01", "n01"]
    both = "metadata.name%3Dn01,metadata.namespace%3Dother"
    assert len((await api.get(everywhere + both)).names) == 1
    assert (await api.get(f"{CONFIG_MAPS}?fieldSelector={both}")).names == []
    assert (await api.get(f"{CONFIG_MAPS}?fieldSelector=metadata.name!%3Dn01")).names == [
        "n00",
        "n02",
    ]
    for kind, value in (("s1", "Opaque"), ("s2", "x.io/mine")):
        await api.post(f"{NS}/secrets", {"metadata": {"name": kind}, "type": value})
    assert (await api.get(f"{NS}/secrets?fieldSelector=type%3Dx.io/mine")).names == ["s2"]
    active = await api.get("/api/v1/namespaces?fieldSelector=status.phase%3DActive")
    assert "default" in active.names
    climbing = "metadata.name%3D..%2F..%2Fsecrets%2Fdefault%2Fs1"
    for target in (f"{CONFIG_MAPS}?fieldSelector={climbing}", everywhere + climbing):
        reply = await api.get(target)
        assert (reply.status, reply.names) == (200, [])


async def test_selectors_with_null_labels(start: StartServer) -> None:
    """A null among the labels of an additional kind hides neither the object nor its other
    labels."""
    widgets = (await start(_widgets())).client
    await widgets.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    place = "/apis/example.com/v1/namespaces/default/widgets"
    made = await widgets.post(
        place, {"metadata": {"name": "w", "labels": {"a": None, "b": "1"}}, "spec": {}}
    )
    assert made.status == 201
    assert (await widgets.get(f"{place}?labelSelector=b%3D1")).names == ["w"]


def _widgets() -> Any:
    from tests.conformance.api.servers import catalog_of

    return catalog_of("x+1")


async def test_tables_and_metadata_in_pages(api: ApiClient) -> None:
    """Tables and PartialObjectMetadataList have the same metadata and continue tokens."""
    await fill(api, 3)
    table = await api.get(f"{CONFIG_MAPS}?limit=2", accept=TABLE)
    assert table.json["kind"] == "Table"
    assert table.json["apiVersion"] == "meta.k8s.io/v1"
    assert [row["cells"][0] for row in table.json["rows"]] == ["n00", "n01"]
    assert table.json["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert table.json["metadata"]["remainingItemCount"] == 1
    names = [column["name"] for column in table.json["columnDefinitions"]]
    assert names == ["Name", "Data", "Age"]
    token = table.json["metadata"]["continue"]
    partial = await api.get(f"{CONFIG_MAPS}?limit=2&continue={token}", accept=PARTIAL_LIST)
    assert partial.json["kind"] == "PartialObjectMetadataList"
    assert partial.names == ["n02"]
    assert "data" not in partial.json["items"][0]
    for include, check in (("None", None), ("Object", "ConfigMap")):
        reply = await api.get(f"{CONFIG_MAPS}?includeObject={include}", accept=TABLE)
        row = reply.json["rows"][0]
        assert (row["object"] or {}).get("kind") == check
    both = await api.get(CONFIG_MAPS, accept=f"{TABLE},application/json")
    assert both.json["kind"] == "Table"
    old = "application/json;as=Table;v=v1alpha9;g=meta.k8s.io"
    assert (await api.get(CONFIG_MAPS, accept=old)).status == 406
    assert (await api.get(CONFIG_MAPS, accept=f"{old},application/json")).names[0] == "n00"


async def test_damaged_objects_are_reported(server: RunningServer) -> None:
    """Unreadable objects cause an error of get, list and watch, and are never omitted; others
    are served."""
    api = server.client
    await fill(api, 2)
    for value in (
        b"\x00\x01",
        b"{}",
        b"[1]",
        b'{"kind":"ConfigMap","apiVersion":"v7","metadata":{"name":"bad"}}',
        b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"bad"}}',
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":7}',
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"bad"},"data":{"k":',
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"bad"}}{}\n',
    ):
        await server.put_raw("/registry/configmaps/default/bad", value)
        for target in (
            f"{CONFIG_MAPS}/bad",
            CONFIG_MAPS,
            "/api/v1/configmaps",
            f"{CONFIG_MAPS}?limit=1",
            f"{CONFIG_MAPS}?labelSelector=x",
        ):
            reply = await api.get(target)
            assert (reply.status, reply.reason) == (500, "InternalError"), (target, value)
            assert "default/bad" in reply.message
        watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion=0")
        events = await watch.rest()
        assert [event["type"] for event in events] == ["ERROR"]
        assert events[0]["object"]["code"] == 500
    assert (await api.get(f"{CONFIG_MAPS}/n00")).status == 200
    assert (await api.get("/api/v1/namespaces/elsewhere/configmaps")).status == 200
    assert (await api.get(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dn00")).names == ["n00"]
    deleted = await api.delete(f"{CONFIG_MAPS}/bad")
    assert deleted.status == 500
    key = Key("/registry/configmaps/default/bad")
    await server.storage.commit(Transaction(writes=(Delete(key),)))
    assert (await api.get(CONFIG_MAPS)).names == ["n00", "n01"]
    assert (await api.get(f"{CONFIG_MAPS}/bad")).status == 404


async def test_an_object_becomes_damaged_under_a_watch(server: RunningServer) -> None:
    """The stream ends with an error, not with a false DELETED."""
    api = server.client
    made = await api.post(CONFIG_MAPS, config_map("a"))
    elsewhere = await api.watch("/api/v1/namespaces/other/configmaps?resourceVersion=0")
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={made.version}")
    await api.post(CONFIG_MAPS, config_map("b"))
    await server.put_raw("/registry/configmaps/default/a", b"{}")
    events = await watch.rest()
    assert [event["type"] for event in events] == ["ADDED", "ERROR"]
    assert events[-1]["object"]["reason"] == "InternalError"
    assert await elsewhere.is_silent()


@pytest.mark.parametrize("outcome", ["mended", "deleted"])
async def test_a_damaged_object_becomes_readable_under_a_watch(
    server: RunningServer, outcome: str
) -> None:
    """When it becomes readable, or is deleted, watches started in between must relist: the
    server cannot know whether their clients have seen the object, earlier or from another
    server. So there is neither a second ADDED nor a silent removal."""
    api, key = server.client, Key("/registry/configmaps/default/a")
    await api.post(CONFIG_MAPS, config_map("a"))
    good = await server.storage.get(key)
    assert good is not None
    await server.put_raw(key, b"{}")
    made = await api.post(CONFIG_MAPS, config_map("b"))
    elsewhere = await api.watch("/api/v1/namespaces/other/configmaps?resourceVersion=0")
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={made.version}")
    await api.post(CONFIG_MAPS, config_map("c"))
    if outcome == "mended":
        await server.put_raw(key, good.value)
    else:
        await server.storage.commit(Transaction(writes=(Delete(key),)))
    events = await watch.rest()
    assert [event["type"] for event in events] == ["ADDED", "ERROR"]
    assert (events[-1]["object"]["code"], events[-1]["object"]["reason"]) == (410, "Expired")
    assert await elsewhere.is_silent()
    listed = await api.get(CONFIG_MAPS)
    assert listed.names == (["a", "b", "c"] if outcome == "mended" else ["b", "c"])


async def test_a_large_list(api: ApiClient) -> None:
    """A list sent in chunks is complete, plain and compressed; small lists are not chunked."""
    import gzip

    import orjson

    for i in range(30):
        await api.post(CONFIG_MAPS, config_map(f"n{i:02}", {"v": "x" * 10_000}))
    plain = await api.get(CONFIG_MAPS)
    assert len(plain.names) == 30
    packed = await api.get(CONFIG_MAPS, headers={"Accept-Encoding": "gzip"})
    assert packed.header("content-encoding") == "gzip"
    assert packed.header("vary") == "Accept-Encoding"
    assert orjson.loads(gzip.decompress(packed.body)) == plain.json
    refused = await api.get(CONFIG_MAPS, headers={"Accept-Encoding": "gzip;q=0, identity"})
    assert refused.header("content-encoding") == ""
    small = await api.get(f"{CONFIG_MAPS}?limit=1", headers={"Accept-Encoding": "gzip"})
    assert small.header("content-encoding") == ""
