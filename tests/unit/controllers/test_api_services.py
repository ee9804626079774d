"""The APIServices of what the servers serve themselves: made, put right, and taken away."""

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
    keeper = ApiServiceController(world.store, world.catalog, world.runtime)
    observed = await world.observe(keeper)
    await observed.settle(keeper.queue, keeper.reconcile)
    return keeper, observed


async def get(world: World, name: str) -> dict[str, Any] | None:
    return await world.get("APIService", name, group=GROUP)


async def remove(world: World, name: str) -> None:
    """Delete a definition, and do what is done before it goes."""
    await undefine(world, name)
    if await is_defined(world, name):

        def release(obj: dict[str, Any]) -> None:
            obj["metadata"]["finalizers"] = []

        await world.edit(DEFINITION, name, release, group=DEFINITIONS)
    assert not await is_defined(world, name)


async def test_every_group_that_is_served_has_one() -> None:
    """All built-in groups and versions but the APIServices' own, available, and once only."""
    async with open_world() as world:
        keeper, observed = await begin(world)
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
        await keeper.resync()
        await observed.settle(keeper.queue, keeper.reconcile)
        assert await world.storage.revision() == revision, "a second look changes nothing"


async def test_those_of_custom_resources_come_and_go() -> None:
    """One for each version that any definition serves, until the last such definition is gone."""
    async with open_world() as world:
        before = await define(world, "olds", "Old")
        keeper, observed = await begin(world)
        name = await define(world, "widgets", "Widget")
        await observed.settle(keeper.queue, keeper.reconcile)
        found = await get(world, "v1.example.com")
        assert found is not None
        assert found["metadata"]["labels"] == {LABEL: "true"}
        assert found["spec"]["groupPriorityMinimum"] == 1000
        assert found["spec"]["versionPriority"] == 100
        for each in (name, before):
            assert await get(world, "v1.example.com") is not None
            await remove(world, each)
            await observed.settle(keeper.queue, keeper.reconcile)
        assert await get(world, "v1.example.com") is None


async def test_a_definition_that_went_unseen_is_noticed_by_the_next_look() -> None:
    """What was missed between two watches is found by reading everything."""
    async with open_world() as world:
        name = await define(world, "widgets", "Widget")
        keeper, observed = await begin(world)
        await remove(world, name)
        await keeper.list_objects(Revision(0))
        while len(keeper.queue):
            key = await keeper.queue.get()
            await keeper.reconcile(key)
            keeper.queue.done(key)
        assert await get(world, "v1.example.com") is None
        await observed.close()


async def test_what_is_changed_is_changed_back() -> None:
    """Deleted, edited, or pointed elsewhere: it is as it was, and says that it is available."""
    async with open_world() as world:
        keeper, observed = await begin(world)
        await world.delete("APIService", "v1.apps", group=GROUP)
        await world.edit(
            "APIService",
            "v1.",
            lambda obj: obj["spec"].update(service={"namespace": "n", "name": "s", "port": 443}),
            group=GROUP,
        )
        await observed.settle(keeper.queue, keeper.reconcile)
        assert await get(world, "v1.apps") is not None
        found = await get(world, "v1.")
        assert found is not None
        assert "service" not in found["spec"]


async def test_what_is_not_labelled_is_somebody_elses() -> None:
    """It is neither changed nor deleted; one that names no service is said to be available."""
    async with open_world() as world:
        keeper, observed = await begin(world)
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
        await observed.settle(keeper.queue, keeper.reconcile)
        found = await get(world, "v1.other.io")
        assert found is not None
        assert "conditions" not in (found.get("status") or {})
        apps = await get(world, "v1.apps")
        assert apps is not None
        assert apps["spec"]["versionPriority"] == 7
        await world.edit(
            "APIService", "v1.other.io", lambda obj: obj["spec"].pop("service"), group=GROUP
        )
        await observed.settle(keeper.queue, keeper.reconcile)
        found = await get(world, "v1.other.io")
        assert found is not None
        assert found["status"]["conditions"][0]["reason"] == "Local"


async def test_what_is_labelled_and_not_served_goes() -> None:
    """An APIService of ours for a group that a release no longer has is removed."""
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
