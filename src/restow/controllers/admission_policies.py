"""Controller of ValidatingAdmissionPolicies: writes `observedGeneration` and the type check
results.

Every expression of a policy is compiled when it is written. Afterwards this controller checks it
with the types of the matched resources and writes the warnings into the status. Not here: the type
check itself (`policy_types`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import status
from restow.controllers.object_updates import update_if_present
from restow.controllers.objects_watch import Relisting, queue_changes
from restow.controllers.policy_types import check
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.storage.interface import Batch, Revision

GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = "validatingadmissionpolicies"


def hosts_policies(catalog: Catalog) -> bool:
    """Whether the release hosts policies."""
    return catalog.named(GROUP, POLICIES) is not None


class PolicyController(Relisting):
    """Keeps `status.observedGeneration` and `status.typeChecking`. An observer of all objects."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        found = catalog.named(GROUP, POLICIES)
        assert found is not None, "this release hosts no policies"
        self._resource: Resource = found
        self._store = store
        self._catalog = catalog
        self._clock = runtime.clock
        self.queue: WorkQueue[str] = runtime.work_queue("policies")

    async def list_objects(self, revision: Revision) -> None:
        """Queue every policy whose current generation was not checked."""
        cache = await self._store.read(self._resource)
        for path, entry in zip(*cache.select()[:2], strict=True):
            if not _is_observed(self._store.object_of(self._resource, entry, entry[1])):
                self.queue.add(path)

    def on_batch(self, batch: Batch) -> None:
        queue_changes(self.queue, self._resource.root, batch)

    async def reconcile(self, name: str) -> float | None:
        """Check one policy and write the result into its status."""
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
            await self._write_result(name, generation, warnings)
        except status.RequestEntityTooLarge:
            # The object has no space left for the warnings; record only the generation.
            await self._write_result(name, generation, [])
        return None

    async def _write_result(
        self, name: str, generation: int, warnings: list[dict[str, Any]]
    ) -> None:
        """Write the result into the status of a policy, if the policy still exists."""
        await update_if_present(
            self._store,
            self._resource,
            name,
            lambda current: _observed(current, generation, warnings),
            subresource="status",
        )

    async def _check(self, spec: Object) -> list[dict[str, Any]]:
        """Return all warnings about a policy; yields to other tasks in between."""
        warnings = []
        for warning in check(spec, self._catalog):
            if warning is not None:
                warnings.append(warning)
            await self._clock.sleep(0)
        return warnings


def _is_observed(policy: Object) -> bool:
    """Whether the status is about the current generation. Older releases checked no types."""
    generation = policy["metadata"].get("generation")
    old_status = policy.get("status") or {}
    if generation is None:
        return True
    return old_status.get("observedGeneration") == generation and "typeChecking" in old_status


def _observed(policy: Object, generation: int, warnings: list[dict[str, Any]]) -> Object:
    """Return a policy with the result in its status. A policy that has changed meanwhile is
    returned unchanged, as its new generation is queued."""
    if policy["metadata"].get("generation") != generation:
        return policy
    old_status = policy.get("status") or {}
    checked = {"expressionWarnings": warnings} if warnings else {}
    return {
        **policy,
        "status": {**old_status, "observedGeneration": generation, "typeChecking": checked},
    }
