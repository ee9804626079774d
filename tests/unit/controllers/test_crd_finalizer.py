"""Deletion of CRDs: first the instances, then the CRD, and never too early."""

from typing import Any

import orjson
import pytest

from restow.apimachinery.status import Conflict
from restow.controllers import crd_finalizer
from restow.controllers.crd_finalizer import UNCONFIRMED_SECONDS
from restow.controllers.crds import CrdController, CrdControllerOptions
from restow.storage.interface import Outcome, Put, Span, Transaction
from restow.storage.memory import MemoryStorage
from tests.unit.controllers.custom import (
    GROUP,
    accept,
    conditions,
    define,
    definition,
    host,
    is_defined,
    make,
    release,
    undefine,
    widgets,
)
from tests.unit.controllers.world import Observed, World, open_world

HELD: dict[str, Any] = {"finalizers": ["example.com/hold"]}


class Steps:
    """A world with a CRD controller that the test runs step by step."""

    def __init__(self, world: World, controller: CrdController, observed: Observed) -> None:
        self.world = world
        self.controller = controller
        self._observed = observed

    @classmethod
    async def begin(cls, world: World, options: CrdControllerOptions | None = None) -> "Steps":
        controller = CrdController(world.store, world.catalog, world.runtime, options)
        return cls(world, controller, await world.observe(controller))

    async def settle(self) -> None:
        cleaner = self.controller.cleaner
        await self._observed.settle(self.controller.queue, self.controller.reconcile)
        await self._observed.settle(cleaner.queue, cleaner.reconcile)
        await self._observed.settle(self.controller.queue, self.controller.reconcile)

    async def wait(self, seconds: float) -> None:
        """Advance the time and process what is due."""
        await self.world.clock.advance(seconds)
        await self.settle()

    async def count(self, plural: str = "widgets") -> int:
        return await self.world.storage.count(Span.of_prefix(f"/registry/{GROUP}/{plural}/"))


async def test_instances_go_and_then_the_definition() -> None:
    """All instances in all namespaces are deleted, those of other kinds stay."""
    async with open_world() as world:
        it = await Steps.begin(world)
        name = await widgets(world)
        other = await define(world, "gadgets", "Gadget")
        await accept(world, other)
        await host(world, other)
        for namespace in ("a", "b"):
            await make(world, "w", namespace)
        await make(world, "g", kind="Gadget")
        await undefine(world, name)
        assert await is_defined(world, name), "it waits for its finalizer"
        await it.settle()
        assert await it.count() == 0
        assert not await is_defined(world, name)
        assert await is_defined(world, other)
        assert await it.count("gadgets") == 1


async def test_instances_outside_namespaces_go_too() -> None:
    """The same for a cluster-scoped kind."""
    async with open_world() as world:
        it = await Steps.begin(world)
        name = await widgets(world, scope="Cluster")
        await make(world, "w", "")
        await undefine(world, name)
        await it.settle()
        assert await it.count() == 0
        assert not await is_defined(world, name)


async def test_an_instance_with_finalizers_delays_the_definition() -> None:
    """An instance with finalizers is marked; the CRD reports it and is removed after it."""
    async with open_world() as world:
        it = await Steps.begin(world)
        name = await widgets(world)
        await make(world, "held", **HELD)
        await make(world, "free")
        await undefine(world, name)
        await it.settle()
        assert await it.count() == 1
        found = await world.get("Widget", "n/held", group=GROUP)
        assert found is not None
        assert found["metadata"]["deletionTimestamp"]
        terminating = (await conditions(world, name))["Terminating"]
        assert terminating == ("True", "InstanceDeletionInProgress")
        revision = await world.storage.revision()
        await it.wait(UNCONFIRMED_SECONDS - 1)
        assert await world.storage.revision() == revision, "waiting writes nothing"
        await it.wait(30)
        terminating = (await conditions(world, name))["Terminating"]
        assert terminating == ("True", "InstanceDeletionCheck")
        await release(world, "n/held")
        await it.wait(0)
        await it.wait(crd_finalizer.CHANGE_DELAY_SECONDS)
        assert not await is_defined(world, name)


