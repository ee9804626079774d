"""Every namespace has its default service account and the cluster's CA certificates."""

from restow.controllers.corrections import AT_ONCE_MAX
from restow.controllers.objects_watch import RESYNC_SECONDS
from restow.controllers.service_accounts import ServiceAccountController
from restow.storage.interface import Item, Key, Revision
from restow.storage.memory import MemoryStorage
from tests.unit.controllers.world import Observed, World, open_world

CERTIFICATES = "-----BEGIN CERTIFICATE-----\n"


async def begin(world: World) -> tuple[ServiceAccountController, Observed]:
    controller = ServiceAccountController(
        world.store, world.catalog, world.runtime, certificates=CERTIFICATES
    )
    return controller, await world.observe(controller)


async def test_old_and_new_namespaces_get_theirs() -> None:
    """Both objects are created in namespaces from before and after the controller's start."""
    async with open_world() as world:
        await world.create("Namespace", "old")
        controller, observed = await begin(world)
        await world.create("Namespace", "new")
        await observed.settle(controller.queue, controller.reconcile)
        for name in ("old", "new"):
            assert await world.has("ServiceAccount", f"{name}/default")
            found = await world.get("ConfigMap", f"{name}/kube-root-ca.crt")
            assert found is not None
            assert found["data"] == {"ca.crt": CERTIFICATES}
        revision = await world.storage.revision()
        await controller.resync()
        await observed.settle(controller.queue, controller.reconcile)
        assert await world.storage.revision() == revision, "a resync writes nothing"


async def test_they_come_back_unless_the_namespace_goes() -> None:
    """A deleted or changed object is restored, except in a namespace that is being deleted."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        await observed.settle(controller.queue, controller.reconcile)
        await world.delete("ServiceAccount", "n/default")
        await world.edit("ConfigMap", "n/kube-root-ca.crt", lambda obj: obj.update(data={}))
        await world.create("Namespace", "m")
        await observed.settle(controller.queue, controller.reconcile)
        await world.edit(
            "ConfigMap", "m/kube-root-ca.crt", lambda obj: obj["metadata"].pop("annotations")
        )
        await observed.settle(controller.queue, controller.reconcile)
        assert await world.has("ServiceAccount", "n/default")
        found = await world.get("ConfigMap", "n/kube-root-ca.crt")
        assert found is not None
        assert found["data"] == {"ca.crt": CERTIFICATES}
        described = await world.get("ConfigMap", "m/kube-root-ca.crt")
        assert described is not None
        for obj in (found, described):
            text = obj["metadata"]["annotations"]["kubernetes.io/description"]
            assert text.startswith("Contains a CA bundle that can be used to verify")
        await world.delete("Namespace", "n")
        await world.delete("ServiceAccount", "n/default")
        await world.delete("ConfigMap", "n/kube-root-ca.crt")
        await observed.settle(controller.queue, controller.reconcile)
        assert not await world.has("ServiceAccount", "n/default")
        assert not await world.has("ConfigMap", "n/kube-root-ca.crt")


async def test_repeated_corrections_of_the_config_map_back_off() -> None:
    """Corrections of a ConfigMap that another controller changes become less frequent."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        await observed.settle(controller.queue, controller.reconcile)

        async def is_set_right() -> bool:
            await world.edit(
                "ConfigMap", "n/kube-root-ca.crt", lambda obj: obj.update(data={"ca.crt": "other"})
            )
            await observed.settle(controller.queue, controller.reconcile)
            found = await world.get("ConfigMap", "n/kube-root-ca.crt")
            assert found is not None
            return bool(found["data"] == {"ca.crt": CERTIFICATES})

        assert sum([await is_set_right() for _ in range(50)]) == AT_ONCE_MAX
        await world.clock.advance(RESYNC_SECONDS)
        await observed.settle(controller.queue, controller.reconcile)
        found = await world.get("ConfigMap", "n/kube-root-ca.crt")
        assert found is not None
        assert found["data"] == {"ca.crt": CERTIFICATES}, "the last write is ours"


async def test_other_objects_of_similar_names_are_of_no_interest() -> None:
    """Only the two names are processed, in all namespaces."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await world.create("ServiceAccount", "not-default", "n")
        await world.create("ConfigMap", "default", "n")
        await observed.catch_up()
        assert len(controller.queue) == 0


async def test_nothing_is_made_in_a_namespace_that_goes_in_the_last_moment() -> None:
    """The create is guarded by the namespace that was read, so it fails after a deletion."""

    class Late(MemoryStorage):
        """Deletes the namespace when the controller reads the service account."""

        world: World | None = None

        async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
            if self.world is not None and key.endswith("/n/default"):
                world, self.world = self.world, None
                await world.delete("Namespace", "n")
            return await super().get(key, revision=revision)

    storage = Late()
    async with open_world(storage) as world:
        controller, observed = await begin(world)
        await world.create("Namespace", "n")
        storage.world = world
        await observed.settle(controller.queue, controller.reconcile)
        await world.clock.advance(1)
        await observed.settle(controller.queue, controller.reconcile)
        assert not await world.has("ServiceAccount", "n/default")
