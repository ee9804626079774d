"""What quotas have charged is counted anew: when objects go, when a quota changes, now and then.

Creates charge a quota before their object is there (`restow.admission.resource_quota`). So what is
counted may miss objects that are on their way, and a count alone must not take their charge back:

- what has gone, by the changes that were seen, is taken off what was charged;
- what is there and was not charged is added;
- what was charged and is not there, as its create has failed, is taken off when no quota was
  charged for so long that no create can be on its way.

All is counted at one revision; removals after it wait for the next count. Where it is in doubt, a
quota stays too high for a while, never too low. Not here: what objects use
(`restow.apimachinery.quotas`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import quotas
from restow.apimachinery.quotas import Number, Quota
from restow.controllers.object_keys import ObjectLocations
from restow.controllers.object_updates import update_if_present
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.stored_bytes import load
from restow.storage.errors import StoreDamaged
from restow.storage.interface import Batch, Event, Revision, Span
from restow.storage.pages import items_below, pages

LOOK_SECONDS: Final = 300.0
SETTLE_SECONDS: Final = 75.0
"""Longer than a create may take between its charge and its commit: a request has a minute."""
GONE_SECONDS: Final = 0.05
"""So long removals are gathered: they come in crowds."""
COME_SECONDS: Final = 1.0
"""The same for what was created or charged: nearly all of that is right already."""
BEHIND_SECONDS: Final = 0.2
"""When to look again if the newest change of a quota was not seen yet."""
REMOVALS_MAX: Final = 100_000
"""Of one quota, that wait to be taken off; what is more is found by counting."""
_PAGE: Final = 500


class _Known(NamedTuple):
    """A quota as it was last seen."""

    quota: Quota
    revision: int
    charged_seconds: float
    """When it was last seen to be charged, or seen for the first time."""


class QuotaController:
    """Counts what quotas limit. An observer of all objects; made anew for each turn."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        resource = catalog.named("", quotas.PLURAL)
        assert resource is not None, "asked for only where there are some"
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
        """By namespace and path."""
        self._gone: dict[str, list[tuple[int, quotas.Usage]]] = {}
        """By path of a quota: what has gone of what it limits, and at which revision."""
        self.queue: WorkQueue[str] = runtime.work_queue("quotas")

    # Noticing.

    async def look(self, revision: Revision) -> None:
        """Read all quotas, and count in every namespace that has one."""
        self._known.clear()
        self._gone.clear()
        root = self._resource.root
        async for item in items_below(self._storage, root):
            self._note(item.key[len(root) :], item.value, item.revision)
        await self.look_again()

    async def look_again(self) -> float:
        """The periodic look."""
        for namespace in self._known:
            self.queue.add(namespace)
        return LOOK_SECONDS

    def hosting_changed(self, _group: str) -> None:
        """Something else can be counted here than before."""
        for namespace in self._known:
            self.queue.add(namespace)

    def see(self, batch: Batch) -> None:
        root = self._resource.root
        for event in batch.events:
            if event.key.startswith(root):
                self._see_quota(event.key[len(root) :], event)
            # Most changes are of objects that use as much as before: that is seen at once.
            if self._known and (
                event.value is None
                or event.previous is None
                or event.key.startswith(self._varied_roots)
            ):
                self._see_object(event)

    def _note(self, path: str, value: bytes, revision: int) -> _Known | None:
        """Remember a quota; None for what cannot be read."""
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

    def _see_quota(self, path: str, event: Event) -> None:
        namespace = path.partition("/")[0]
        before = self._known.get(namespace, {}).get(path)
        if event.value is None:
            here = self._known.get(namespace, {})
            here.pop(path, None)
            if not here:
                self._known.pop(namespace, None)
            self._gone.pop(path, None)
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
        self.queue.add_after(namespace, COME_SECONDS if is_charged else 0)

    def _see_object(self, event: Event) -> None:
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
            self._take_off(place.namespace, event.revision, less, (group, plural, before or {}))
        elif quotas.growth(used, was):
            self.queue.add_after(place.namespace, COME_SECONDS)

    def _take_off(
        self, namespace: str, revision: int, less: quotas.Usage, what: tuple[str, str, Object]
    ) -> None:
        for path, known in self._known[namespace].items():
            wanted = known.quota.wanted(less)
            if wanted and known.quota.is_about(*what):
                gone = self._gone.setdefault(path, [])
                if len(gone) < REMOVALS_MAX:
                    gone.append((revision, wanted))
                self.queue.add_after(namespace, GONE_SECONDS)

    # Acting.

    async def reconcile(self, namespace: str) -> float | None:
        """Count what all quotas of a namespace limit."""
        revision, again = await self._storage.revision(), list[float]()
        for path in tuple(self._known.get(namespace, ())):
            seconds = await self._count(namespace, path, revision)
            if seconds is not None:
                again.append(seconds)
        return min(again, default=None)

    async def _count(self, namespace: str, path: str, revision: Revision) -> float | None:
        """Put one quota right. Seconds, if it is to be looked at again."""
        item = await self._storage.get(self._resource.key_of(path), revision=revision)
        obj = None if item is None else _read(item.value)
        if obj is None:
            return None
        found = await self._usage_in(namespace, obj, revision)
        # If the write is lost, it is not known whether they were taken off: better too few.
        gone = self._gone.pop(path, [])
        if later := [each for each in gone if each[0] > revision]:
            self._gone[path] = later
        less = [wanted for at, wanted in gone if at <= revision]
        again: list[float] = [GONE_SECONDS] if later else []

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
        """How long a create may still be on its way that this quota was charged for."""
        known = self._known.get(path.partition("/")[0], {}).get(path)
        newest = int(current["metadata"]["resourceVersion"])
        if known is None or known.revision != newest or newest > revision:
            return BEHIND_SECONDS
        return known.charged_seconds + SETTLE_SECONDS - self._clock.monotonic()

    async def _usage_in(self, namespace: str, obj: Object, revision: Revision) -> dict[str, Number]:
        """What is used of all that a quota limits, by its name; only what can be counted here."""
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
    obj: Object, found: quotas.Usage, gone: list[quotas.Usage], *, may_lower: bool
) -> tuple[Object, bool]:
    """A quota with what it has used, and whether that is what was found."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    hard, charged = spec.get("hard") or {}, quotas.read_quota(obj)
    # Somebody else may count what is not counted here.
    used = {name: value for name, value in (status.get("used") or {}).items() if name in hard}
    is_settled = True
    for name, count in found.items():
        value: Number = count
        if name in charged.used and name in charged.hard:
            less = sum(each.get(name, 0) for each in gone)
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
    """A stored object; None for one that cannot be opened just now, or is none."""
    try:
        found = load(value)
    except StoreDamaged:
        return None
    return found if isinstance(found, dict) else None
