"""Controller of ResourceQuotas: recalculates `status.used` after deletes and periodically.

A create charges the quota before its object is stored (`restow.admission.resource_quota`). A count
may therefore miss objects whose create is in progress, and must not take back their charge:

- usage of removed objects, from watch events, is subtracted from the charged usage;
- usage of objects that exist and were not charged is added;
- usage that was charged without an object, as its create has failed, is subtracted when no quota
  was charged for so long that no create can be in progress.

Everything is counted at one revision; later removals wait for the next count. When in doubt, the
usage stays too high for a while, never too low. Not here: the usage of an object
(`restow.apimachinery.quota_usage`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import quotas
from restow.apimachinery.quotas import Number, Quota
from restow.controllers.object_keys import ObjectLocations
from restow.controllers.object_updates import update_if_present
from restow.controllers.objects_watch import RESYNC_SECONDS
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.stored_bytes import load
from restow.storage.errors import StoreDamaged
from restow.storage.interface import Batch, Event, Revision, Span
from restow.storage.pages import items_below, pages

SETTLE_SECONDS: Final = 75.0
"""More than the longest time between charge and commit of a create: a request has a minute."""
REMOVAL_DELAY_SECONDS: Final = 0.05
"""Delay after a removal, since many usually come together."""
CREATE_DELAY_SECONDS: Final = 1.0
"""Delay after a create or charge; nearly all of these are correct already."""
BEHIND_SECONDS: Final = 0.2
"""When to retry if the newest change of a quota was not observed yet."""
REMOVALS_MAX: Final = 100_000
"""Limit of the pending removals of one quota; further ones are found by counting."""
_PAGE: Final = 500


class _Known(NamedTuple):
    """A quota as it was last observed."""

    quota: Quota
    revision: int
    charged_seconds: float
    """When a charge was last observed; at first, when the quota was first observed."""


class QuotaController:
    """Counts usage of quotas. An observer of all objects; a new one is created for each leader
    term."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        resource = catalog.named("", quotas.PLURAL)
        assert resource is not None, "this release hosts no quotas"
        self._resource = resource
        self._store = store
        self._storage = store.storage
        self._catalog = catalog
        self._places = ObjectLocations(catalog)
        self._varied_roots = tuple(
            each.root
            for each in catalog.persisted()
            if each.origin is None and quotas.is_varied(each.group, each.plural)
        )
        self._clock = runtime.clock
        self._known: dict[str, dict[str, _Known]] = {}
        """By namespace and path of the quota."""
        self._removals: dict[str, list[tuple[int, quotas.Usage]]] = {}
        """By path of a quota: the usage of removed objects, and the revision of the removal."""
        self.queue: WorkQueue[str] = runtime.work_queue("quotas")

    # Events.

    async def list_objects(self, revision: Revision) -> None:
        """Read all quotas, and queue every namespace that has one."""
        self._known.clear()
        self._removals.clear()
        root = self._resource.root
        async for item in items_below(self._storage, root):
            self._note(item.key[len(root) :], item.value, item.revision)
        self.hosting_changed("")

    async def resync(self) -> float:
        """Queue all namespaces with quotas periodically."""
        self.hosting_changed("")
        return RESYNC_SECONDS

    def hosting_changed(self, _group: str) -> None:
        """Queue all namespaces with quotas after a change of the resources of this server."""
        for namespace in self._known:
            self.queue.add(namespace)

    def on_batch(self, batch: Batch) -> None:
        root = self._resource.root
        for event in batch.events:
            if event.key.startswith(root):
                self._on_quota_change(event.key[len(root) :], event)
            # Most changes do not change the usage, which this quick test detects.
            if self._known and (
                event.value is None
                or event.previous is None
                or event.key.startswith(self._varied_roots)
            ):
                self._on_object_change(event)

    def _note(self, path: str, value: bytes, revision: int) -> _Known | None:
        """Record the last observed state of a quota; return None if it cannot be read."""
        obj = _read(value)
        if obj is None:
            return None
        quota, now = quotas.read_quota(obj), self._clock.monotonic()
        here = self._known.setdefault(path.partition("/")[0], {})
        before = here.get(path)
        if before is not None and not quotas.growth(quota.used, before.quota.used):
            now = before.charged_seconds
        here[path] = _Known(quota, revision, now)
        return here[path]

    def _on_quota_change(self, path: str, event: Event) -> None:
        namespace = path.partition("/")[0]
        before = self._known.get(namespace, {}).get(path)
        if event.value is None:
            here = self._known.get(namespace, {})
            here.pop(path, None)
            if not here:
                self._known.pop(namespace, None)
            self._removals.pop(path, None)
            return
        if before is not None and event.revision <= before.revision:
            return
        noted = self._note(path, event.value, event.revision)
        if noted is None:
            return
        is_charged = (
            before is not None
            and noted.quota.hard == before.quota.hard
            and noted.quota.used != before.quota.used
        )
        self.queue.add_after(namespace, CREATE_DELAY_SECONDS if is_charged else 0)

    def _on_object_change(self, event: Event) -> None:
        place = self._places.find(event.key)
        here = None if place is None else self._known.get(place.namespace)
        if place is None or not here:
            return
        group, plural = place.resource.group, place.resource.plural
        is_varied = quotas.is_varied(group, plural)
        before: Object | None = {} if event.previous is not None else None
        now: Object | None = {} if event.value is not None else None
        if is_varied:
            before = None if event.previous is None else _read(event.previous.value)
            now = None if event.value is None else _read(event.value)
        was, used = _usage(group, plural, before), _usage(group, plural, now)
        less = quotas.growth(was, used)
        if less:
            self._subtract(place.namespace, event.revision, less, (group, plural, before or {}))
        elif quotas.growth(used, was):
            self.queue.add_after(place.namespace, CREATE_DELAY_SECONDS)

    def _subtract(
        self, namespace: str, revision: int, less: quotas.Usage, what: tuple[str, str, Object]
    ) -> None:
        for path, known in self._known[namespace].items():
            wanted = known.quota.wanted(less)
            if wanted and known.quota.is_about(*what):
                removals = self._removals.setdefault(path, [])
                if len(removals) < REMOVALS_MAX:
                    removals.append((revision, wanted))
                self.queue.add_after(namespace, REMOVAL_DELAY_SECONDS)

    # Reconciliation.

    async def reconcile(self, namespace: str) -> float | None:
        """Recalculate all quotas of a namespace."""
        revision, again = await self._storage.revision(), list[float]()
        for path in tuple(self._known.get(namespace, ())):
            seconds = await self._count(namespace, path, revision)
            if seconds is not None:
                again.append(seconds)
        return min(again, default=None)

    async def _count(self, namespace: str, path: str, revision: Revision) -> float | None:
        """Recalculate one quota; return the seconds after which to do it again, if necessary."""
        item = await self._storage.get(self._resource.key_of(path), revision=revision)
        obj = None if item is None else _read(item.value)
        if obj is None:
            return None
        found = await self._usage_in(namespace, obj, revision)
        # If the write is lost, it is unknown whether they were subtracted: better not again.
        removals = self._removals.pop(path, [])
        if later := [each for each in removals if each[0] > revision]:
            self._removals[path] = later
        less = [wanted for at, wanted in removals if at <= revision]
        again: list[float] = [REMOVAL_DELAY_SECONDS] if later else []

        def change(current: Object) -> Object:
            del again[bool(later) :]
            wait = self._seconds_to_settle(path, current, revision)
            counted, is_settled = _counted(current, found, less, may_lower=wait <= 0)
            if not is_settled:
                again.append(wait)
            return counted

        written = await update_if_present(
            self._store, self._resource, path, change, subresource="status"
        )
        return None if written is None else min(again, default=None)

    def _seconds_to_settle(self, path: str, current: Object, revision: int) -> float:
        """Return the seconds until no create that charged this quota can be in progress."""
        known = self._known.get(path.partition("/")[0], {}).get(path)
        newest = int(current["metadata"]["resourceVersion"])
        if known is None or known.revision != newest or newest > revision:
            return BEHIND_SECONDS
        return known.charged_seconds + SETTLE_SECONDS - self._clock.monotonic()

    async def _usage_in(self, namespace: str, obj: Object, revision: Revision) -> dict[str, Number]:
        """Return the usage for each name in `hard` whose resource this server can count."""
        hard = (obj.get("spec") or {}).get("hard") or {}
        wanted: dict[tuple[str, str], set[str]] = {}
        for name in hard:
            if (what := quotas.resource_of(name)) is not None:
                wanted.setdefault(what, set()).add(name)
        found: dict[str, Number] = {}
        quota = quotas.read_quota(obj)
        for (group, plural), names in wanted.items():
            resource = self._catalog.named(group, plural)
            if resource is None or not resource.kind.namespaced or not resource.kind.persisted:
                continue
            used = await self._used(namespace, resource, quota, revision)
            found |= {name: used.get(name, 0) for name in names}
        return found

    async def _used(
        self, namespace: str, resource: Resource, quota: Quota, revision: Revision
    ) -> dict[str, Number]:
        group, plural = resource.group, resource.plural
        span = Span.of_prefix(f"{resource.root}{namespace}/")
        if not quotas.is_varied(group, plural):
            if quota.scopes:
                return {}
            count = await self._storage.count(span, revision=revision)
            return dict.fromkeys(quotas.names_of(group, plural), count)
        found: dict[str, Number] = {}
        async for page in pages(self._storage, span, limit=_PAGE, revision=revision):
            for item in page.items:
                obj = _read(item.value) or {}
                if quota.is_about(group, plural, obj):
                    for name, more in quotas.usage_of(group, plural, obj).items():
                        found[name] = found.get(name, 0) + more
            await self._clock.sleep(0)
        return found


