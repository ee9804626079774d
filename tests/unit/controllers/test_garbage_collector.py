"""The garbage collector: background, foreground and orphan deletion, and what it must not
delete."""

import asyncio
from typing import Any

import orjson
import pytest

from restow.aio import SimulatedClock
from restow.apimachinery.status import InternalError
from restow.controllers.garbage_collector import GarbageCollector
from restow.registry.store import DeleteOptions
from restow.storage.interface import Put, Transaction
from restow.storage.memory import MemoryStorage
from tests.unit.controllers.world import (
    InterruptedStorage,
    Observed,
    World,
    open_world,
)

Object = dict[str, Any]
FOREGROUND = DeleteOptions(policy="Foreground")
ORPHAN = DeleteOptions(policy="Orphan")


def owned_by(*owners: Object, block: bool = False, **changes: Any) -> Object:
    """Return metadata with references to these owners."""
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **({"blockOwnerDeletion": True} if block else {}),
            **changes,
        }
        for owner in owners
    ]
    return {"metadata": {"ownerReferences": references}}


class Collected:
    """A world with a garbage collector that the test runs step by step."""

    def __init__(self, world: World, collector: GarbageCollector, observed: Observed) -> None:
        self.world = world
        self.collector = collector
        self.observed = observed

    @classmethod
    async def begin(cls, world: World) -> "Collected":
        collector = GarbageCollector(world.store, world.catalog, world.runtime)
        return cls(world, collector, await world.observe(collector))

    async def settle(self) -> None:
        await self.observed.settle(self.collector.queue, self.collector.reconcile)

    async def names(self, kind: str = "ConfigMap") -> list[str]:
        await self.settle()
        return (await self.world.store.read(self.world.kind(kind))).select().keys


async def test_dependents_follow_their_owner() -> None:
    """Children and grandchildren of a deleted object are deleted, others stay."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        child = await world.create("ConfigMap", "child", "n", **owned_by(owner))
        await world.create("Secret", "grandchild", "n", **owned_by(child))
        await world.create("ConfigMap", "other", "n")
        assert await it.names() == ["n/child", "n/other", "n/owner"]
        await world.delete("ConfigMap", "n/owner")
        assert await it.names() == ["n/other"]
        assert await it.names("Secret") == []
        assert len(it.collector.graph) == 0


async def test_an_object_with_an_existing_owner_stays_and_loses_the_missing_one() -> None:
    """An object is deleted when none of its owners exists; references to missing ones are
    removed."""
    async with open_world() as world:
        it = await Collected.begin(world)
        one = await world.create("ConfigMap", "one", "n")
        two = await world.create("ConfigMap", "two", "n")
        await world.create("Secret", "child", "n", **owned_by(one, two))
        await world.delete("ConfigMap", "n/one")
        await it.settle()
        child = await world.get("Secret", "n/child")
        assert child is not None
        assert [each["name"] for each in child["metadata"]["ownerReferences"]] == ["two"]
        await world.delete("ConfigMap", "n/two")
        assert await it.names("Secret") == []


async def test_a_dependent_that_cannot_be_opened_keeps_its_tie() -> None:
    """An orphaned owner stays until all dependents can be decrypted and updated."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        await world.create("Secret", "child", "n", **owned_by(owner))
        await it.settle()
        key = world.kind("Secret").key_of("n/child")
        plain = await world.storage.get(key)
        assert plain is not None
        sealed = Put(key, b"k8s:enc:aesgcm:v1:gone:it is not for us to read")
        await world.storage.commit(Transaction(writes=(sealed,)))
        await world.delete("ConfigMap", "n/owner", requested=ORPHAN)
        with pytest.raises(InternalError):
            await it.settle()
        assert await world.has("ConfigMap", "n/owner")

        await world.storage.commit(Transaction(writes=(Put(key, plain.value),)))
        it.collector.queue.add(world.kind("ConfigMap").key_of("n/owner"))
        assert await it.names() == []
        child = await world.get("Secret", "n/child")
        assert child is not None
        assert "ownerReferences" not in child["metadata"]


