"""Namespaces and garbage collection with kinds that are added and removed at run time."""

from typing import Any

import orjson
import pytest

from restow.apimachinery.names import GroupKind
from restow.controllers import garbage_collector
from restow.controllers.deferred_keys import DeferredKeys, MissingKind
from restow.controllers.garbage_collector import GarbageCollector
from restow.controllers.namespaces import BUSY_SECONDS, NamespaceController
from restow.controllers.object_keys import (
    ObjectLocations,
    read_api_version,
    read_kind,
    stored_version,
    working_version,
)
from restow.registry.store import DeleteOptions
from tests.unit.controllers.custom import (
    GROUP,
    accept,
    define,
    delete,
    host,
    make,
    release,
    undefine,
    widgets,
)
from tests.unit.controllers.test_garbage_collector import Collected, owned_by
from tests.unit.controllers.test_namespaces import condition
from tests.unit.controllers.world import Observed, World, open_world

HELD: dict[str, Any] = {"finalizers": ["example.com/hold"]}


async def begin(world: World) -> tuple[NamespaceController, Observed]:
    controller = NamespaceController(world.store, world.catalog, world.runtime)
    world.catalog.changed.subscribe(controller.hosting_changed)
    return controller, await world.observe(controller)


async def collect(world: World) -> Collected:
    it = await Collected.begin(world)
    world.catalog.changed.subscribe(it.collector.hosting_changed)
    return it


async def has_widget(world: World, path: str) -> bool:
    return await world.storage.get(_key(path)) is not None


def _key(path: str) -> Any:
    return f"/registry/{GROUP}/widgets/{path}"


async def test_places_follow_the_hosted_kinds() -> None:
    """A key has a location while its kind is hosted, with the newest resource."""
    async with open_world() as world:
        places = ObjectLocations(world.catalog)
        assert places.find(_key("n/w")) is None
        name = await widgets(world)
        place = places.find(_key("n/w"))
        assert place is not None
        assert (place.namespace, place.path, place.key) == ("n", "n/w", _key("n/w"))
        assert place.resource is world.kind("Widget", GROUP)
        await host(world, name)
        again = places.find(_key("n/w"))
        assert again is not None
        assert again.resource is world.kind("Widget", GROUP)
        world.catalog.drop(GROUP, "widgets")
        assert places.find(_key("n/w")) is None
        built_in = places.find("/registry/configmaps/n/c")
        assert built_in is not None
        assert built_in.resource is world.kind("ConfigMap")


async def test_kind_of_stored_bytes() -> None:
    """Group, kind and version are decoded without the rest; nothing from other values."""
    assert read_kind(b'{"kind":"W","apiVersion":"g.x/v1"}') == GroupKind("g.x", "W")
    assert read_kind(b'{"kind":"W","apiVersion":"a/b/c"}') is None
    assert read_kind(b"no") is None
    assert read_api_version(b'{"kind":"W","apiVersion":"g.x/v1"}') == "g.x/v1"
    assert read_api_version(b"[]") == ""
    async with open_world() as world:
        await widgets(world)
        resource = world.kind("Widget", GROUP)
        assert stored_version(resource, f"{GROUP}/v1") == "v1"
        assert stored_version(resource, "") == working_version(resource)
        events = world.kind("Event")
        assert stored_version(events, "events.k8s.io/v1beta1") == working_version(events)


