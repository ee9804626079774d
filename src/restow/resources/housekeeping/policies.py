"""Policies of admission say which generation of them was looked at.

Every expression of a policy is compiled when it is written, so all that is left to say is that this
has happened. Not here: types of objects, which expressions are not checked against.
"""

from __future__ import annotations

from typing import Final

from restow.machinery import status
from restow.resources.catalog import Catalog
from restow.resources.definition import Object, Resource
from restow.resources.housekeeping.places import working_version
from restow.resources.store import ResourceStore
from restow.runtime import Runtime, WorkQueue
from restow.storage.interface import Batch, Revision

GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = "validatingadmissionpolicies"
LOOK_SECONDS: Final = 300.0


def hosts_policies(catalog: Catalog) -> bool:
    """Whether there is anything to look after."""
    return catalog.named(GROUP, POLICIES) is not None


class PolicyKeeper:
    """Keeps `status.observedGeneration`. An observer of all objects."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        found = catalog.named(GROUP, POLICIES)
        assert found is not None, "asked without policies to look after"
        self._resource: Resource = found
        self._store = store
        self.queue: WorkQueue[str] = WorkQueue(
            "policies", clock=runtime.clock, randomness=runtime.randomness
        )

    async def look(self, revision: Revision) -> None:
        """Queue every policy that was not looked at."""
        cache = await self._store.read(self._resource)
        for path, entry in zip(*cache.select()[:2], strict=True):
            if _observed(self._store.object_of(self._resource, entry, entry[1])) is not None:
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
        """Say that one policy was looked at."""
        cache = await self._store.read(self._resource)
        entry = cache.get(name)
        if entry is None:
            return None
        if _observed(self._store.object_of(self._resource, entry, entry[1])) is None:
            return None
        try:
            await self._store.update(
                self._resource,
                working_version(self._resource),
                name,
                lambda current: _observed(current) or current,
                subresource="status",
                is_patch=True,
            )
        except status.NotFound:
            return None
        return None


def _observed(policy: Object) -> Object | None:
    """A policy that says what was looked at; None if it does."""
    generation = policy["metadata"].get("generation")
    said = policy.get("status") or {}
    if generation is None or said.get("observedGeneration") == generation:
        return None
    return {**policy, "status": {**said, "observedGeneration": generation}}
