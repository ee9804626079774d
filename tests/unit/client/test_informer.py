"""The informer: its cache follows the server, through cuts, compaction and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import SimulatedClock, Tasks
from restow.apimachinery import status
from restow.client import (
    CacheFull,
    Informer,
    ListOptions,
    Object,
    ObjectChange,
    ObjectKey,
    WatchPolicy,
    version_of,
)
from tests.unit.client.fake_api import CONFIG_MAPS, FakeApi, new_client

PATH = "/api/v1/namespaces/n/configmaps"


def key(name: str) -> ObjectKey:
    return ObjectKey("n", name)


@asynccontextmanager
async def informer_of(
    api: FakeApi, *, objects_max: int = 100, failures_max: int = 3
) -> AsyncIterator[tuple[Informer, SimulatedClock]]:
    client, clock = new_client(api)
    informer = Informer(
        client,
        CONFIG_MAPS,
        options=ListOptions(limit=2),
        objects_max=objects_max,
        watch_policy=WatchPolicy(failures_max=failures_max),
    )
    async with Tasks("test") as tasks:
        tasks.spawn("informer", informer.run())
        yield informer, clock


def version(value: Object | None) -> str:
    return version_of(value or {})


def is_synced(informer: Informer) -> bool:
    return informer.is_synced


def contents(informer: Informer) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in informer.objects()
    }


def truth(api: FakeApi) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["metadata"]["resourceVersion"]
        for each in api.objects.values()
    }


async def test_it_begins_with_a_list() -> None:
    """It is synced only when all pages are read; handlers get each object."""
    api = FakeApi()
    for name in "abcde":
        api.put(f"{PATH}/{name}", {})
    async with informer_of(api) as (informer, clock):
        seen: list[ObjectChange] = []
        informer.on_change(seen.append)
        assert not is_synced(informer)
        await informer.wait_synced()
        assert contents(informer) == truth(api)
        assert [each.key.name for each in seen] == list("abcde")
        assert key("c") in informer
        assert informer.get(key("x")) is None
        await clock.settle()
    assert [each.query.get("limit") for each in api.sent] == ["2", "2", "2", None]


async def test_it_follows_changes() -> None:
    """Additions, changes and deletions are delivered, each with the object before and after."""
    api = FakeApi()
    first = api.put(f"{PATH}/a", {})
    async with informer_of(api) as (informer, clock):
        await informer.wait_synced()
        seen: list[ObjectChange] = []
        informer.on_change(seen.append)
        await clock.settle()
        second = api.put(f"{PATH}/a", {"data": {}})
        other = api.put(f"{PATH}/b", {})
        api.remove(f"{PATH}/a")
        await clock.settle()
        assert [(version(each.old), version(each.new)) for each in seen] == [
            ("", version(first)),
            (version(first), version(second)),
            ("", version(other)),
            (version(second), ""),
        ]
        assert informer.keys() == [key("b")]
        assert informer.resource_version == str(api.version)


async def test_it_lists_again_after_compaction() -> None:
    """Missed changes are delivered as differences: added, changed and deleted objects only."""
    api = FakeApi()
    for name in "abc":
        api.put(f"{PATH}/{name}", {})
    async with informer_of(api) as (informer, clock):
        await informer.wait_synced()
        await clock.settle()
        seen: list[ObjectChange] = []
        informer.on_change(seen.append)
        seen.clear()
        api.cut()
        api.put(f"{PATH}/b", {})
        api.remove(f"{PATH}/c")
        api.put(f"{PATH}/d", {})
        api.compact()
        await clock.advance(5)
        assert contents(informer) == truth(api)
        assert sorted((each.key.name, each.old is None, each.new is None) for each in seen) == [
            ("b", False, False),
            ("c", False, True),
            ("d", True, False),
        ]
        assert informer.last_error is None


async def test_a_list_that_takes_too_long_is_done_at_once() -> None:
    """When the pages of a list expire, the next list uses one page."""
    api = FakeApi()
    for name in "abcde":
        api.put(f"{PATH}/{name}", {})
    api.refuse = [status.expired("slow")]
    async with informer_of(api) as (informer, clock):
        await clock.advance(5)
        assert is_synced(informer)
    assert [each.query.get("limit") for each in api.sent] == ["2", None, None]


async def test_a_refusing_server_is_asked_less_and_less() -> None:
    """Without permission to list it retries with backoff, reports why, and recovers."""
    api = FakeApi()
    api.refuse = [status.forbidden("no") for _ in range(1_000)]
    async with informer_of(api) as (informer, clock):
        await clock.advance(600)
        assert isinstance(informer.last_error, status.Forbidden)
        assert not is_synced(informer)
        assert 20 < len(api.sent) < 60
        api.refuse.clear()
        await clock.advance(60)
        assert is_synced(informer)
        assert informer.last_error is None


async def test_old_failures_are_forgiven() -> None:
    """After a long watch a failure counts as the first one, and the next list is soon."""
    api = FakeApi()
    api.refuse = [status.internal("?") for _ in range(8)]
    async with informer_of(api) as (informer, clock):
        await clock.advance(400)
        assert is_synced(informer)
        api.cut()
        api.put(f"{PATH}/a", {})
        api.compact()
        await clock.advance(2)
        assert key("a") in informer


async def test_it_is_bounded() -> None:
    """More objects than allowed end it, in the list or by a later event."""
    api = FakeApi()
    for name in "ab":
        api.put(f"{PATH}/{name}", {})
    client, clock = new_client(api)
    with pytest.raises(CacheFull, match="more than 1 objects"):
        await Informer(client, CONFIG_MAPS, objects_max=1).run()
    informer = Informer(client, CONFIG_MAPS, objects_max=2)
    tasks = Tasks("test")
    tasks.spawn("informer", informer.run())
    await informer.wait_synced()
    api.put(f"{PATH}/c", {})
    await clock.settle()
    with pytest.raises(BaseExceptionGroup) as caught:
        await tasks.close()
    assert isinstance(caught.value.exceptions[0], CacheFull)


STEPS = st.lists(
    st.sampled_from(["put", "remove", "cut", "compact", "refuse", "lose", "wait"]), max_size=40
)


@given(steps=STEPS, names=st.lists(st.sampled_from("abc"), min_size=40, max_size=40))
async def test_it_converges(steps: list[str], names: list[str]) -> None:
    """Whatever happened, the cache finally equals the server, and a copy built from changes equals
    the cache."""
    api = FakeApi()
    async with informer_of(api) as (informer, clock):
        twin: dict[ObjectKey, object] = {}

        def follow(change: ObjectChange) -> None:
            assert twin.get(change.key) == change.old
            if change.new is None:
                del twin[change.key]
            else:
                twin[change.key] = change.new

        informer.on_change(follow)
        for step, name in zip(steps, names, strict=False):
            path = f"{PATH}/{name}"
            match step:
                case "put":
                    api.put(path, {})
                case "remove" if path in api.objects:
                    api.remove(path)
                case "cut":
                    api.cut()
                case "compact":
                    api.compact()
                case "refuse":
                    api.refuse.append(status.internal("?"))
                    api.cut()
                case "lose":
                    api.refuse.append(ConnectionResetError())
                    api.cut()
                case _:
                    await clock.advance(1)
        await clock.advance(300)
        assert contents(informer) == truth(api)
        keys = informer.keys()
        assert twin == {each: informer.get(each) for each in keys}
