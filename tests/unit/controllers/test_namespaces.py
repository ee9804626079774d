"""Initial namespaces are created, and a deleted one is removed with its contents."""

import asyncio
from contextlib import suppress
from typing import Any

import orjson
import pytest

from restow.aio import SimulatedClock
from restow.apimachinery.status import Conflict
from restow.apis.names import IDENTITY_LABEL, IDENTITY_LABEL_VALUE, LEASE_NAMESPACE
from restow.controllers import namespaces
from restow.controllers.namespace_conditions import Leftovers, conditions_of
from restow.controllers.namespaces import (
    FIRST_NAMESPACES,
    NamespaceController,
    ensure_namespaces,
)
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.interface import Delete, Key, Put, RangePage, Revision, Span, Transaction
from restow.storage.memory import MemoryStorage
from tests.unit.controllers.world import (
    InterruptedStorage,
    Observed,
    World,
    open_world,
)

HELD: dict[str, Any] = {"finalizers": ["example.com/hold"]}
SLICE: dict[str, Any] = {"addressType": "IPv4", "endpoints": []}


async def begin(world: World) -> tuple[NamespaceController, Observed]:
    controller = NamespaceController(world.store, world.catalog, world.runtime)
    return controller, await world.observe(controller)


async def settle(controller: NamespaceController, observed: Observed) -> None:
    await observed.settle(controller.queue, controller.reconcile)


def condition(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any]
    [found] = [each for each in obj["status"]["conditions"] if each["type"] == kind]
    return found


async def test_several_servers_make_the_first_namespaces() -> None:
    """Servers that start concurrently create the same four namespaces, without an error."""
    clock, storage = SimulatedClock(), MemoryStorage()
    async with (
        open_world(storage, clock) as one,
        open_world(storage, clock, seed=2) as two,
    ):
        await asyncio.gather(
            *(ensure_namespaces(each.store, each.catalog) for each in (one, two, one))
        )
        for name in FIRST_NAMESPACES:
            found = await one.get("Namespace", name)
            assert found is not None
            assert found["spec"]["finalizers"] == ["kubernetes"]
            assert found["status"] == {"phase": "Active"}
        revision = await storage.revision()
        await ensure_namespaces(one.store, one.catalog)
        assert await storage.revision() == revision


async def test_a_deleted_namespace_is_emptied_and_goes() -> None:
    """Objects of all kinds in it are deleted, others stay, and then it is removed."""
    async with open_world() as world:
        controller, observed = await begin(world)
        for namespace in ("gone", "gone-too"):
            await world.create("Namespace", namespace)
            for number in range(40):
                await world.create("ConfigMap", f"c{number}", namespace)
            await world.create("Secret", "s", namespace)
            await world.create("EndpointSlice", "e", namespace, group="discovery.k8s.io", **SLICE)
        await world.delete("Namespace", "gone")
        await settle(controller, observed)
        assert not await world.has("Namespace", "gone")
        assert not await world.has("Secret", "gone/s")
        assert not await world.has("EndpointSlice", "gone/e", group="discovery.k8s.io")
        assert (await world.store.read(world.kind("ConfigMap"))).count("gone/") == 0
        assert await world.has("Namespace", "gone-too")
        assert (await world.store.read(world.kind("ConfigMap"))).count("gone-too/") == 40
        unused = world.kind("Deployment", "apps")
        assert world.caches.ready(unused.root) is None, "no cache is loaded for an unused kind"