async def test_dependents_orphaned_before_the_start_are_found() -> None:
    """A new collector finds all dependents whose owner was deleted before it started."""
    async with open_world() as world:
        owner = await world.create("ConfigMap", "owner", "n")
        for number in range(30):
            await world.create("Secret", f"s{number}", "n", **owned_by(owner))
        await world.delete("ConfigMap", "n/owner")
        it = await Collected.begin(world)
        assert await it.names("Secret") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "Widget"},
        {"apiVersion": "example.com/v1"},
        {"apiVersion": "v9"},
        {"apiVersion": "a/b/c"},
        {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"},
    ],
)
async def test_unknown_owners_are_left_alone(changes: Object) -> None:
    """Nothing is concluded about an owner of a kind that is not hosted here."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        child = {**owned_by(owner, **changes)["metadata"], "name": "child"}
        key = world.kind("Secret").key_of("n/child")
        body = b'{"kind":"Secret","apiVersion":"v1","metadata":%b}\n'
        value = body % orjson.dumps({**child, "uid": "x", "namespace": "n"})
        await world.storage.commit(Transaction((), (Put(key, value),)))
        await world.delete("ConfigMap", "n/owner")
        assert await it.names("Secret") == ["n/child"]


async def test_an_owner_in_another_namespace_counts_as_gone() -> None:
    """A reference cannot cross namespaces, as in Kubernetes."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "elsewhere")
        await world.create("Secret", "child", "n", **owned_by(owner))
        assert await it.names("Secret") == []


async def test_an_owner_outside_namespaces_is_found() -> None:
    """A cluster-scoped owner is read without a namespace; its dependents are deleted with it."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ClusterRole", "owner", group="rbac.authorization.k8s.io")
        await world.create("Secret", "child", "n", **owned_by(owner))
        assert await it.names("Secret") == ["n/child"]
        await world.delete("ClusterRole", "owner", group="rbac.authorization.k8s.io")
        assert await it.names("Secret") == []


async def test_a_namespaced_owner_of_a_cluster_object_is_left_alone() -> None:
    """Such a reference is never valid, so it never deletes anything."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        await world.create(
            "ClusterRole", "child", group="rbac.authorization.k8s.io", **owned_by(owner)
        )
        await world.delete("ConfigMap", "n/owner")
        await it.settle()
        assert await world.has("ClusterRole", "child", group="rbac.authorization.k8s.io")


async def test_another_object_of_the_same_name_is_not_the_owner() -> None:
    """An owner is identified by its UID: a new object of the same name does not count."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        await world.create("Secret", "child", "n", **owned_by(owner))
        await world.delete("ConfigMap", "n/owner")
        await world.create("ConfigMap", "owner", "n")
        assert await it.names("Secret") == []
        assert await it.names() == ["n/owner"]


async def test_foreground_waits_for_blocking_dependents() -> None:
    """The owner stays, marked, until the last blocking dependent is removed."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        held = owned_by(owner, block=True)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await world.create("Secret", "held", "n", **held)
        await world.create("Secret", "free", "n", **owned_by(owner, block=True))
        loose = owned_by(owner)
        loose["metadata"]["finalizers"] = ["example.com/hold"]
        await world.create("Secret", "loose", "n", **loose)
        await world.delete("ConfigMap", "n/owner", requested=FOREGROUND)
        assert await it.names("Secret") == ["n/held", "n/loose"]
        assert await it.names() == ["n/owner"]
        await world.edit("Secret", "n/held", lambda obj: obj["metadata"].pop("finalizers"))
        assert await it.names() == [], "dependents that do not block are not waited for"
        assert await it.names("Secret") == ["n/loose"]


