"""Local APIServices are created, corrected and deleted."""

from typing import Any

from restow.controllers.api_services import LABEL, ApiServiceController
from restow.storage.interface import Revision
from tests.unit.controllers.custom import (
    DEFINITION,
    DEFINITIONS,
    define,
    is_defined,
    undefine,
)
from tests.unit.controllers.world import Observed, World, open_world

GROUP = "apiregistration.k8s.io"


async def begin(world: World) -> tuple[ApiServiceController, Observed]:
    controller = ApiServiceController(world.store, world.catalog, world.runtime)
    observed = await world.observe(controller)
    await observed.settle(controller.queue, controller.reconcile)
    return controller, observed


async def get(world: World, name: str) -> dict[str, Any] | None:
    return await world.get("APIService", name, group=GROUP)


async def remove(world: World, name: str) -> None:
    """Delete a CRD, and remove its finalizer."""
    await undefine(world, name)
    if await is_defined(world, name):

        def release(obj: dict[str, Any]) -> None:
            obj["metadata"]["finalizers"] = []

        await world.edit(DEFINITION, name, release, group=DEFINITIONS)
    assert not await is_defined(world, name)


async def test_every_group_that_is_served_has_one() -> None:
    """Each built-in group version has one, available and written once, except the APIServices'
    own."""
    async with open_world() as world:
        controller, observed = await begin(world)
        found = await get(world, "v1.")
        assert found is not None
        assert found["metadata"]["labels"] == {LABEL: "onstart"}
        assert found["spec"] == {
            "group": "",
            "version": "v1",
            "groupPriorityMinimum": 18000,
            "versionPriority": 1,
        }
        [condition] = found["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("True", "Local")
        for group, versions in world.catalog.groups.items():
            for version in versions:
                made = await get(world, f"{version}.{group}")
                assert (made is None) == (group == GROUP)
        revision = await world.storage.revision()
        await controller.resync()
        await observed.settle(controller.queue, controller.reconcile)
        assert await world.storage.revision() == revision, "a resync writes nothing"


async def test_api_services_of_custom_resources_follow_their_crds() -> None:
    """Each version that a CRD serves has one, until the last such CRD is deleted."""
    async with open_world() as world:
        before = await define(world, "olds", "Old")
        controller, observed = await begin(world)
        name = await define(world, "widgets", "Widget")
        await observed.settle(controller.queue, controller.reconcile)
        found = await get(world, "v1.example.com")
        assert found is not None
        assert found["metadata"]["labels"] == {LABEL: "true"}
        assert found["spec"]["groupPriorityMinimum"] == 1000
        assert found["spec"]["versionPriority"] == 100
        for each in (name, before):
            assert await get(world, "v1.example.com") is not None
            await remove(world, each)
            await observed.settle(controller.queue, controller.reconcile)
        assert await get(world, "v1.example.com") is None


async def test_a_definition_that_went_unseen_is_noticed_by_the_next_look() -> None:
    """Changes that were missed between two watches are found by a full read."""
    async with open_world() as world:
        name = await define(world, "widgets", "Widget")
        controller, observed = await begin(world)
        await remove(world, name)
        await controller.list_objects(Revision(0))
        while len(controller.queue):
            key = await controller.queue.get()
            await controller.reconcile(key)
            controller.queue.done(key)
        assert await get(world, "v1.example.com") is None
        await observed.close()


async def test_changed_api_services_are_restored() -> None:
    """A deleted, edited or redirected one is restored, with the condition Available."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.delete("APIService", "v1.apps", group=GROUP)
        await world.edit(
            "APIService",
            "v1.",
            lambda obj: obj["spec"].update(service={"namespace": "n", "name": "s", "port": 443}),
            group=GROUP,
        )
        await observed.settle(controller.queue, controller.reconcile)
        assert await get(world, "v1.apps") is not None
        found = await get(world, "v1.")
        assert found is not None
        assert "service" not in found["spec"]


async def test_unlabelled_api_services_are_not_changed() -> None:
    """It is neither changed nor deleted; without a service, it gets the condition Available."""
    async with open_world() as world:
        controller, observed = await begin(world)
        spec = {
            "group": "other.io",
            "version": "v1",
            "groupPriorityMinimum": 5,
            "versionPriority": 5,
            "service": {"namespace": "n", "name": "s", "port": 443},
        }
        await world.create("APIService", "v1.other.io", group=GROUP, spec=spec)
        await world.edit(
            "APIService", "v1.apps", lambda obj: obj["metadata"].pop("labels"), group=GROUP
        )
        await world.edit(
            "APIService", "v1.apps", lambda obj: obj["spec"].update(versionPriority=7), group=GROUP
        )
        await observed.settle(controller.queue, controller.reconcile)
        found = await get(world, "v1.other.io")
        assert found is not None
        assert "conditions" not in (found.get("status") or {})
        apps = await get(world, "v1.apps")
        assert apps is not None
        assert apps["spec"]["versionPriority"] == 7
        await world.edit(
            "APIService", "v1.other.io", lambda obj: obj["spec"].pop("service"), group=GROUP
        )
        await observed.settle(controller.queue, controller.reconcile)
        found = await get(world, "v1.other.io")
        assert found is not None
        assert found["status"]["conditions"][0]["reason"] == "Local"


async def test_labelled_api_services_of_unserved_groups_are_deleted() -> None:
    """A labelled APIService is deleted if no release serves its group any more."""
    async with open_world() as world:
        spec = {
            "group": "gone.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 5,
            "versionPriority": 5,
        }
        await world.create(
            "APIService",
            "v1beta1.gone.k8s.io",
            group=GROUP,
            spec=spec,
            metadata={"labels": {LABEL: "onstart"}},
        )
        await begin(world)
        assert await get(world, "v1beta1.gone.k8s.io") is None
