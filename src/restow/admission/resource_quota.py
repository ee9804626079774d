"""Resource quota: a namespace may hold only so many objects, and ask for only so much.

Asked last. Before an object is created, each quota of its namespace that limits it is charged: its
`status.used` is raised by a guarded update, so that of all servers only so many pass as there is
room for. What comes at the same time for one namespace is charged in one update, and all
quotas of it side by side. A create whose name turns out to be taken gives its charge back. One that
fails otherwise, so that nobody knows whether its object is there, leaves its charge behind, until
the servers count anew (`restow.controllers.quotas`). A dry run is refused like
any other, and charges nothing.

What a quota counts from follows its status: it holds from when it was first counted. While no quota
limits a kind in any namespace, writes of it are not asked about.

Not here: what objects use, and the words of a refusal (`restow.apimachinery.quotas`).
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

AT_ONCE_MAX: Final = 1_000
"""How many wishes are charged in one update."""
QUOTAS_AT_ONCE_MAX: Final = 32
"""How many quotas of a namespace are charged side by side."""
NAMESPACES_MAX: Final = 1_000
"""In how many namespaces something is being charged at one time."""

logger = logging.getLogger(__name__)

Charges = Mapping[str, Usage]
"""By the path of a quota: what is to be charged."""


@dataclass(slots=True)
class _Charge:
    """One write that waits until it is charged."""

    attributes: Attributes
    charges: Charges
    done: asyncio.Future[None]
    charged: dict[str, Usage] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    """By path: which quota was charged, should there be another of its name later."""
    refusal: StatusError | None = None


class QuotaAdmission:
    """Charges quotas, and refuses what does not fit. Satisfies `Admission`."""

    def __init__(
        self,
        store: ResourceStore,
        resource: Resource,
        runtime: Runtime,
        *,
        on_changed: Callable[[], None],
    ) -> None:
        """`on_changed`: other writes are limited than before."""
        self._store = store
        self._resource = resource
        self._version = GroupVersion.parse(resource.storage_api_version).version
        self._on_changed = on_changed
        self._tasks = runtime.tasks(
            "quota", tasks_max=NAMESPACES_MAX, on_failure=lambda _failure: None
        )
        self._following = StoreInformer(store, resource, runtime, on_object=self._on_quota)
        self._quotas: dict[str, dict[str, Quota]] = {}
        """By namespace and path."""
        self._limits: dict[str, int] = {}
        """What is limited, and by how many quotas."""
        self._waiting: dict[str, list[_Charge]] = {}
        """By namespace in which something is being charged."""

    async def start(self) -> None:
        """Know all quotas that there are. Raises when they cannot be read."""
        await self._following.start()

    async def close(self) -> None:
        await self._following.close()
        await self._tasks.close()

    # What is known.

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
            return  # what was charged has changed, as it does all the time
        limited = set(self._limits)
        for names, more in ((was, -1), (is_limited, 1)):
            for name in names:
                self._limits[name] = self._limits.get(name, 0) + more
                if not self._limits[name]:
                    del self._limits[name]
        if self._limits.keys() != limited:
            self._on_changed()

    # What is asked.

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
            return self._look(attributes)
        return self._charge(attributes, charges)

    def _charges(self, attributes: Attributes) -> Charges:
        """What is still to be charged for a write. Raises 403 for what cannot be counted."""
        here, obj = self._quotas.get(attributes.namespace), attributes.obj
        if not here or obj is None:
            return {}
        group, plural = attributes.resource.group, attributes.resource.plural
        all_of_it = more = quotas.usage_of(group, plural, obj)
        old = attributes.old
        if old is not None:
            more = quotas.growth(all_of_it, quotas.usage_of(group, plural, old))
        found = {}
        # A request that is tried again, as its name was taken, was charged before.
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

    async def _look(self, attributes: Attributes) -> None:
        """Refuse what would not be charged."""
        await self._following.freshen()
        here = self._quotas.get(attributes.namespace, {})
        for path, wanted in sorted(self._charges(attributes).items()):
            if why := here[path].problem(here[path].wanted(wanted)):
                raise forbidden(attributes, why)

    async def _charge(self, attributes: Attributes, charges: Charges) -> None:
        await self._refuse_taken(attributes)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        charge = _Charge(attributes, charges, done)
        namespace = attributes.namespace
        waiting = self._waiting.get(namespace)
        if waiting is not None:
            waiting.append(charge)
        else:
            self._waiting[namespace] = [charge]
            work = self._work(namespace)
            try:
                self._tasks.spawn(f"charge-{namespace}", work)
            except (TasksFull, TasksClosed):
                work.close()
                del self._waiting[namespace]
                raise _unavailable() from None
        await done
        if charge.charged:
            context = attributes.context
            context.charged = _sum(context.charged or {}, charge.charged)
            context.give_back = partial(self._give_back, context, charge)
        if charge.refusal is not None:
            if charge.charged:  # by one quota, before another had no room
                self._give_back(attributes.context, charge)
            raise charge.refusal

    async def _refuse_taken(self, attributes: Attributes) -> None:
        """Charge nothing for a name that is taken: what is in memory may be old, so that is looked
        up anew before anybody is told. Raises 409."""
        resource, obj = attributes.resource, attributes.obj
        if attributes.operation != "CREATE" or obj is None:
            return
        cache = self._store.ready(resource)
        path = resource.path_of(attributes.namespace, attributes.name)
        if cache is None or cache.get(path) is None or obj["metadata"].get("generateName"):
            return  # a name that was made up may be tried again with another
        entry = (await self._store.read(resource)).get(path)
        if entry is not None:
            raise self._store.exists(resource, attributes.name, entry)

    def _give_back(self, context: Context, charge: _Charge) -> None:
        """Take off what was charged for a create that has surely not been done."""
        context.charged = context.give_back = None
        work = self._take_off(charge)
        try:
            self._tasks.spawn("give-back", work)
        except (TasksFull, TasksClosed):
            work.close()  # it is found when the servers count anew

    async def _take_off(self, charge: _Charge) -> None:
        for path, less in sorted(charge.charged.items()):
            change = partial(_lowered, less=less, uid=charge.uids[path])
            try:
                await self._store.update(
                    self._resource, self._version, path, change, subresource="status", is_patch=True
                )
            except StatusError as error:
                logger.info("the quota %s keeps a charge for nothing: %s", path, error)

    async def _work(self, namespace: str) -> None:
        """Charge all that waits in a namespace, and what comes meanwhile."""
        waiting = self._waiting[namespace]
        all_charges: list[_Charge] = []
        try:
            while waiting:
                all_charges = waiting[:AT_ONCE_MAX]
                del waiting[:AT_ONCE_MAX]
                await self._charge_all(all_charges)
                _answer(all_charges)
                all_charges = []
        finally:
            # Nobody waits for ever, whatever has ended this.
            del self._waiting[namespace]
            for charge in (*all_charges, *waiting):
                charge.refusal = charge.refusal or _unavailable()
            _answer([*all_charges, *waiting])

    async def _charge_all(self, all_charges: list[_Charge]) -> None:
        for charge in all_charges:
            # Or the first quota would be charged for what the second refuses.
            if len(charge.charges) > 1:
                self._refuse_early(charge)
        paths = sorted({path for charge in all_charges for path in charge.charges})
        for first in range(0, len(paths), QUOTAS_AT_ONCE_MAX):
            at_once = paths[first : first + QUOTAS_AT_ONCE_MAX]
            await asyncio.gather(*(self._charge_or_refuse(path, all_charges) for path in at_once))

    async def _charge_or_refuse(self, path: str, all_charges: list[_Charge]) -> None:
        good = [
            charge for charge in all_charges if path in charge.charges and charge.refusal is None
        ]
        refusal: StatusError
        try:
            await self._charge_one(path, good)
        except status.NotFound:
            return  # it limits nothing any more
        except StatusError as error:
            refusal = error
        except Exception:
            logger.exception("the quota %s cannot be charged", path)
            refusal = status.internal("a quota could not be charged")
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
        """Charge one quota for all for whom it has room, in the order in which they came."""
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
                wanted = quota.wanted(charge.charges[path])  # what it limits may have changed
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


def _lowered(obj: Object, *, less: Usage, uid: str) -> Object:
    """A quota without a charge; as it is, if that is none of its own."""
    used = quotas.read_quota(obj).used
    lower = {name: used[name] - number for name, number in less.items() if name in used}
    if obj["metadata"].get("uid") != uid or min(lower.values(), default=-1) < 0:
        return obj
    return quotas.with_used(obj, {**used, **lower})


def _limited(quota: Quota | None) -> frozenset[str]:
    return frozenset() if quota is None else frozenset(quota.hard)


def _answer(all_charges: list[_Charge]) -> None:
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
        "what this would use cannot be charged just now; try again",
        retry_after_seconds=status.RETRY_AFTER_SECONDS,
    )


def quota_resource(catalog: Catalog) -> Resource | None:
    """Quotas, if this server hosts them."""
    return catalog.named("", quotas.PLURAL)