async def test_another_leader_continues() -> None:
    """All state is in the store: the next leader completes what the previous one has begun."""
    async with open_world() as world:
        first = await Steps.begin(world)
        name = await widgets(world)
        await make(world, "held", **HELD)
        await undefine(world, name)
        await first.settle()
        await release(world, "n/held")
        second = await Steps.begin(world)
        await second.settle()
        assert not await is_defined(world, name)
        await first.settle()


async def test_many_instances_go_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances are read and deleted in pages, each once."""
    monkeypatch.setattr(crd_finalizer, "_PAGE", 7)
    async with open_world() as world:
        it = await Steps.begin(world)
        name = await widgets(world)
        for number in range(50):
            await make(world, f"w{number}", f"n{number % 3}")
        await undefine(world, name)
        before = await world.storage.revision()
        await it.settle()
        assert not await is_defined(world, name)
        assert await it.count() == 0
        # Fifty instances, the condition at the beginning, and the CRD.
        assert await world.storage.revision() - before == 52


async def test_nothing_is_deleted_before_all_servers_have_closed_it() -> None:
    """While a server may still create instances, only the condition is written."""
    closed: set[str] = set()
    options = CrdControllerOptions(closed_by_all=lambda _group, plural, _uid: plural in closed)
    async with open_world() as world:
        it = await Steps.begin(world, options)
        name = await widgets(world)
        await make(world, "w")
        await undefine(world, name)
        await it.settle()
        terminating = (await conditions(world, name))["Terminating"]
        assert terminating == ("True", "InstanceDeletionPending")
        assert await it.count() == 1
        await make(world, "late")
        closed.add("widgets")
        it.controller._wake(GROUP, "widgets")
        await it.settle()
        assert await it.count() == 0
        assert not await is_defined(world, name)


async def test_objects_of_aggregated_resources_are_not_deleted() -> None:
    """A CRD of a resource that aggregated servers host is removed without reading its objects."""
    options = CrdControllerOptions(
        closed_by_all=lambda *_: False, hosted_otherwise=lambda _group, plural: plural == "widgets"
    )
    async with open_world() as world:
        it = await Steps.begin(world, options)
        name = await widgets(world)
        await make(world, "theirs")
        await undefine(world, name)
        await it.settle()
        assert not await is_defined(world, name)
        assert await it.count() == 1


async def test_a_definition_without_names_has_no_instances() -> None:
    """A CRD that was never accepted, and so never hosted, is removed at once."""
    async with open_world() as world:
        it = await Steps.begin(world)
        first = await widgets(world)
        await it.settle()
        second = await define(world, "gadgets", "Widget")
        await it.settle()
        assert (await conditions(world, second))["NamesAccepted"][0] == "False"
        await undefine(world, second)
        await it.settle()
        assert not await is_defined(world, second)
        assert await is_defined(world, first)


async def test_one_that_is_deleted_at_once_gets_no_names() -> None:
    """A CRD that is already being deleted when it is first processed gets no names."""
    async with open_world() as world:
        it = await Steps.begin(world)
        name = await define(world, "widgets", "Widget", metadata=HELD)
        await undefine(world, name)
        await it.settle()
        found = await definition(world, name)
        assert found["metadata"]["finalizers"] == HELD["finalizers"]
        assert found["status"]["acceptedNames"] == {"plural": "", "kind": ""}
        assert await conditions(world, name) == {"Terminating": ("False", "NeverEstablished")}


async def test_finalizers_of_others_delay_an_emptied_definition() -> None:
    """With a finalizer of another controller it stays, with the condition about its instances."""
    async with open_world() as world:
        it = await Steps.begin(world)
        name = await define(world, "widgets", "Widget", metadata=HELD)
        await accept(world, name)
        await host(world, name)
        await make(world, "w")
        await undefine(world, name)
        await it.settle()
        terminating = (await conditions(world, name))["Terminating"]
        assert terminating == ("False", "InstanceDeletionCompleted")
        revision = await world.storage.revision()
        await it.wait(600)
        assert await world.storage.revision() == revision


async def test_instances_of_a_kind_not_hosted_here_yet_are_waited_for() -> None:
    """A server that does not host the kind yet does not delete instances or drop the CRD."""
    async with open_world() as world:
        it = await Steps.begin(world)
        world.catalog.changed.subscribe(it.controller.hosting_changed)
        name = await widgets(world)
        await make(world, "w")
        world.catalog.drop(GROUP, "widgets")
        await undefine(world, name)
        await it.settle()
        terminating = (await conditions(world, name))["Terminating"]
        assert terminating == ("True", "InstanceDeletionFailed")
        assert await it.count() == 1
        await host(world, name)
        await it.settle()
        assert await it.count() == 0
        assert not await is_defined(world, name)


async def test_instances_that_cannot_be_read_are_told() -> None:
    """An unreadable instance is not deleted; the CRD reports it and waits."""
    async with open_world() as world:
        it = await Steps.begin(world)
        name = await widgets(world)
        await make(world, "w")
        resource = world.kind("Widget", GROUP)
        bad = Put(resource.key_of("n/bad"), b"no object")
        await world.storage.commit(Transaction(writes=(bad,)))
        await undefine(world, name)
        await it.settle()
        assert await it.count() == 1
        [told] = [
            each
            for each in (await definition(world, name))["status"]["conditions"]
            if each["type"] == "Terminating"
        ]
        assert told["reason"] == "InstanceDeletionFailed"
        assert told["message"].startswith("could not issue all deletes: n/bad cannot be read")
        revision = await world.storage.revision()
        await it.wait(300)
        assert await world.storage.revision() == revision


async def test_objects_of_a_built_in_kind_are_never_deleted() -> None:
    """A CRD whose key prefix is that of a built-in kind is removed without deleting objects."""
    async with open_world() as world:
        it = await Steps.begin(world)
        name = await define(
            world,
            "storagestates",
            "StorageState",
            group="migration.k8s.io",
            scope="Cluster",
            metadata={"annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        )
        await accept(world, name)
        spec = {"resource": {"group": "", "resource": "pods"}}
        await world.create("StorageState", "pods", group="migration.k8s.io", spec=spec)
        await undefine(world, name)
        await it.settle()
        assert not await is_defined(world, name)
        assert await world.has("StorageState", "pods", group="migration.k8s.io")


async def test_a_recreated_definition_is_not_changed() -> None:
    """A decision about a CRD is not applied to a new one of the same name."""

    class Replacing(MemoryStorage):
        """Another server completes the deletion just before, and the CRD is created again."""

        world: World | None = None

        async def commit(self, transaction: Transaction) -> Outcome:
            world, self.world = self.world, None
            if world is not None:
                other = CrdController(world.store, world.catalog, world.runtime)
                await other.cleaner.reconcile(f"widgets.{GROUP}")
                await define(world, "widgets", "Widget")
            return await super().commit(transaction)

    storage = Replacing()
    async with open_world(storage) as world:
        it = await Steps.begin(world)
        name = await widgets(world)
        old = await definition(world, name)
        await undefine(world, name)
        storage.world = world
        with pytest.raises(Conflict):
            await it.controller.cleaner.reconcile(name)
        new = await definition(world, name)
        assert new["metadata"]["uid"] != old["metadata"]["uid"]
        assert "customresourcecleanup.apiextensions.k8s.io" in new["metadata"]["finalizers"]
    await storage.close()


async def test_instances_in_an_older_version_are_deleted_as_they_are() -> None:
    """An object that is only to be deleted is not converted."""
    async with open_world() as world:
        it = await Steps.begin(world)
        schema = {"openAPIV3Schema": {"type": "object"}}
        versions = [
            {"name": "v2", "served": True, "storage": True, "schema": schema},
            {"name": "v1", "served": True, "storage": False, "schema": schema},
        ]
        name = await define(world, "widgets", "Widget", versions=versions)
        await accept(world, name)
        resource = await host(world, name)
        old = {
            "kind": "Widget",
            "apiVersion": f"{GROUP}/v1",
            "metadata": {"name": "w", "namespace": "n", "uid": "u"},
        }
        put = Put(resource.key_of("n/w"), orjson.dumps(old) + b"\n")
        await world.storage.commit(Transaction(writes=(put,)))
        await undefine(world, name)
        await it.settle()
        assert not await is_defined(world, name)
