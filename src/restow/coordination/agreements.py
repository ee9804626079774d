"""What this server has seen of the agreements: for metrics, and for Kubernetes Events.

`Agreements` follows the epochs in the mirror. `Announcer` makes an Event of each agreement that was
lost or reached; the server that made the change tells of it, so that it is told once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from restow.coordination.changes import Change
from restow.coordination.mirror import Mirror
from restow.coordination.records import EPOCHS_PREFIX, decode_epoch
from restow.coordination.wire import micro_timestamp, timestamp
from restow.machinery.status_error import StatusError
from restow.resources.catalog import Catalog
from restow.resources.store import ResourceStore
from restow.runtime import BoundedQueue, Clock, QueueFull, Runtime
from restow.storage.interface import Item, Key

ANNOUNCEMENTS_MAX: Final = 1000
EVENT_NAMESPACE: Final = "default"
REPORTER: Final = "restow"

logger = logging.getLogger(__name__)


class Agreements:
    """Since when servers agree on what, and how long it took them."""

    def __init__(self, mirror: Mirror, clock: Clock) -> None:
        self._clock = clock
        self.agreed: dict[str, bool] = {}
        """By resource name."""
        self.seconds_to_agree: dict[str, float] = {}
        """How long the last disagreement has lasted, as seen here."""
        self._lost_at: dict[str, float] = {}
        mirror.listeners.append(self._note)

    def _note(self, key: Key, item: Item | None) -> None:
        if not key.startswith(EPOCHS_PREFIX) or item is None:
            return
        name, agreed = key.removeprefix(EPOCHS_PREFIX), decode_epoch(item.value).agreement
        now = self._clock.monotonic()
        if agreed is None:
            self._lost_at.setdefault(name, now)
        elif name in self._lost_at:
            self.seconds_to_agree[name] = now - self._lost_at.pop(name)
        self.agreed[name] = agreed is not None


class Announcer:
    """Tells of agreements that were lost and reached."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        self._store = store
        self._catalog = catalog
        self._runtime = runtime
        self._queue: BoundedQueue[Change] = BoundedQueue(
            "announcements", items_max=ANNOUNCEMENTS_MAX
        )
        self.instance: Callable[[], str] = lambda: REPORTER
        """Which server tells."""

    def note(self, change: Change) -> None:
        """Take note of a change; the first report of a resource is no news."""
        if not change.agreement_moved or not change.before.entries or not change.after.entries:
            return
        try:
            self._queue.put_nowait(change)
        except QueueFull:
            logger.warning("too much to tell: the change of %s is left out", change.name)

    async def run(self) -> None:
        while True:
            change = await self._queue.get()
            try:
                await self._tell(change)
            except StatusError as error:
                logger.warning("no event for %s: %s", change.name, error)

    async def _tell(self, change: Change) -> None:
        resource = self._catalog.of_kind("", "Event")
        if resource is None:
            return
        before, after, now = change.before, change.after, self._runtime.clock.wall()
        if after.agreement is not None:
            kind, reason = "Normal", "StorageVersionAgreed"
            message = f"all servers write {change.name} in {after.agreement.version}"
        else:
            kind, reason = "Warning", "StorageVersionAgreementLost"
            versions = sorted({entry.encoding_version for entry in after.entries})
            message = f"servers write {change.name} in {', '.join(versions)}"
            if before.agreement is not None:
                message += f"; before, all wrote {before.agreement.version}"
        event = {
            "metadata": {
                "name": f"{change.name}.{self._runtime.ids.nonce(8)}",
                "namespace": EVENT_NAMESPACE,
            },
            "involvedObject": {
                "kind": "StorageVersion",
                "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
                "name": change.name,
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": REPORTER},
            "reportingComponent": REPORTER,
            "reportingInstance": self.instance(),
            "firstTimestamp": timestamp(now),
            "lastTimestamp": timestamp(now),
            "eventTime": micro_timestamp(now),
            "action": "Report",
            "count": 1,
        }
        version = resource.served[0]
        await self._store.create(resource, version, event, namespace=EVENT_NAMESPACE)