async def test_foreground_goes_down_the_generations() -> None:
    """Grandchildren are removed before children, and children before the owner."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        child = await world.create("ConfigMap", "child", "n", **owned_by(owner, block=True))
        held = owned_by(child, block=True)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await world.create("ConfigMap", "grandchild", "n", **held)
        await world.delete("ConfigMap", "n/owner", requested=FOREGROUND)
        assert await it.names() == ["n/child", "n/grandchild", "n/owner"]
        await world.edit("ConfigMap", "n/grandchild", lambda obj: obj["metadata"].pop("finalizers"))
        assert await it.names() == []


async def test_a_circle_of_blocking_owners_can_be_deleted() -> None:
    """Objects that own each other do not wait for each other forever."""
    async with open_world() as world:
        it = await Collected.begin(world)
        one = await world.create("ConfigMap", "one", "n")
        two = await world.create("ConfigMap", "two", "n", **owned_by(one, block=True))
        three = await world.create("ConfigMap", "three", "n", **owned_by(two, block=True))
        metadata = owned_by(three, block=True)["metadata"]
        await world.edit("ConfigMap", "n/one", lambda obj: obj["metadata"].update(metadata))
        await it.settle()
        await world.delete("ConfigMap", "n/one", requested=FOREGROUND)
        assert await it.names() == []


async def test_an_object_that_owns_itself_can_be_deleted() -> None:
    """An object does not wait for itself."""
    async with open_world() as world:
        it = await Collected.begin(world)
        one = await world.create("ConfigMap", "one", "n")
        metadata = owned_by(one, block=True)["metadata"]
        await world.edit("ConfigMap", "n/one", lambda obj: obj["metadata"].update(metadata))
        await it.settle()
        await world.delete("ConfigMap", "n/one", requested=FOREGROUND)
        assert await it.names() == []


async def test_foreground_without_dependents_ends_at_once() -> None:
    """An owner without dependents only loses its finalizer, also after a restart."""
    async with open_world() as world:
        await world.create("ConfigMap", "early", "n")
        await world.delete("ConfigMap", "n/early", requested=FOREGROUND)
        it = await Collected.begin(world)
        await world.create("ConfigMap", "late", "n")
        await world.delete("ConfigMap", "n/late", requested=FOREGROUND)
        assert await it.names() == []


async def test_orphans_lose_their_owner_and_stay() -> None:
    """With the orphan policy all dependents lose their reference before the owner is removed."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        other = await world.create("ConfigMap", "other", "n")
        for number in range(30):
            await world.create("Secret", f"s{number:02}", "n", **owned_by(owner))
        await world.create("Secret", "shared", "n", **owned_by(owner, other))
        await world.delete("ConfigMap", "n/owner", requested=ORPHAN)
        assert await it.names() == ["n/other"]
        assert len(await it.names("Secret")) == 31
        freed = await world.get("Secret", "n/s07")
        assert freed is not None
        assert "ownerReferences" not in freed["metadata"]
        shared = await world.get("Secret", "n/shared")
        assert shared is not None
        assert len(shared["metadata"]["ownerReferences"]) == 1


async def test_a_dependent_that_is_created_after_its_owner_is_gone_goes_too() -> None:
    """A new dependent of a missing owner is deleted as soon as it is observed."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        await world.delete("ConfigMap", "n/owner")
        await it.settle()
        await world.create("Secret", "late", "n", **owned_by(owner))
        assert await it.names("Secret") == []


async def test_nothing_is_decided_while_the_graph_is_behind() -> None:
    """An owner in foreground deletion keeps its finalizer until the graph is up to date."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        held = owned_by(owner, block=True)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await world.create("Secret", "held", "n", **held)
        await world.delete("ConfigMap", "n/owner", requested=FOREGROUND)
        key = world.kind("ConfigMap").key_of("n/owner")
        assert await it.collector.reconcile(key) is not None
        assert await world.has("ConfigMap", "n/owner")
        assert await it.names() == ["n/owner"]


async def test_nothing_is_decided_before_the_first_look() -> None:
    """Without a graph, even an object without existing owners is not deleted."""
    async with open_world() as world:
        owner = await world.create("ConfigMap", "owner", "n")
        await world.create("Secret", "child", "n", **owned_by(owner))
        await world.delete("ConfigMap", "n/owner")
        collector = GarbageCollector(world.store, world.catalog, world.runtime)
        assert await collector.reconcile(world.kind("Secret").key_of("n/child")) is not None
        assert await world.has("Secret", "n/child")


async def test_two_collectors_at_once_do_no_harm() -> None:
    """Two concurrent collectors have the same result as one, without an error."""
    clock, storage = SimulatedClock(), MemoryStorage()
    async with open_world(storage, clock) as one, open_world(storage, clock, seed=2) as two:
        first, second = await Collected.begin(one), await Collected.begin(two)
        owner = await one.create("ConfigMap", "owner", "n")
        kept = await one.create("ConfigMap", "kept", "n")
        for number in range(20):
            await one.create("Secret", f"s{number}", "n", **owned_by(owner))
        await one.create("Secret", "shared", "n", **owned_by(owner, kept))
        await one.delete("ConfigMap", "n/owner")
        await asyncio.gather(first.settle(), second.settle())
        assert await first.names("Secret") == ["n/shared"]
        await second.settle()
        assert await first.names() == ["n/kept"]


