"""Metrics and Kubernetes Events about the agreements of the servers.

`Agreements` follows the epochs in the mirror. `Announcer` creates an Event for each agreement that
is lost or reached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from restow.aio import BoundedQueue, Clock, QueueFull, Runtime
from restow.apimachinery.status import AlreadyExists, ServiceUnavailable
from restow.apimachinery.status_error import StatusError
from restow.apis import internal_v1alpha1
from restow.registry.catalog import Catalog
from restow.registry.store import ResourceStore
from restow.storage.errors import StorageError
from restow.storage.interface import Item, Key
from restow.storageversion.changes import MirrorView
from restow.storageversion.mirror import Mirror
from restow.storageversion.object_codec import timestamp
from restow.storageversion.records import EPOCHS_PREFIX, decode_epoch
from restow.storageversion.rules import Agreement

QUEUE_MAX: Final = 10_000
CATCH_UP_SECONDS: Final = 2.0
SPARE_SECONDS: Final = 2.0
ANNOUNCE_ATTEMPTS_MAX: Final = 50
ANNOUNCE_AGAIN_SECONDS: Final = 0.2
_NOTHING: Final = Agreement("(no entries)")
EVENT_NAMESPACE: Final = "default"
REPORTER: Final = "restow"

logger = logging.getLogger(__name__)


class Agreements:
    """Records which resources have an agreement, and how long the servers took to reach it."""

    def __init__(self, mirror: Mirror, clock: Clock) -> None:
        self._clock = clock
        self.agreed: dict[str, bool] = {}
        """By resource name."""
        self.seconds_to_agree: dict[str, float] = {}
        """Duration of the last disagreement per resource, as this server observed it."""
        self._lost_at: dict[str, float] = {}
        mirror.changed.subscribe(self._note)

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
    """Creates an Event when the servers lose or reach an agreement.

    Every server observes the same changes and names the Event after the epoch, so that only one
    Event exists, whichever server creates it. The server that does not collect first waits
    `SPARE_SECONDS`, to save a duplicate request.
    """

    def __init__(
        self, mirror: Mirror, store: ResourceStore, catalog: Catalog, runtime: Runtime
    ) -> None:
        self._mirror = mirror
        self._store = store
        self._catalog = catalog
        self._runtime = runtime
        self._queue: BoundedQueue[Item] = BoundedQueue("announcements", items_max=QUEUE_MAX)
        self._known: dict[str, Agreement | None] = {}
        """The last observed agreement of each resource that has a StorageVersion."""
        for item in mirror.under(EPOCHS_PREFIX):
            with suppress(StorageError):  # An unreadable StorageVersion gets no Event.
                self._learn(MirrorView.of(mirror, item.key.removeprefix(EPOCHS_PREFIX)))
        mirror.changed.subscribe(self._note)

    def _note(self, key: Key, item: Item | None) -> None:
        if item is None or not key.startswith(EPOCHS_PREFIX):
            return
        try:
            self._queue.put_nowait(item)
        except QueueFull:
            logger.warning("announcement queue is full: no Event for the change of %s", key)

    async def run(self, collects_first: Callable[[], bool]) -> None:
        """Create Events until cancelled; `collects_first` returns whether this server is the first
        to act."""
        while True:
            item = await self._queue.get()
            await self._mirror.reach(item.revision, seconds=CATCH_UP_SECONDS)
            try:
                view = MirrorView.of(self._mirror, item.key.removeprefix(EPOCHS_PREFIX))
            except StorageError as error:
                logger.warning("cannot read %s, so its change gets no Event: %s", item.key, error)
                continue
            before = self._known.get(view.name, _NOTHING)
            self._learn(view)
            after = self._known.get(view.name, _NOTHING)
            # The first entry and the removal of the last one are not a change of agreement.
            if before is _NOTHING or after is _NOTHING or before == after:
                continue
            if not collects_first():
                await self._runtime.clock.sleep(SPARE_SECONDS)
            await self._try_to_announce(view)

    async def _try_to_announce(self, view: MirrorView) -> None:
        for _ in range(ANNOUNCE_ATTEMPTS_MAX):
            try:
                return await self._announce(view)
            except AlreadyExists:
                return None
            except ServiceUnavailable:
                # This server is starting and may not write Events yet; other servers may be
                # shutting down.
                await self._runtime.clock.sleep(ANNOUNCE_AGAIN_SECONDS)
            except StatusError as error:
                return logger.warning("no Event for %s: %s", view.name, error)
        logger.warning("no Event for %s: %d attempts failed", view.name, ANNOUNCE_ATTEMPTS_MAX)
        return None

    def _learn(self, view: MirrorView) -> None:
        if view.report.entries:
            self._known[view.name] = view.report.agreement
        else:
            self._known.pop(view.name, None)

    async def _announce(self, view: MirrorView) -> None:
        name, report = view.name, view.report
        resource = self._catalog.of_kind("", "Event")
        if resource is None:
            return
        if report.agreement is not None:
            kind, reason = "Normal", "StorageVersionAgreed"
            message = f"all servers write {name} in {report.agreement.version}"
        else:
            kind, reason = "Warning", "StorageVersionAgreementLost"
            versions = sorted({version for entry in report.entries for version in entry.written})
            message = f"servers write {name} in {', '.join(versions)}"
        now = self._runtime.clock.wall()
        event = {
            "metadata": {"name": f"{name}.epoch-{report.epoch}", "namespace": EVENT_NAMESPACE},
            "involvedObject": {
                "kind": internal_v1alpha1.KIND,
                "apiVersion": internal_v1alpha1.API_VERSION,
                "name": name,
                "uid": "" if view.stored is None else view.stored.metadata.get("uid", ""),
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": REPORTER},
            "firstTimestamp": timestamp(now),
            "lastTimestamp": timestamp(now),
            "count": 1,
        }
        version = resource.own_version
        await self._store.create(resource, version, event, namespace=EVENT_NAMESPACE)
