"""ResourceQuota admission: limits the number of objects in a namespace and what they request.

It runs last. Before an object is created, each ResourceQuota of its namespace that limits it is
charged: its `status.used` is raised by an update with a precondition, so that all servers together
stay within the limit. Concurrent writes in one namespace are charged in one update, and all its
quotas in parallel. A create whose name is already taken returns its charge. A create that fails
with an unknown outcome keeps its charge until the quota controller recalculates usage
(`restow.controllers.quotas`). A dry run is refused like any other write and charges nothing.

The limits come from the status of a quota, so a quota takes effect when its usage was first
calculated. While no quota limits a resource in any namespace, its writes skip this plug-in.

Not here: the usage of objects, and the messages of a refusal (`restow.apimachinery.quotas`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from restow.admission.review import Attributes, WriteOf, forbidden
from restow.aio import Runtime, TasksClosed, TasksFull
from restow.apimachinery import quotas, status
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.quotas import Number, Quota, Usage
from restow.apimachinery.status_error import StatusError
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.store_informer import StoreInformer
from restow.request.context import Context

BATCH_MAX: Final = 1_000
"""Maximum number of writes charged in one update."""
PARALLEL_QUOTAS_MAX: Final = 32
"""Maximum number of quotas of a namespace charged in parallel."""
NAMESPACES_MAX: Final = 1_000
"""Maximum number of namespaces charged in parallel."""

logger = logging.getLogger(__name__)

Charges = Mapping[str, Usage]
"""The usage to charge, by the path of a quota."""


@dataclass(slots=True)
class _Charge:
    """One write that waits until it is charged."""

    attributes: Attributes
    charges: Charges
    done: asyncio.Future[None]
    charged: dict[str, Usage] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    """By path: the uid of the charged quota, in case it is replaced by another of the same name."""
    refusal: StatusError | None = None


class QuotaAdmission:
    """Charge quotas, and refuse writes that exceed them. Satisfies `Admission`."""

    def __init__(
        self,
        store: ResourceStore,
        resource: Resource,
        runtime: Runtime,
        *,
        on_changed: Callable[[], None],
    ) -> None:
        """`on_changed` is called when the set of limited resources changes."""
        self._store = store
        self._resource = resource
        self._version = GroupVersion.parse(resource.storage_api_version).version
        self._on_changed = on_changed
        self._tasks = runtime.tasks(
            "quota", tasks_max=NAMESPACES_MAX, on_failure=lambda _failure: None
        )
        self._informer = StoreInformer(store, resource, runtime, on_object=self._on_quota)
        self._quotas: dict[str, dict[str, Quota]] = {}
        """By namespace and path."""
        self._limits: dict[str, int] = {}
        """By quota resource name: the number of quotas that limit it."""
        self._pending: dict[str, list[_Charge]] = {}
        """The pending charges, by namespace."""

    async def start(self) -> None:
        """Read all quotas. Raises when they cannot be read."""
        await self._informer.start()

    async def close(self) -> None:
        await self._informer.close()
        await self._tasks.close()

    # Cache.

    def _on_quota(self, path: str, obj: Object | None) -> None:
        namespace = path.partition("/")[0]
        before = self._quotas.get(namespace, {}).pop(path, None)
        now = None if obj is None else quotas.read_quota(obj)
        if now is not None:
            self._quotas.setdefault(namespace, {})[path] = now
        elif not self._quotas.get(namespace):
            self._quotas.pop(namespace, None)
        was, is_limited = _limited(before), _limited(now)
        if was == is_limited:
            return  # only usage changed, which is frequent
        limited = set(self._limits)
        for names, more in ((was, -1), (is_limited, 1)):
            for name in names:
                self._limits[name] = self._limits.get(name, 0) + more
                if not self._limits[name]:
                    del self._limits[name]
        if self._limits.keys() != limited:
            self._on_changed()

    # Review.

    def concerns(self, write: WriteOf) -> bool:
        group, plural = write.resource.group, write.resource.plural
        if not self._limits or not write.resource.kind.namespaced:
            return False
        is_new = write.operation == "CREATE" and not write.subresource
        grows = write.operation == "UPDATE" and quotas.may_grow(group, plural, write.subresource)
        if not is_new and not grows:
            return False
        return any(quotas.resource_of(name) == (group, plural) for name in self._limits)

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        charges = self._charges(attributes)
        if not charges:
            return None
        if attributes.dry_run:
            return self._check_dry_run(attributes)
        return self._charge(attributes, charges)

    def _charges(self, attributes: Attributes) -> Charges:
        """Return the usage still to charge for a write. Raises 403 for usage that cannot be
        computed."""
        here, obj = self._quotas.get(attributes.namespace), attributes.obj
        if not here or obj is None:
            return {}
        group, plural = attributes.resource.group, attributes.resource.plural
        all_of_it = more = quotas.usage_of(group, plural, obj)
        old = attributes.old
        if old is not None:
            more = quotas.growth(all_of_it, quotas.usage_of(group, plural, old))
        found = {}
        # A create that is retried with another generated name was charged before.
        charged = attributes.context.charged or {}
        for path, quota in here.items():
            if quota.is_about(group, plural, obj):
                if why := quota.unmet(group, plural, obj):
                    raise forbidden(attributes, why)
                was_about = old is None or quota.is_about(group, plural, old)
                usage = more if was_about else all_of_it
                wanted = quotas.growth(quota.wanted(usage), charged.get(path, {}))
                if wanted:
                    found[path] = wanted
        return found

    async def _check_dry_run(self, attributes: Attributes) -> None:
        """Refuse a dry run that would exceed a quota."""
        await self._informer.freshen()
        here = self._quotas.get(attributes.namespace, {})
        for path, wanted in sorted(self._charges(attributes).items()):
            if why := here[path].problem(here[path].wanted(wanted)):
                raise forbidden(attributes, why)

    async def _charge(self, attributes: Attributes, charges: Charges) -> None:
        await self._refuse_taken(attributes)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        charge = _Charge(attributes, charges, done)
        namespace = attributes.namespace
        pending = self._pending.get(namespace)
        if pending is not None:
            pending.append(charge)
        else:
            self._pending[namespace] = [charge]
            work = self._charge_pending(namespace)
            try:
                self._tasks.spawn(f"charge-{namespace}", work)
            except (TasksFull, TasksClosed):
                work.close()
                del self._pending[namespace]
                raise _unavailable() from None
        await done
        if charge.charged:
            context = attributes.context
            context.charged = _sum(context.charged or {}, charge.charged)
            context.give_back = partial(self._give_back, context, charge)
        if charge.refusal is not None:
            if charge.charged:  # one quota was charged before another refused
                self._give_back(attributes.context, charge)
            raise charge.refusal

    async def _refuse_taken(self, attributes: Attributes) -> None:
        """Raise 409 for a name that is taken, before charging. The cache may be stale, so a
        consistent read confirms it."""
        resource, obj = attributes.resource, attributes.obj
        if attributes.operation != "CREATE" or obj is None:
            return
        cache = self._store.ready(resource)
        path = resource.path_of(attributes.namespace, attributes.name)
        if cache is None or cache.get(path) is None or obj["metadata"].get("generateName"):
            return  # a generated name is retried with another suffix
        entry = (await self._store.read(resource)).get(path)
        if entry is not None:
            raise self._store.exists(resource, attributes.name, entry)

    def _give_back(self, context: Context, charge: _Charge) -> None:
        """Return the charge of a create that was certainly not stored."""
        context.charged = context.give_back = None
        work = self._return_charge(charge)
        try:
            self._tasks.spawn("give-back", work)
        except (TasksFull, TasksClosed):
            work.close()  # the quota controller corrects it later

    async def _return_charge(self, charge: _Charge) -> None:
        for path, returned in sorted(charge.charged.items()):
            change = partial(_lowered, returned=returned, uid=charge.uids[path])
            try:
                await self._store.update(
                    self._resource, self._version, path, change, subresource="status", is_patch=True
                )
            except StatusError as error:
                logger.info(
                    "cannot lower status.used of ResourceQuota %s, its controller will "
                    "correct it: %s",
                    path,
                    error,
                )

    async def _charge_pending(self, namespace: str) -> None:
        """Charge all pending writes of a namespace, including those that arrive meanwhile."""
        pending = self._pending[namespace]
        all_charges: list[_Charge] = []
        try:
            while pending:
                all_charges = pending[:BATCH_MAX]
                del pending[:BATCH_MAX]
                await self._charge_all(all_charges)
                _complete(all_charges)
                all_charges = []
        finally:
            # Complete all pending charges, however this task ended, so that no request waits
            # forever.
            del self._pending[namespace]
            for charge in (*all_charges, *pending):
                charge.refusal = charge.refusal or _unavailable()
            _complete([*all_charges, *pending])

    async def _charge_all(self, all_charges: list[_Charge]) -> None:
        for charge in all_charges:
            # Check all quotas first, so that none is charged for a write that another refuses.
            if len(charge.charges) > 1:
                self._refuse_early(charge)
        paths = sorted({path for charge in all_charges for path in charge.charges})
        for first in range(0, len(paths), PARALLEL_QUOTAS_MAX):
            batch = paths[first : first + PARALLEL_QUOTAS_MAX]
            await asyncio.gather(*(self._charge_or_refuse(path, all_charges) for path in batch))

    async def _charge_or_refuse(self, path: str, all_charges: list[_Charge]) -> None:
        good = [
            charge for charge in all_charges if path in charge.charges and charge.refusal is None
        ]
        refusal: StatusError
        try:
            await self._charge_one(path, good)
        except status.NotFound:
            return  # the quota was deleted
        except StatusError as error:
            refusal = error
        except Exception:
            logger.exception("cannot charge ResourceQuota %s", path)
            refusal = status.internal("cannot charge the ResourceQuota")
        else:
            return
        for charge in good:
            charge.refusal = charge.refusal or refusal

    def _refuse_early(self, charge: _Charge) -> None:
        here = self._quotas.get(charge.attributes.namespace, {})
        for path, wanted in sorted(charge.charges.items()):
            quota = here.get(path)
            if quota is not None and (why := quota.problem(quota.wanted(wanted))):
                charge.refusal = forbidden(charge.attributes, why)
                return

    async def _charge_one(self, path: str, all_charges: list[_Charge]) -> None:
        """Charge one quota for all writes that fit, in the order of arrival."""
        if not all_charges:
            return
        problems: list[str] = []
        taken: list[Usage] = []
        uid = ""

        def change(obj: Object) -> Object:
            nonlocal uid
            problems.clear()
            taken.clear()
            uid = obj["metadata"].get("uid") or ""
            before = quota = quotas.read_quota(obj)
            for charge in all_charges:
                # the limited resources may have changed
                wanted = quota.wanted(charge.charges[path])
                why = quota.problem(wanted)
                problems.append(why)
                taken.append({} if why else wanted)
                quota = quota if why else quota.charged(wanted)
            return obj if quota.used == before.used else quotas.with_used(obj, quota.used)

        await self._store.update(
            self._resource, self._version, path, change, subresource="status", is_patch=True
        )
        for charge, why, wanted in zip(all_charges, problems, taken, strict=True):
            if why:
                charge.refusal = charge.refusal or forbidden(charge.attributes, why)
            elif wanted:
                charge.charged[path] = wanted
                charge.uids[path] = uid


def _lowered(obj: Object, *, returned: Usage, uid: str) -> Object:
    """Return a quota without a charge, or unchanged if the charge does not belong to it."""
    used = quotas.read_quota(obj).used
    lower = {name: used[name] - number for name, number in returned.items() if name in used}
    if obj["metadata"].get("uid") != uid or min(lower.values(), default=-1) < 0:
        return obj
    return quotas.with_used(obj, {**used, **lower})


def _limited(quota: Quota | None) -> frozenset[str]:
    return frozenset() if quota is None else frozenset(quota.hard)


def _complete(all_charges: list[_Charge]) -> None:
    for charge in all_charges:
        if not charge.done.done():
            charge.done.set_result(None)


def _sum(one: Charges, other: Charges) -> dict[str, dict[str, Number]]:
    found = {path: dict(each) for path, each in one.items()}
    for path, charged in other.items():
        known = found.setdefault(path, {})
        for name, more in charged.items():
            known[name] = known.get(name, 0) + more
    return found


def _unavailable() -> StatusError:
    return status.unavailable(
        "cannot charge the ResourceQuotas of the namespace now; try again",
        retry_after_seconds=status.RETRY_AFTER_SECONDS,
    )


def quota_resource(catalog: Catalog) -> Resource | None:
    """Return the ResourceQuota resource, or None if this server does not host it."""
    return catalog.named("", quotas.PLURAL)