async def test_a_namespace_waits_for_finalizers_and_says_so() -> None:
    """An object with a finalizer is marked and reported; its removal ends the wait."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        await world.create("ConfigMap", "held", "n", metadata=HELD)
        await world.create("ConfigMap", "free", "n")
        await world.delete("Namespace", "n")
        await settle(controller, observed)
        found = await world.get("Namespace", "n")
        assert found is not None
        assert found["status"]["phase"] == "Terminating"
        remaining = condition(found, "NamespaceContentRemaining")
        assert (remaining["status"], remaining["reason"]) == ("True", "SomeResourcesRemain")
        assert "configmaps. has 1 resource instances" in remaining["message"]
        finalizers = condition(found, "NamespaceFinalizersRemaining")
        assert "example.com/hold in 1 resource instances" in finalizers["message"]
        assert condition(found, "NamespaceDeletionContentFailure")["status"] == "False"
        held = await world.get("ConfigMap", "n/held")
        assert held is not None
        assert held["metadata"]["deletionTimestamp"]
        assert not await world.has("ConfigMap", "n/free")

        revision = await world.storage.revision()
        controller.queue.add("n")
        await world.clock.advance(1)
        await settle(controller, observed)
        assert await world.storage.revision() == revision, (
            "a resync without a change writes nothing"
        )

        await world.edit("ConfigMap", "n/held", lambda obj: obj["metadata"].pop("finalizers"))
        await settle(controller, observed)
        assert not await world.has("Namespace", "n")


async def test_conditions_of_another_namespace_controller_are_kept() -> None:
    """Conditions of another controller for the same state are not overwritten repeatedly."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        await world.create("ConfigMap", "held", "n", metadata=HELD)
        await world.create("Secret", "held", "n", metadata=HELD)
        await world.delete("Namespace", "n")
        await settle(controller, observed)

        def contradict(obj: dict[str, Any]) -> None:
            condition(obj, "NamespaceContentRemaining")["status"] = "False"

        await world.edit("Namespace", "n", contradict, subresource="status")
        revision = await world.storage.revision()
        await settle(controller, observed)
        assert await world.storage.revision() == revision

        await world.edit("Secret", "n/held", lambda obj: obj["metadata"].pop("finalizers"))
        await settle(controller, observed)
        found = await world.get("Namespace", "n")
        assert found is not None
        assert condition(found, "NamespaceContentRemaining")["status"] == "True", (
            "a new state is written"
        )


async def test_a_namespace_waits_for_kinds_of_another_release() -> None:
    """Objects of a kind that is not hosted here keep their namespace, which reports them."""
    async with open_world() as world:
        controller, observed = await begin(world)
        key = Key("/registry/example.com/widgets/n/w")
        await world.create("Namespace", "n")
        await world.storage.commit(Transaction((), (Put(key, b"{}"),)))
        beside = Key("/registry/example.com/widgets/other/w")
        await world.storage.commit(Transaction((), (Put(beside, b"{}"),)))
        await world.delete("Namespace", "n")
        await settle(controller, observed)
        found = await world.get("Namespace", "n")
        assert found is not None
        unknown = condition(found, "NamespaceDeletionDiscoveryFailure")
        assert (unknown["status"], unknown["reason"]) == ("True", "DiscoveryFailed")
        assert "example.com/widgets" in unknown["message"]
        await world.storage.commit(Transaction((), (Delete(key),)))
        controller.queue.add("n")
        await settle(controller, observed)
        assert not await world.has("Namespace", "n")


async def test_pods_go_first() -> None:
    """Other objects stay while a pod exists, because pods may need them."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        spec = {"containers": [{"name": "c", "image": "i"}]}
        await world.create("Pod", "p", "n", metadata=HELD, spec=spec)
        await world.create("Secret", "s", "n")
        await world.delete("Namespace", "n")
        await settle(controller, observed)
        assert await world.has("Secret", "n/s")
        await world.edit("Pod", "n/p", lambda obj: obj["metadata"].pop("finalizers"))
        await settle(controller, observed)
        assert not await world.has("Namespace", "n")


async def test_an_unobserved_deletion_is_found() -> None:
    """A new server finds namespaces that were marked before it started."""
    async with open_world() as world:
        await world.create("Namespace", "n")
        await world.create("ConfigMap", "c", "n")
        await world.delete("Namespace", "n")
        controller, observed = await begin(world)
        await settle(controller, observed)
        assert not await world.has("Namespace", "n")


async def test_a_namespace_with_other_finalizers_stays() -> None:
    """Only our own finalizer is removed; other controllers must remove theirs."""
    async with open_world() as world:
        controller, observed = await begin(world)
        spec = {"finalizers": ["example.com/other"]}
        await world.create("Namespace", "n", spec=spec)
        await world.delete("Namespace", "n")
        await settle(controller, observed)
        found = await world.get("Namespace", "n")
        assert found is not None
        assert found["spec"]["finalizers"] == ["example.com/other"]


async def test_objects_from_delayed_creates_are_removed() -> None:
    """An object that a late create left in a removed namespace is removed a little later."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        await world.delete("Namespace", "n")
        await settle(controller, observed)
        await world.create("ConfigMap", "late", "n")
        await world.clock.advance(namespaces.LEFTOVER_SECONDS[0])
        await settle(controller, observed)
        assert not await world.has("ConfigMap", "n/late")


