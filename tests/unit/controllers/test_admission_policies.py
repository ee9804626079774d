"""The status of a policy has the generation that was checked."""

from __future__ import annotations

from typing import Any

from restow.controllers.admission_policies import PolicyController
from restow.storage.interface import Revision
from tests.unit.controllers.world import open_world

GROUP = "admissionregistration.k8s.io"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["configmaps"],
}
MATCH = {
    "matchPolicy": "Exact",
    "namespaceSelector": {},
    "objectSelector": {},
    "resourceRules": [RULE],
}
SPEC: dict[str, Any] = {
    "failurePolicy": "Fail",
    "matchConstraints": MATCH,
    "validations": [{"expression": "true"}],
}


async def test_the_generation_is_observed() -> None:
    """It is written once, and again after a change of the policy; nothing else is written."""
    async with open_world() as world:
        resource = world.catalog.named(GROUP, "validatingadmissionpolicies")
        assert resource is not None
        controller = PolicyController(world.store, world.catalog, world.runtime)
        body = {"metadata": {"name": "p"}, "spec": SPEC}
        await world.store.create(resource, "v1", body, namespace="")

        async def observed() -> tuple[int, int]:
            entry = (await world.store.read(resource)).get("p")
            assert entry is not None
            found = world.store.object_of(resource, entry, entry[1])
            return found["status"]["observedGeneration"], entry[0]

        await controller.list_objects(Revision(0))
        assert await controller.queue.get() == "p"
        await controller.reconcile("p")
        generation, revision = await observed()
        assert generation == 1
        await controller.reconcile("p")
        await controller.reconcile("missing")
        assert await observed() == (1, revision)
        await world.store.update(
            resource,
            "v1",
            "p",
            lambda current: {**current, "spec": {**current["spec"], "failurePolicy": "Ignore"}},
            is_patch=True,
        )
        await controller.reconcile("p")
        assert (await observed())[0] == 2
