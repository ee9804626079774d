"""Recalculated usage is correct, and never takes back the charge of a create in progress."""

from __future__ import annotations

from typing import Any

from restow.controllers.quotas import CREATE_DELAY_SECONDS, SETTLE_SECONDS, QuotaController
from tests.unit.controllers.world import Observed, World, open_world


class Counting:
    """A quota controller in a world with a namespace, and a quota of ConfigMaps and Services."""

    def __init__(self, world: World, controller: QuotaController, observed: Observed) -> None:
        self.world = world
        self.controller = controller
        self._observed = observed

    @classmethod
    async def begin(cls, world: World) -> Counting:
        controller = QuotaController(world.store, world.catalog, world.runtime)
        return cls(world, controller, await world.observe(controller))

    async def settle(self, seconds: float = 0.0) -> None:
        """Advance the time and process what is due."""
        await self._observed.catch_up()
        await self.world.clock.advance(seconds)
        await self._observed.settle(self.controller.queue, self.controller.reconcile)

    async def used(self, name: str = "q") -> dict[str, Any]:
        found = await self.world.get("ResourceQuota", f"a/{name}")
        assert found is not None
        return dict((found.get("status") or {}).get("used") or {})

    async def charge(self, more: int) -> None:
        """Charge the quota as a server does before a create."""
        resource = self.world.kind("ResourceQuota")

        def change(obj: dict[str, Any]) -> dict[str, Any]:
            used = obj["status"]["used"]
            used["configmaps"] = str(int(used["configmaps"]) + more)
            return obj

        await self.world.store.update(
            resource, "v1", "a/q", change, subresource="status", is_patch=True
        )

    async def close(self) -> None:
        await self._observed.close()


async def make(world: World, **hard: str) -> None:
    await world.create("Namespace", "a")
    await world.create("ResourceQuota", "q", "a", spec={"hard": hard or {"configmaps": "5"}})


async def test_a_new_quota_is_counted() -> None:
    """Objects in its own namespace count; names that no controller counts stay empty."""
    async with open_world() as world:
        await world.create("Namespace", "b")
        await make(
            world, **{"configmaps": "5", "limits.x/y": "1", "count/secrets": "7", "pods": "2"}
        )
        for name in ("one", "two"):
            await world.create("ConfigMap", name, "a")
            await world.create("ConfigMap", name, "b")
        await world.create("Pod", "p", "a", spec={"containers": [{"name": "c", "image": "i"}]})
        counting = await Counting.begin(world)
        await counting.settle()
        assert await counting.used() == {"configmaps": "2", "count/secrets": "0", "pods": "1"}
        quota = await world.get("ResourceQuota", "a/q")
        assert quota is not None
        assert quota["status"]["hard"] == quota["spec"]["hard"]
        revision = await world.storage.revision()
        await counting.settle(SETTLE_SECONDS)
        assert await world.storage.revision() == revision  # no change, no write
        await counting.close()


async def test_deletes_reduce_usage_at_once() -> None:
    """Also while another object is charged and not created yet, which stays charged."""
    async with open_world() as world:
        await make(world)
        for name in ("one", "two"):
            await world.create("ConfigMap", name, "a")
        counting = await Counting.begin(world)
        await counting.settle()
        await counting.charge(1)
        await world.delete("ConfigMap", "a/one")
        await counting.settle(CREATE_DELAY_SECONDS)
        assert await counting.used() == {"configmaps": "2"}  # one exists, one is in progress
        await world.create("ConfigMap", "three", "a")
        await counting.settle(CREATE_DELAY_SECONDS)
        assert await counting.used() == {"configmaps": "2"}
        await counting.settle(SETTLE_SECONDS)
        assert await counting.used() == {"configmaps": "2"}
        await counting.close()


