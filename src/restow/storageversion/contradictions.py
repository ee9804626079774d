"""Correction of a StorageState that lists less than a scan has found stored.

The correction adds "Unknown" to the state, so that no check passes because of it and a migration
starts. An Event, a metric and the log report it. It never happens on a healthy cluster: either
restow has a defect, or a program writes to the store without going through the servers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from restow.aio import Runtime
from restow.apimachinery.names import GroupResource
from restow.apimachinery.status import AlreadyExists
from restow.apimachinery.status_error import StatusError
from restow.apis import migration_v1alpha1
from restow.apis.storage_scan import Contradiction
from restow.registry.catalog import Catalog
from restow.registry.store import ResourceStore
from restow.storage.errors import StorageError, Unavailable
from restow.storage.interface import Done, Refused
from restow.storageversion.changes import MirrorView, contradicted_change
from restow.storageversion.mirror import Mirror
from restow.storageversion.object_codec import timestamp
from restow.storageversion.records import name_of

ATTEMPTS_MAX: Final = 20
CATCH_UP_SECONDS: Final = 2.0
EVENT_NAMESPACE: Final = "default"
REASON: Final = "StorageStateContradicted"

logger = logging.getLogger(__name__)


class Contradictions:
    """Corrects StorageStates and reports each correction."""

    def __init__(
        self, mirror: Mirror, store: ResourceStore, catalog: Catalog, runtime: Runtime
    ) -> None:
        # StorageStates are pinned, so they are never encrypted.
        self._storage = store.storage if store.sealed is None else store.sealed.storage
        self._mirror = mirror
        self._store = store
        self._catalog = catalog
        self._runtime = runtime
        self.corrected = 0
        """StorageStates to which this server had to add "Unknown"."""

    async def correct(self, found: Sequence[Contradiction]) -> None:
        """Add "Unknown" to the states of these resources. Raises a StorageError."""
        by_resource: dict[GroupResource, list[Contradiction]] = {}
        for each in found:
            by_resource.setdefault(GroupResource(each.group, each.resource), []).append(each)
        for resource, alike in by_resource.items():
            view = await self._correct(resource)
            if view is not None:
                self.corrected += 1
                message = _message(resource, alike)
                logger.error("%s", message)
                await self._record(resource, view, message)

    async def _correct(self, resource: GroupResource) -> MirrorView | None:
        """Return the state before the correction; None if it needed none."""
        name = name_of(resource)
        for _ in range(ATTEMPTS_MAX):
            view = MirrorView.of(self._mirror, name)
            transaction = contradicted_change(view)
            if transaction is None:
                return None
            outcome = await self._storage.commit(transaction)
            if isinstance(outcome, Done):
                return view
            revision = (
                outcome.revision if isinstance(outcome, Refused) else await self._storage.revision()
            )
            await self._mirror.reach(revision, seconds=CATCH_UP_SECONDS)
        raise Unavailable(f"the StorageState of {resource} was changed {ATTEMPTS_MAX} times")

    async def _record(self, resource: GroupResource, view: MirrorView, message: str) -> None:
        """Create an Event; a failure is logged and otherwise ignored."""
        events = self._catalog.of_kind("", "Event")
        if events is None or view.state is None:
            return
        now = timestamp(self._runtime.clock.wall())
        event: dict[str, Any] = {
            "metadata": {
                "name": f"{resource}.contradicted-{view.report.epoch}",
                "namespace": EVENT_NAMESPACE,
            },
            "involvedObject": {
                "kind": migration_v1alpha1.STORAGE_STATE,
                "apiVersion": migration_v1alpha1.API_VERSION,
                "name": str(resource),
                "uid": view.state.metadata.get("uid", ""),
            },
            "reason": REASON,
            "message": message,
            "type": "Warning",
            "source": {"component": "restow"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._store.create(events, events.own_version, event, namespace=EVENT_NAMESPACE)
        except AlreadyExists:
            return
        except (StatusError, StorageError) as error:
            logger.warning("no Event for %s: %s", resource, error)


def _message(resource: GroupResource, found: Sequence[Contradiction]) -> str:
    stored = "; ".join(each.text for each in found)
    example = next((key for each in found for key in each.examples), "")
    return (
        f"objects of {resource} are stored in versions or under encryption keys that its"
        f" StorageState does not list: {stored}; for example {example};"
        ' "Unknown" was added to the StorageState'
    )
