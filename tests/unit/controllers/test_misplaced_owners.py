"""Owner references to another namespace: events about them, and limits."""

from typing import Any

import pytest

from restow.controllers import misplaced_owners
from tests.unit.controllers.test_garbage_collector import Collected, owned_by
from tests.unit.controllers.world import World, open_world

Object = dict[str, Any]
SCHEDULING = "scheduling.k8s.io"


async def events(world: World, namespace: str) -> list[Object]:
    keys = (await world.store.read(world.kind("Event"))).select(f"{namespace}/").keys
    found = [await world.get("Event", key) for key in keys]
    return [each for each in found if each is not None]


async def test_an_owner_in_another_namespace_is_told_of() -> None:
    """The dependent is deleted, and an event with Kubernetes' message explains why."""
    async with open_world() as world:
        it = await Collected.begin(world)
        for namespace in ("here", "there"):
            await world.create("Namespace", namespace)
        owner = await world.create("ConfigMap", "owner", "there")
        child = await world.create("Secret", "child", "here", **owned_by(owner))
        assert await it.names("Secret") == []
        [event] = await events(world, "here")
        assert (event["type"], event["reason"]) == ("Warning", "OwnerRefInvalidNamespace")
        assert event["source"] == {"component": "garbage-collector-controller"}
        about = {"kind": "Secret", "apiVersion": "v1", "namespace": "here", "name": "child"}
        assert event["involvedObject"] == {**about, "uid": child["metadata"]["uid"]}
        assert event["message"] == (
            "ownerRef [v1/ConfigMap, namespace: here, name: owner, uid: "
            f'{owner["metadata"]["uid"]}] does not exist in namespace "here"'
        )


async def test_an_object_outside_all_namespaces_stays() -> None:
    """A cluster-scoped object with a namespaced owner is kept; the event is in `default`."""
    async with open_world() as world:
        it = await Collected.begin(world)
        await world.create("Namespace", "there")
        owner = await world.create("ConfigMap", "owner", "there")
        fields = {"value": 1, **owned_by(owner)}
        await world.create("PriorityClass", "urgent", group=SCHEDULING, **fields)
        await it.settle()
        assert await world.has("PriorityClass", "urgent", group=SCHEDULING)
        [event] = await events(world, "default")
        assert event["involvedObject"]["name"] == "urgent"
        assert event["message"].endswith('does not exist in namespace ""')


async def test_nothing_is_said_of_owners_that_are_gone() -> None:
    """An owner that does not exist in any namespace is not reported."""
    async with open_world() as world:
        it = await Collected.begin(world)
        for namespace in ("here", "there"):
            await world.create("Namespace", namespace)
        owner = await world.create("ConfigMap", "owner", "here")
        await world.create("ConfigMap", "owner", "there")
        await world.create("Secret", "child", "here", **owned_by(owner))
        await it.settle()
        await world.delete("ConfigMap", "here/owner")
        await world.create("Secret", "late", "here", **owned_by(owner))
        assert await it.names("Secret") == []
        assert await events(world, "here") == []


async def test_searches_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of many misplaced dependents are deleted, but not all of them are reported."""
    monkeypatch.setattr(misplaced_owners, "SEARCHES_MAX", 3)
    async with open_world() as world:
        it = await Collected.begin(world)
        for namespace in ("here", "there"):
            await world.create("Namespace", namespace)
        owner = await world.create("ConfigMap", "owner", "there")
        for number in range(8):
            await world.create("Secret", f"s{number}", "here", **owned_by(owner))
        assert await it.names("Secret") == []
        assert len(await events(world, "here")) == 3
        await world.clock.advance(misplaced_owners.WINDOW_SECONDS)
        await world.create("Secret", "later", "here", **owned_by(owner))
        assert await it.names("Secret") == []
        assert len(await events(world, "here")) == 4