def hosts_quotas(catalog: Catalog) -> bool:
    return catalog.named("", quotas.PLURAL) is not None


def _counted(
    obj: Object, found: quotas.Usage, removals: list[quotas.Usage], *, may_lower: bool
) -> tuple[Object, bool]:
    """Return a quota with its usage, and whether that is equal to the count."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    hard, charged = spec.get("hard") or {}, quotas.read_quota(obj)
    # Another controller may count the names that this server cannot count.
    used = {name: value for name, value in (status.get("used") or {}).items() if name in hard}
    is_settled = True
    for name, count in found.items():
        value: Number = count
        if name in charged.used and name in charged.hard:
            less = sum(each.get(name, 0) for each in removals)
            value = max(charged.used[name] - less, count)
            if value > count and may_lower:
                value = count
            is_settled = is_settled and value == count
        used[name] = quotas.text(name, value)
    new = {**status, "hard": hard, "used": used}
    return (obj if new == status else {**obj, "status": new}), is_settled


def _usage(group: str, plural: str, obj: Object | None) -> dict[str, Number]:
    return {} if obj is None else quotas.usage_of(group, plural, obj)


def _read(value: bytes) -> Object | None:
    """Decode a stored object; None if it cannot be decrypted now or is not an object."""
    try:
        found = load(value)
    except StoreDamaged:
        return None
    return found if isinstance(found, dict) else None