async def test_text_that_looks_like_owners_is_no_owner() -> None:
    """The same text inside a value, or in a template, is not an owner reference."""
    async with open_world() as world:
        it = await Collected.begin(world)
        await world.create("ConfigMap", "c", "n", data={"a": '{"ownerReferences": [{"uid":"x"}]}'})
        await world.create("Secret", "s", "n", stringData={"ownerReferences": "x"})
        await it.settle()
        assert len(it.collector.graph) == 0
        assert await it.names() == ["n/c"]


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_delayed_delete_spares_changed_objects(is_new: bool) -> None:
    """An object that was recreated, or lost its owner, at the last moment is not deleted."""
    storage = InterruptedStorage()
    async with open_world(storage) as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        await world.create("Secret", "child", "n", **owned_by(owner))

        async def interfere() -> None:
            if is_new:
                await world.delete("Secret", "n/child")
                await world.create("Secret", "child", "n")
            else:
                await world.edit(
                    "Secret", "n/child", lambda obj: obj["metadata"].pop("ownerReferences")
                )

        storage.interruptions[world.kind("Secret").key_of("n/child")] = interfere
        await world.delete("ConfigMap", "n/owner")
        assert await it.names("Secret") == ["n/child"]
        assert not storage.interruptions, "the delete was attempted"


async def test_missed_changes_are_made_up_for() -> None:
    """A full read after missed changes finds what the first graph does not contain."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        for number in range(5):
            await world.create("Secret", f"s{number}", "n", **owned_by(owner))
        await it.settle()
        await it.observed.close()
        await world.delete("ConfigMap", "n/owner")
        await world.create("Secret", "late", "n", **owned_by(owner))
        it.observed = await world.observe(it.collector)
        assert await it.names("Secret") == []


async def test_server_owned_objects_are_not_collected() -> None:
    """A StorageVersion with entries stays without its owner, without waits or retries."""
    async with open_world() as world:
        collected = await Collected.begin(world)
        owner = await world.create("Node", "n")
        reports = world.kind("StorageVersion", "internal.apiserver.k8s.io")
        metadata = {"name": "core.pods", "uid": "u", **owned_by(owner)["metadata"]}
        status = {"storageVersions": [{"apiServerID": "a", "encodingVersion": "v1"}]}
        report = {
            "kind": "StorageVersion",
            "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
            "metadata": metadata,
            "spec": {},
            "status": status,
        }
        key = reports.key_of("core.pods")
        await world.storage.commit(Transaction(writes=(Put(key, orjson.dumps(report)),)))
        await world.delete("Node", "n")
        await collected.settle()
        assert await world.has("StorageVersion", "core.pods", group=reports.group)
        assert len(collected.collector.queue) == 0


async def test_events_have_no_owners() -> None:
    """An event stays when its owner is deleted, also after a full read, and blocks no owner."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        about = {"kind": "ConfigMap", "name": "owner", "namespace": "n"}
        await world.create("Event", "e", "n", involvedObject=about, **owned_by(owner, block=True))
        await world.delete("ConfigMap", "n/owner", requested=FOREGROUND)
        assert await it.names() == []
        await it.observed.close()
        it.observed = await world.observe(it.collector)
        assert await it.names("Event") == ["n/e"]


async def test_a_pod_has_its_time_to_end() -> None:
    """A pod on a node is marked with its own grace period, and its owner waits for it."""
    async with open_world() as world:
        it = await Collected.begin(world)
        owner = await world.create("ConfigMap", "owner", "n")
        spec = {
            "nodeName": "a",
            "terminationGracePeriodSeconds": 7,
            "containers": [{"name": "c", "image": "i"}],
        }
        await world.create("Pod", "p", "n", spec=spec, **owned_by(owner, block=True))
        await world.delete("ConfigMap", "n/owner", requested=FOREGROUND)
        assert await it.names() == ["n/owner"]
        pod = await world.get("Pod", "n/p")
        assert pod is not None
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 7
        await world.delete("Pod", "n/p")  # as the kubelet does
        assert await it.names() == []


async def test_foreground_deletion_waits_for_deep_finalizers() -> None:
    """In a tree with two paths to the same leaf, all wait for its finalizer and are removed with
    it."""
    async with open_world() as world:
        it = await Collected.begin(world)
        top = await world.create("ConfigMap", "top", "n")
        left = await world.create("ConfigMap", "left", "n", **owned_by(top, block=True))
        right = await world.create("ConfigMap", "right", "n", **owned_by(top, block=True))
        middle = await world.create("ConfigMap", "middle", "n", **owned_by(left, right, block=True))
        held = owned_by(middle, block=True)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await world.create("Secret", "leaf", "n", **held)
        await world.delete("ConfigMap", "n/top", requested=FOREGROUND)
        assert await it.names() == ["n/left", "n/middle", "n/right", "n/top"]
        for path in await it.names():
            found = await world.get("ConfigMap", path)
            assert found is not None
            assert found["metadata"]["finalizers"] == ["foregroundDeletion"]
        await world.edit("Secret", "n/leaf", lambda obj: obj["metadata"].pop("finalizers"))
        assert await it.names() == []