async def test_a_namespace_that_was_made_again_is_left_alone() -> None:
    """The check after a deletion does not delete the contents of a new namespace of the same
    name."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        await world.delete("Namespace", "n")
        await settle(controller, observed)
        await world.create("Namespace", "n")
        await world.create("ConfigMap", "c", "n")
        for seconds in namespaces.LEFTOVER_SECONDS:
            await world.clock.advance(seconds)
            await settle(controller, observed)
        assert await world.has("ConfigMap", "n/c")


async def test_unreadable_objects_are_reported() -> None:
    """A damaged object keeps the namespace, whose condition names the object."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        key = world.kind("ConfigMap").key_of("n/broken")
        await world.storage.commit(Transaction((), (Put(key, b"not json"),)))
        await world.delete("Namespace", "n")
        await settle(controller, observed)
        found = await world.get("Namespace", "n")
        assert found is not None
        failure = condition(found, "NamespaceDeletionContentFailure")
        assert failure["status"] == "True"
        assert "configmaps n/broken" in failure["message"]


async def test_two_controllers_at_once_do_no_harm() -> None:
    """Two servers that both consider themselves the leader have the same result as one."""
    clock, storage = SimulatedClock(), MemoryStorage()
    async with open_world(storage, clock) as one, open_world(storage, clock, seed=2) as two:
        first, watched_one = await begin(one)
        second, watched_two = await begin(two)
        await one.create("Namespace", "n")
        for number in range(30):
            await one.create("ConfigMap", f"c{number}", "n")
        await one.delete("Namespace", "n")
        await asyncio.gather(settle(first, watched_one), settle(second, watched_two))
        assert not await one.has("Namespace", "n")
        page = await storage.range(Span.of_prefix("/registry/configmaps/"))
        assert [orjson.loads(item.value)["metadata"]["name"] for item in page.items] == []


async def test_an_object_that_was_made_again_during_the_pass_is_left_alone() -> None:
    """A late delete does not delete a new object of the same name."""
    storage = InterruptedStorage()
    async with open_world(storage) as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        await world.create("ConfigMap", "c", "n")
        await world.delete("Namespace", "n")
        again: list[Any] = []

        async def replace() -> None:
            await world.delete("ConfigMap", "n/c")
            again.append(await world.create("ConfigMap", "c", "n"))

        storage.interruptions[world.kind("ConfigMap").key_of("n/c")] = replace
        await observed.catch_up()
        await controller.reconcile("n")
        found = await world.get("ConfigMap", "n/c")
        assert found is not None
        assert found["metadata"]["uid"] == again[0]["metadata"]["uid"]


