"""What this server has seen of the agreements: for metrics, and for Kubernetes Events.

`Agreements` follows the epochs in the mirror. `Announcer` makes an Event of each agreement that was
lost or reached.
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
_NOTHING: Final = Agreement("(nobody reports)")
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
    """Tells of agreements that were lost and reached.

    Every server sees the same changes and names the Event after the epoch, so it exists once
    whoever is the first to make it. The others are given time to be spared the work.
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
        """What was agreed on when last seen, of resources that somebody reports."""
        for item in mirror.under(EPOCHS_PREFIX):
            with suppress(StorageError):  # One that cannot be read is nothing to tell about.
                self._learn(MirrorView.of(mirror, item.key.removeprefix(EPOCHS_PREFIX)))
        mirror.listeners.append(self._note)

    def _note(self, key: Key, item: Item | None) -> None:
        if item is None or not key.startswith(EPOCHS_PREFIX):
            return
        try:
            self._queue.put_nowait(item)
        except QueueFull:
            logger.warning("too much to tell: the change of %s is left out", key)

    async def run(self, collects_first: Callable[[], bool]) -> None:
        """Tell for ever; `leads` says whether this server is the one to do it first."""
        while True:
            item = await self._queue.get()
            await self._mirror.reach(item.revision, seconds=CATCH_UP_SECONDS)
            try:
                view = MirrorView.of(self._mirror, item.key.removeprefix(EPOCHS_PREFIX))
            except StorageError as error:
                logger.warning("nothing can be told about %s: %s", item.key, error)
                continue
            before = self._known.get(view.name, _NOTHING)
            self._learn(view)
            after = self._known.get(view.name, _NOTHING)
            # The first to report, and the last to go, are no news.
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
                # This server starts, and may not write Events yet; the others may be gone soon.
                await self._runtime.clock.sleep(ANNOUNCE_AGAIN_SECONDS)
            except StatusError as error:
                return logger.warning("no event for %s: %s", view.name, error)
        logger.warning("no event for %s: none could be written", view.name)
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