async def test_charges_of_failed_creates_expire() -> None:
    """The charge of a failed create is removed after the longest duration of a create."""
    async with open_world() as world:
        await make(world)
        await world.create("ConfigMap", "one", "a")
        counting = await Counting.begin(world)
        await counting.settle()
        await counting.charge(2)
        await counting.settle(SETTLE_SECONDS / 2)
        assert await counting.used() == {"configmaps": "3"}
        await counting.charge(1)
        await counting.settle(SETTLE_SECONDS / 2)
        assert await counting.used() == {"configmaps": "4"}
        await counting.settle(SETTLE_SECONDS)
        assert await counting.used() == {"configmaps": "1"}
        await counting.close()


async def test_a_new_controller_has_observed_no_charges() -> None:
    """It waits as long as if all charges were recent."""
    async with open_world() as world:
        await make(world)
        first = await Counting.begin(world)
        await first.settle()
        await first.charge(1)
        await first.close()
        second = await Counting.begin(world)
        await second.settle(CREATE_DELAY_SECONDS)
        assert await second.used() == {"configmaps": "1"}
        await second.settle(SETTLE_SECONDS)
        assert await second.used() == {"configmaps": "0"}
        await second.close()


async def test_uncharged_objects_are_counted() -> None:
    """Objects that the servers create themselves are observed and counted."""
    async with open_world() as world:
        await make(world)
        counting = await Counting.begin(world)
        await counting.settle()
        await world.create("ConfigMap", "one", "a")
        await counting.settle(CREATE_DELAY_SECONDS)
        assert await counting.used() == {"configmaps": "1"}
        await counting.close()


async def test_another_limit_counts_at_once() -> None:
    """New names in `hard` are counted, and removed ones are dropped."""
    async with open_world() as world:
        await make(world)
        await world.create("Secret", "s", "a")
        counting = await Counting.begin(world)
        await counting.settle()
        await world.edit(
            "ResourceQuota", "a/q", lambda obj: obj["spec"].update(hard={"secrets": "1"})
        )
        await counting.settle()
        assert await counting.used() == {"secrets": "1"}
        await world.delete("ResourceQuota", "a/q")
        await world.delete("Secret", "a/s")
        await counting.settle(SETTLE_SECONDS)  # without the quota, nothing fails
        await counting.close()


async def test_services_that_change() -> None:
    """A service that releases its node ports reduces the usage at once."""
    async with open_world() as world:
        await make(world, **{"services": "2", "services.nodeports": "4"})
        ports = [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]
        await world.create("Service", "s", "a", spec={"type": "NodePort", "ports": ports})
        counting = await Counting.begin(world)
        await counting.settle()
        assert await counting.used() == {"services": "1", "services.nodeports": "2"}
        await world.edit("Service", "a/s", lambda obj: obj["spec"].update(type="ClusterIP"))
        await counting.settle(CREATE_DELAY_SECONDS)
        assert await counting.used() == {"services": "1", "services.nodeports": "0"}
        await counting.close()


async def test_scoped_quotas_count_pods_alone() -> None:
    """Only pods in the scope count, also when they are removed."""
    async with open_world() as world:
        await world.create("Namespace", "a")
        spec = {"hard": {"pods": "3", "count/configmaps": "1"}, "scopes": ["Terminating"]}
        await world.create("ResourceQuota", "q", "a", spec=spec)
        container = {"name": "c", "image": "i"}
        for name, more in (("long", {}), ("short", {"activeDeadlineSeconds": 5})):
            await world.create("Pod", name, "a", spec={"containers": [container], **more})
        await world.create("ConfigMap", "c", "a")
        counting = await Counting.begin(world)
        await counting.settle()
        assert await counting.used() == {"pods": "1", "count/configmaps": "0"}
        await world.delete("Pod", "a/long")
        await world.delete("ConfigMap", "a/c")
        await counting.settle(CREATE_DELAY_SECONDS)
        assert await counting.used() == {"pods": "1", "count/configmaps": "0"}
        await world.delete("Pod", "a/short")
        await counting.settle(CREATE_DELAY_SECONDS)
        assert await counting.used() == {"pods": "0", "count/configmaps": "0"}
        await counting.close()