@pytest.mark.parametrize("has_content", [True, False])
async def test_a_namespace_made_again_during_the_pass_is_left_alone(has_content: bool) -> None:
    """Objects that are written after the namespace was read may be in a new one: they stay."""

    class Recreating(MemoryStorage):
        """Returns keys only after another server completed the deletion and all was created
        again."""

        world: World | None = None

        async def range(
            self,
            span: Span,
            *,
            limit: int = 0,
            revision: Revision | None = None,
            with_total: bool = False,
        ) -> RangePage:
            world = None
            if span.start == OBJECTS_PREFIX:
                world, self.world = self.world, None
            if world is not None:
                other = NamespaceController(world.store, world.catalog, world.runtime)
                await other.reconcile("n")
                await world.create("Namespace", "n")
                if has_content:
                    await world.create("ConfigMap", "c", "n")
            return await super().range(span, limit=limit, revision=revision, with_total=with_total)

    storage = Recreating()
    async with open_world(storage) as world:
        controller, _ = await begin(world)
        await world.create("Namespace", "n")
        await world.delete("Namespace", "n")
        storage.world = world
        with suppress(Conflict):
            await controller.reconcile("n")
        assert await world.has("ConfigMap", "n/c") == has_content
        found = await world.get("Namespace", "n")
        assert found is not None
        assert found["status"] == {"phase": "Active"}
        assert found["spec"]["finalizers"] == ["kubernetes"]


async def test_a_namespace_waits_for_server_owned_objects() -> None:
    """The delete of an identity Lease is rejected; the namespace reports it and waits."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("Namespace", LEASE_NAMESPACE)
        await world.create("ConfigMap", "c", LEASE_NAMESPACE)
        leases = world.kind("Lease", "coordination.k8s.io")
        metadata = {
            "name": "s",
            "namespace": LEASE_NAMESPACE,
            "uid": "u",
            "labels": {IDENTITY_LABEL: IDENTITY_LABEL_VALUE},
        }
        lease = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata}
        key = leases.key_of(f"{LEASE_NAMESPACE}/s")
        await world.storage.commit(Transaction(writes=(Put(key, orjson.dumps(lease)),)))
        await world.delete("Namespace", LEASE_NAMESPACE)
        await settle(controller, observed)
        assert not await world.has("ConfigMap", f"{LEASE_NAMESPACE}/c")
        found = await world.get("Namespace", LEASE_NAMESPACE)
        assert found is not None
        failure = condition(found, "NamespaceDeletionContentFailure")
        assert "identity leases are written by their server alone" in failure["message"]
        await world.storage.commit(Transaction(writes=(Delete(key),)))
        await settle(controller, observed)
        assert not await world.has("Namespace", LEASE_NAMESPACE)


async def test_a_namespace_waits_for_pods_that_end() -> None:
    """A pod on a node has a grace period; the rest waits for it, and the namespace reports it."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        await world.create("ConfigMap", "c", "n")
        spec = {
            "nodeName": "a",
            "terminationGracePeriodSeconds": 7,
            "containers": [{"name": "c", "image": "i"}],
        }
        await world.create("Pod", "p", "n", spec=spec)
        await world.delete("Namespace", "n")
        await settle(controller, observed)
        found = await world.get("Namespace", "n")
        assert found is not None
        assert condition(found, "NamespaceContentRemaining")["message"] == (
            "Some resources are remaining: pods. has 1 resource instances"
        )
        assert await world.has("ConfigMap", "n/c")
        await world.delete("Pod", "n/p")  # as the kubelet does
        await settle(controller, observed)
        assert not await world.has("Namespace", "n")


def test_conditions_are_those_of_kubernetes() -> None:
    """Types, reasons and messages are those of Kubernetes."""
    well = {each["type"]: (each["reason"], each["message"]) for each in conditions_of(Leftovers())}
    assert well == {
        "NamespaceDeletionDiscoveryFailure": (
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
        "NamespaceFinalizersRemaining": (
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    }
    failed = conditions_of(Leftovers(failures=["secrets n/b: no", "pods n/a: no"]))
    [content] = [each for each in failed if each["type"] == "NamespaceDeletionContentFailure"]
    assert (content["status"], content["reason"]) == ("True", "ContentDeletionFailed")
    assert content["message"] == (
        "Failed to delete all resource types, 2 remaining: pods n/a: no, secrets n/b: no"
    )
