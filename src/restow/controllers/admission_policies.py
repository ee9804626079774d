"""Policies of admission say which generation of them was looked at, and what was found.

Every expression of a policy is compiled when it is written. Afterwards they are checked with the
types of the objects that the policy is about, and what is found is said in its status. Not here:
how they are checked (`policy_types`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import status
from restow.controllers.object_updates import update_if_present
from restow.controllers.policy_types import check
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.storage.interface import Batch, Revision

GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = "validatingadmissionpolicies"
LOOK_SECONDS: Final = 300.0


def hosts_policies(catalog: Catalog) -> bool:
    """Whether there is anything to look after."""
    return catalog.named(GROUP, POLICIES) is not None


class PolicyController:
    """Keeps `status.observedGeneration` and `status.typeChecking`. An observer of all objects."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        found = catalog.named(GROUP, POLICIES)
        assert found is not None, "asked without policies to look after"
        self._resource: Resource = found
        self._store = store
        self._catalog = catalog
        self._clock = runtime.clock
        self.queue: WorkQueue[str] = runtime.work_queue("policies")

    async def look(self, revision: Revision) -> None:
        """Queue every policy that was not looked at."""
        cache = await self._store.read(self._resource)
        for path, entry in zip(*cache.select()[:2], strict=True):
            if not _is_observed(self._store.object_of(self._resource, entry, entry[1])):
                self.queue.add(path)

    async def look_again(self) -> float:
        """The periodic look."""
        await self.look(Revision(0))
        return LOOK_SECONDS

    def see(self, batch: Batch) -> None:
        root = self._resource.root
        for event in batch.events:
            if event.key.startswith(root):
                self.queue.add(event.key[len(root) :])

    async def reconcile(self, name: str) -> float | None:
        """Look at one policy, and say what was found."""
        cache = await self._store.read(self._resource)
        entry = cache.get(name)
        if entry is None:
            return None
        policy = self._store.object_of(self._resource, entry, entry[1])
        if _is_observed(policy):
            return None
        generation = policy["metadata"]["generation"]
        warnings = await self._check(policy.get("spec") or {})
        try:
            await self._say(name, generation, warnings)
        except status.RequestEntityTooLarge:
            # There is no room for them beside the policy; that it was looked at has some.
            await self._say(name, generation, [])
        return None

    async def _say(self, name: str, generation: int, warnings: list[dict[str, Any]]) -> None:
        """Write what was found into the status of a policy, if it is still there."""
        await update_if_present(
            self._store,
            self._resource,
            name,
            lambda current: _observed(current, generation, warnings),
            subresource="status",
        )

    async def _check(self, spec: Object) -> list[dict[str, Any]]:
        """All warnings about a policy; requests are answered meanwhile."""
        warnings = []
        for warning in check(spec, self._catalog):
            if warning is not None:
                warnings.append(warning)
            await self._clock.sleep(0)
        return warnings


def _is_observed(policy: Object) -> bool:
    """Whether its status is about what it is now. A release before this one checked no types."""
    generation = policy["metadata"].get("generation")
    said = policy.get("status") or {}
    if generation is None:
        return True
    return said.get("observedGeneration") == generation and "typeChecking" in said


def _observed(policy: Object, generation: int, warnings: list[dict[str, Any]]) -> Object:
    """A policy that says what was found; as it was if it has changed meanwhile, for then it is
    looked at again."""
    if policy["metadata"].get("generation") != generation:
        return policy
    said = policy.get("status") or {}
    checked = {"expressionWarnings": warnings} if warnings else {}
    return {
        **policy,
        "status": {**said, "observedGeneration": generation, "typeChecking": checked},
    }