async def test_a_namespace_takes_custom_objects_along() -> None:
    """Also those of a CRD that was created after the start; finalizers are waited for."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await widgets(world)
        await world.create("Namespace", "n")
        await make(world, "free")
        await make(world, "held", **HELD)
        await make(world, "elsewhere", "m")
        await world.delete("Namespace", "n")
        await observed.settle(controller.queue, controller.reconcile)
        assert not await has_widget(world, "n/free")
        found = await world.get("Namespace", "n")
        assert found is not None
        assert (
            "widgets.example.com has 1" in condition(found, "NamespaceContentRemaining")["message"]
        )
        await release(world, "n/held")
        await observed.settle(controller.queue, controller.reconcile)
        assert not await world.has("Namespace", "n")
        assert await has_widget(world, "m/elsewhere")


async def test_a_namespace_waits_for_kinds_that_are_not_hosted_yet() -> None:
    """It must not be removed before objects of a kind that is not hosted; it continues later."""
    async with open_world() as world:
        controller, observed = await begin(world)
        name = await widgets(world)
        await world.create("Namespace", "n")
        await make(world, "w")
        world.catalog.drop(GROUP, "widgets")
        await world.delete("Namespace", "n")
        await observed.settle(controller.queue, controller.reconcile)
        found = await world.get("Namespace", "n")
        assert found is not None
        failure = condition(found, "NamespaceDeletionDiscoveryFailure")
        assert failure["status"] == "True"
        assert "example.com/widgets" in failure["message"]
        await host(world, name)
        await world.clock.advance(BUSY_SECONDS)
        await observed.settle(controller.queue, controller.reconcile)
        assert not await has_widget(world, "n/w")
        assert not await world.has("Namespace", "n")


async def test_dependents_of_custom_owners_follow_them() -> None:
    """Owner references work from and to custom kinds, including ones defined later."""
    async with open_world() as world:
        it = await collect(world)
        await widgets(world)
        owner = await make(world, "owner")
        child = await world.create("ConfigMap", "child", "n", **owned_by(owner))
        await make(world, "grandchild", **owned_by(child)["metadata"])
        await make(world, "other")
        await it.settle()
        await delete(world, "n/owner")
        assert await it.names() == []
        assert not await has_widget(world, "n/grandchild")
        assert await has_widget(world, "n/other")


async def test_foreground_waits_for_custom_dependents() -> None:
    """A blocking custom dependent delays its owner until it is removed."""
    async with open_world() as world:
        it = await collect(world)
        await widgets(world)
        owner = await world.create("ConfigMap", "owner", "n")
        await make(world, "w", **owned_by(owner, block=True)["metadata"], **HELD)
        await world.delete("ConfigMap", "n/owner", requested=DeleteOptions(policy="Foreground"))
        assert await it.names() == ["n/owner"]
        await release(world, "n/w")
        assert await it.names() == []


async def test_an_owner_of_a_kind_not_hosted_yet_is_not_taken_for_gone() -> None:
    """Its dependents stay until the kind is hosted, and are deleted then if the owner is gone."""
    async with open_world() as world:
        name = await widgets(world)
        gone, alive = await make(world, "gone"), await make(world, "alive")
        await world.create("ConfigMap", "of-gone", "n", **owned_by(gone))
        await world.create("ConfigMap", "of-alive", "n", **owned_by(alive))
        await world.create("ConfigMap", "of-both", "n", **owned_by(gone, alive))
        await delete(world, "n/gone")
        world.catalog.drop(GROUP, "widgets")
        it = await collect(world)
        everyone = ["n/of-alive", "n/of-both", "n/of-gone"]
        assert await it.names() == everyone
        other = await widgets_of_another_group(world)
        assert await it.names() == everyone, other
        await host(world, name)
        assert await it.names() == ["n/of-alive", "n/of-both"]
        found = await world.get("ConfigMap", "n/of-both")
        assert found is not None
        assert [each["name"] for each in found["metadata"]["ownerReferences"]] == ["alive"]


async def widgets_of_another_group(world: World) -> str:
    name = await define(world, "widgets", "Widget", group="example.org")
    await accept(world, name)
    await host(world, name)
    return name


async def test_dependents_of_an_instance_go_even_when_its_kind_was_faster() -> None:
    """An owner whose removal was observed is gone, whether or not its kind is still hosted."""
    async with open_world() as world:
        it = await collect(world)
        await widgets(world)
        owner = await make(world, "owner")
        await world.create("ConfigMap", "child", "n", **owned_by(owner))
        unrelated = owned_by(owner, kind="Gadget")
        await world.create("ConfigMap", "stranger", "n", **unrelated)
        assert await it.names() == ["n/child", "n/stranger"]
        await delete(world, "n/owner")
        world.catalog.drop(GROUP, "widgets")
        assert await it.names() == ["n/stranger"]


async def test_an_orphaned_dependent_of_a_kind_not_hosted_yet_is_not_lost() -> None:
    """The owner waits until all dependents can lose their reference, so that none is deleted."""
    async with open_world() as world:
        it = await collect(world)
        name = await widgets(world)
        owner = await world.create("ConfigMap", "owner", "n")
        await make(world, "w", **owned_by(owner)["metadata"])
        world.catalog.drop(GROUP, "widgets")
        await world.delete("ConfigMap", "n/owner", requested=DeleteOptions(policy="Orphan"))
        assert await it.names() == ["n/owner"]
        await host(world, name)
        assert await it.names() == []
        item = await world.storage.get(_key("n/w"))
        assert item is not None
        assert "ownerReferences" not in orjson.loads(item.value)["metadata"]


async def test_an_owner_of_a_kind_not_hosted_yet_gets_its_work_done_later() -> None:
    """A custom owner that waits for its dependents is deferred while its kind is not hosted."""
    async with open_world() as world:
        name = await widgets(world)
        owner = await make(world, "owner")
        await world.create("ConfigMap", "child", "n", **owned_by(owner, block=True))
        await delete(world, "n/owner", policy="Foreground")
        world.catalog.drop(GROUP, "widgets")
        it = await collect(world)
        assert await it.names() == ["n/child"]
        await host(world, name)
        assert await it.names() == []
        assert not await has_widget(world, "n/owner")


async def test_instances_of_a_removed_kind_block_no_owner() -> None:
    """When a CRD is removed, remaining instances do not block their owners."""
    async with open_world() as world:
        it = await collect(world)
        name = await widgets(world)
        owner = await world.create("ConfigMap", "owner", "n")
        await make(world, "w", **owned_by(owner, block=True)["metadata"], **HELD)
        await world.delete("ConfigMap", "n/owner", requested=DeleteOptions(policy="Foreground"))
        assert await it.names() == ["n/owner"]
        world.catalog.drop(GROUP, "widgets")

        def remove_finalizers(obj: dict[str, Any]) -> None:
            obj["metadata"]["finalizers"] = []

        await undefine(world, name)
        await world.edit(
            "CustomResourceDefinition", name, remove_finalizers, group="apiextensions.k8s.io"
        )
        assert await it.names() == []
        assert len(it.collector.graph) == 0


def test_deferred_keys_are_returned_when_their_kind_is_hosted() -> None:
    """Each key waits for its resource or kind, and their number is bounded."""
    deferred = DeferredKeys(keys_max=3)
    deferred.defer("a", MissingKind(segment="g.x/widgets"))
    deferred.defer("a", MissingKind(segment="g.x/widgets"))
    deferred.defer("b", MissingKind(api_version="g.x/v1", kind="Widget"))
    deferred.defer("c", MissingKind(api_version="v1", kind="Widget"))
    deferred.defer("d", MissingKind(segment="widgets"))
    assert len(deferred) == 3
    assert deferred.take("other", lambda _: True) == set()
    assert deferred.take("g.x", lambda lacking: lacking.kind == "Widget") == {"b"}
    assert deferred.take("g.x", lambda _: True) == {"a"}
    assert deferred.take("", lambda _: True) == {"c"}
    assert len(deferred) == 0


async def test_the_owners_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of the remembered owners are dropped first."""
    monkeypatch.setattr(garbage_collector, "SPREAD_MAX", 2)
    async with open_world() as world:
        collector = GarbageCollector(world.store, world.catalog, world.runtime)
        kind = GroupKind(GROUP, "Widget")
        for uid in ("a", "b", "c"):
            collector._spread_from([uid], kind=kind)
        assert [collector._was_removed(uid, kind) for uid in "abc"] == [False, True, True]
