"""The store of objects: create, update and delete, each one guarded transaction.

Reads come from the watch caches. A write takes the newest state it knows, computes the next one
and commits it on condition that nothing has changed meanwhile; if something has, the refusal
carries what is there now and the computation is repeated. Every write of an object is committed by
the `Committer`, with the guards of the encoding policy in its own transaction.

Objects are in the version of the request here; they are converted on the way to storage. Where
somebody else converts them, that is awaited, before anything is committed. Whoever comes with a
custom resource in whose place there is another by now is sent back: `ResourceReplaced`.

Not here: HTTP, authorisation, and what a kind's fields mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from restow.machinery import status
from restow.machinery.apply import tracking
from restow.machinery.apply.entries import Manager
from restow.resources import graceful, managing, ownership, plans, strategy
from restow.resources.caches import Caches
from restow.resources.committing import (
    Begun,
    Committer,
    PlaceMoved,
    Sealed,
    StateMoved,
    check_current,
)
from restow.resources.contention import Queues
from restow.resources.custom.conversion import Conversions
from restow.resources.custom.shape import splicer_of
from restow.resources.definition import Object, Resource
from restow.resources.encoding import EncodingPolicy
from restow.resources.errors import translate
from restow.resources.managing import SERVER, Apply, Converting, NotConverted, settled
from restow.resources.plans import CreatePlan, Plan, RemovePlan, UpdatePlan, Written
from restow.resources.stored import Splicer
from restow.resources.watch_cache import Entry, ForNow, WatchCache
from restow.runtime import Runtime
from restow.storage.errors import StorageError
from restow.storage.interface import (
    Item,
    Refused,
    RevisionIs,
    Storage,
    Unknown,
)

ATTEMPTS_MAX: Final = 16
GENERATED_NAME_ATTEMPTS_MAX: Final = 8
RETRY_SECONDS: Final = 1
DAMAGED_SHOWN_MAX: Final = 10
HEAVY_TURNS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWish:
    """What a client asks of a delete."""

    policy: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    grace_seconds: int | None = 0
    """How long it has to end, if it needs time for that; None: as long as it says itself."""


class Review(Protocol):
    """Has the last word on a write: asked with the object as it would be, and as it is."""

    async def __call__(
        self, obj: Object | None, old: Object | None, /, *, is_dry_run: bool
    ) -> None:
        """Raise a StatusError to refuse. No old object: it is new; no other: it is deleted."""


class Mutate(Protocol):
    """May change what is written, before it is validated."""

    async def __call__(self, obj: Object, old: Object | None, /, *, is_dry_run: bool) -> Object:
        """The object to write instead, complete like one that a client has sent; or the same one.
        No old object: it is new, and may have no name yet. Raise a StatusError to refuse."""


Change = Callable[[Object], Object] | Apply
"""The next state of an object by its newest one; or a configuration that is applied to it."""

Check = Callable[[Object, Object | None], None]
"""Told of an object as it would be, and as it is, if it is; raises a StatusError to refuse it. Also
on the way that waits for nothing."""


class ResourceStore:
    """All objects of one server."""

    def __init__(
        self,
        storage: Storage,
        caches: Caches,
        policy: EncodingPolicy,
        runtime: Runtime,
        *,
        sealed: Sealed | None = None,
    ) -> None:
        """`sealed` is what lies beneath a storage that is encrypted."""
        self._storage = storage
        self.sealed: Final = sealed
        self._caches = caches
        self._committer = Committer(storage, caches, policy, sealed)
        self._clock = runtime.clock
        self._ids = runtime.ids
        self._splicers: dict[str, tuple[Resource, Splicer]] = {}
        """By root of keys."""
        self._conversions = Conversions(runtime.clock)
        self._heavy = asyncio.Lock()
        self._queues = Queues(runtime.clock)

    # Reading.

    def fresh(self, resource: Resource) -> WatchCache | None:
        """The resource's cache, if it can be read at once and misses nothing acknowledged."""
        if resource.origin is not None:
            self.splicer(resource)
        return self._caches.fresh(resource.root)

    async def read(self, resource: Resource) -> WatchCache:
        """The same, waiting for it."""
        cache = await self.loaded(resource)
        if self._caches.fresh(resource.root) is None:
            try:
                await self._caches.freshen()
            except StorageError as error:
                raise translate(error) from error
            check_current(resource)
        return cache

    def ready(self, resource: Resource) -> WatchCache | None:
        """The cache as it is, if it is loaded."""
        if resource.origin is not None:
            self.splicer(resource)
        return self._caches.ready(resource.root)

    async def loaded(self, resource: Resource) -> WatchCache:
        """The cache as it is, however old."""
        try:
            cache = await self._caches.load(resource.root, self.splicer(resource))
        except StorageError as error:
            raise translate(error) from error
        check_current(resource)
        return cache

    @property
    def position(self) -> int:
        """How far the caches have come."""
        return self._caches.position

    @property
    def caches(self) -> Caches:
        return self._caches

    @property
    def storage(self) -> Storage:
        return self._storage

    def splicer(self, resource: Resource) -> Splicer:
        """How stored values of a resource become entries of its cache."""
        check_current(resource)
        kept = self._splicers.get(resource.root)
        if kept is not None and (kept[0] is resource or resource.origin is None):
            return kept[1]
        splicer = splicer_of(resource)
        self._splicers[resource.root] = (resource, splicer)
        if resource.origin is not None:
            # Whoever came with another may have begun to load the objects as they were to that.
            self._caches.forget(resource.root, splicer)
        return splicer

    def forget(self, resource: Resource) -> None:
        """A custom resource is hosted no more, or another in its place. Its watches end."""
        assert resource.origin is not None, resource.kind.group_resource
        resource.origin.is_replaced = True
        self._splicers.pop(resource.root, None)
        self._caches.forget(resource.root)
        self._conversions.forget(resource)

    def reload(self, root: str) -> None:
        """What is stored under a root can be read otherwise than before: its watches end, and who
        asks next has it loaded anew."""
        found = self._splicers.get(root)
        self._caches.forget(root, None if found is None else found[1])

    def seen(self, resource: Resource, entry: Entry, api_version: str) -> Entry:
        """An object as it is in a version, if somebody else converts it; otherwise as it is.

        Raises `ConversionNeeded` when that must be waited for.
        """
        if resource.remote is None or entry[1] == api_version:
            return entry
        return self._conversions.seen(resource, entry, api_version)

    def known(self, resource: Resource, entry: Entry, api_version: str) -> Entry | None:
        """The same; None when it must be waited for."""
        return self._conversions.known(resource, entry, api_version)

    async def in_version(
        self,
        resource: Resource,
        entries: Sequence[Entry],
        api_version: str,
        *,
        is_for_writing: bool = False,
    ) -> list[Entry]:
        """The same for many objects, waiting for it. Raises a 500 when they are not converted."""
        if resource.remote is None:
            return list(entries)
        return await self._conversions.in_version(
            resource, entries, api_version, is_for_writing=is_for_writing
        )

    def body_of(self, resource: Resource, entry: Entry, api_version: str) -> bytes:
        """An object as served in a version. Raises `ConversionNeeded`."""
        return plans.body_of(resource, self.seen(resource, entry, api_version), api_version)

    def object_of(self, resource: Resource, entry: Entry, api_version: str) -> Object:
        """A fresh object in a version, with its resource version. Raises `ConversionNeeded`."""
        return plans.object_of(resource, self.seen(resource, entry, api_version), api_version)

    # Writing.

    async def take_turn(self, resource: Resource) -> None:
        """Before something that takes long is read or planned: one at a time, and not in each turn
        of the loop, so that there are turns without."""
        if resource.kind.is_heavy:
            async with self._heavy:
                for _ in range(HEAVY_TURNS):
                    await self._clock.sleep(0)

    async def create(
        self,
        resource: Resource,
        version: str,
        obj: Object,
        *,
        namespace: str,
        place: RevisionIs | None = None,
        manager: Manager | None = SERVER,
        mutate: Mutate | None = None,
        check: Check | None = None,
        review: Review | None = None,
        dry_run: bool = False,
    ) -> Written:
        """Store a new object. Raises 409 when the name is taken.

        `place` guards the namespace: nothing is stored in one that has just gone. Raises
        `PlaceMoved` when it does not hold, and whatever `mutate`, `check` and `review` raise.
        Whose the object is says `manager`; None: that is in it already.
        """
        name, may_forget = "", manager is not None
        if mutate is not None:
            obj = {**obj, "metadata": dict(obj["metadata"])}
            strategy.place(resource.kind, obj["metadata"], namespace)
            self._track_new(resource, version, obj, manager)
            tracked, manager = obj["metadata"].get("managedFields"), None
            obj = await mutate(obj, None, is_dry_run=dry_run)
            managing.after_admission(obj, tracked)
        for _ in range(GENERATED_NAME_ATTEMPTS_MAX):
            await self.take_turn(resource)
            plan = self._plan_create(
                resource, version, obj, namespace=namespace, place=place, manager=manager
            )
            if check is not None:
                check(plan.obj, None)
            name = plan.path.rpartition("/")[2]
            if review is not None:
                await review(plan.obj, None, is_dry_run=dry_run)
            if dry_run:
                taken = (await self.read(resource)).get(plan.path)
                if taken is None:
                    return plan.preview()
            else:
                try:
                    return await self._carry_out(plan, may_forget=may_forget)
                except StateMoved as moved:
                    taken = self._entry(resource, moved.current)
            if obj["metadata"].get("name"):
                raise self.exists(resource, name, taken)
        raise status.generated_name_taken(resource.kind.group_resource, name)

    def begin_create(
        self,
        resource: Resource,
        version: str,
        obj: Object,
        *,
        namespace: str,
        place: RevisionIs | None = None,
        manager: Manager | None = SERVER,
        check: Check | None = None,
    ) -> Begun | None:
        """The first try of a create, without waiting; None: nothing was begun, use `create`."""
        if self._committer.must_wait or resource.kind.is_heavy:
            return None
        plan = self._plan_create(
            resource, version, obj, namespace=namespace, place=place, manager=manager
        )
        if check is not None:
            check(plan.obj, None)
        begun = self._begin(plan)
        return begun if isinstance(begun, Begun) else None

    def _begin(self, plan: CreatePlan | UpdatePlan | RemovePlan) -> Begun | Written | None:
        try:
            return self._committer.begin(plan)
        except status.RequestEntityTooLarge:
            return None  # the patient way may find something that need not be stored

    async def _carry_out(
        self, plan: CreatePlan | UpdatePlan | RemovePlan, *, may_forget: bool
    ) -> Written:
        """Commit a plan. An object that is too large is stored without its entries, if that helps:
        they may be large, and nobody but who applies needs them."""
        try:
            return await self._committer.carry_out(plan)
        except status.RequestEntityTooLarge:
            metadata = plan.obj["metadata"]
            is_remote = plan.resource.remote is not None
            if not may_forget or is_remote or not metadata.pop("managedFields", None):
                raise
        return await self._committer.carry_out(plan)

    def _plan_create(
        self,
        resource: Resource,
        version: str,
        obj: Object,
        *,
        namespace: str,
        place: RevisionIs | None,
        manager: Manager | None,
    ) -> CreatePlan:
        plans.refuse_closing(resource, obj)
        api_version, now = resource.api_version(version), self._clock.wall()
        fresh = {**obj, "metadata": dict(obj["metadata"])}

        def track() -> None:
            if manager is not None:
                time = fresh["metadata"]["creationTimestamp"]
                tracking.track_create(resource.shape, fresh, manager, api_version, time)

        name = strategy.begin_create(
            resource, api_version, fresh, namespace=namespace, ids=self._ids, now=now, track=track
        )
        strategy.check(resource, api_version, fresh, None)
        ownership.check_create(resource, fresh)
        path = resource.path_of(namespace, name)
        return CreatePlan(resource, api_version, path, fresh, place=place)

    def _track_new(
        self, resource: Resource, version: str, obj: Object, manager: Manager | None
    ) -> None:
        """Before others may change it: what they add is nobody's."""
        api_version = resource.api_version(version)
        if resource.has_status(api_version) and not resource.kind.create_keeps_status:
            obj.pop("status", None)
        if manager is not None:
            tracking.track_create(resource.shape, obj, manager, api_version, self._time())

    async def applied(self, resource: Resource, version: str, wish: Apply) -> Object:
        """A new object that is what its applier wants, complete and with its entry. Raises 400."""
        now, converting = self._clock.wall(), Converting(resource)
        api_version = resource.api_version(version)
        work = partial(wish.to, resource, api_version, None, now=now, converting=converting)
        return await settled(work, is_long=wish.is_long)

    def exists(self, resource: Resource, name: str, current: Entry | None) -> status.AlreadyExists:
        """The refusal of a create whose name is taken, by what is there."""
        deleting = current is not None and b'"deletionTimestamp":' in current[2]
        return status.already_exists(resource.kind.group_resource, name, is_being_deleted=deleting)

    async def update(
        self,
        resource: Resource,
        version: str,
        path: str,
        change: Change,
        *,
        subresource: str = "",
        is_patch: bool = False,
        manager: Manager | None = SERVER,
        mutate: Mutate | None = None,
        check: Check | None = None,
        review: Review | None = None,
        dry_run: bool = False,
    ) -> Written:
        """Change an object: `change` gets the newest state and returns the next.

        It may be called several times, and `mutate`, `check` and `review` after it. For a patch it
        gets a fresh copy that it may change, otherwise one to look at. Raises 404, 409, 422, or
        whatever these raise. Without a version it is the one that the object is stored in.
        Whose the change is says `manager`; of what is applied, that is told with it.
        """
        is_applied = isinstance(change, Apply)
        converting = Converting(resource, is_needed=is_applied)
        manager = None if is_applied else _by_path(manager, subresource)
        cache = self.fresh(resource) or await self.read(resource)
        entry = cache.get(path)
        is_queued = False
        async with AsyncExitStack() as queued:
            for _ in range(ATTEMPTS_MAX):
                if entry is None:
                    raise self.missing(resource, path, cache)
                api_version = resource.api_version(version) if version else entry[1]
                await self.take_turn(resource)
                [seen] = await self.in_version(resource, [entry], api_version, is_for_writing=True)
                facts = _Facts(
                    resource, api_version, path, entry, subresource, is_patch, converting, manager
                )
                is_long = isinstance(change, Apply) and change.takes_long(seen[2])
                work = partial(self._changed, facts, seen, change)
                old, new = await settled(work, is_long=is_long)
                if mutate is not None:
                    await settled(partial(self._track, facts, old, new))
                    facts = facts._replace(manager=None)
                    tracked = new["metadata"].get("managedFields")
                    # Each is given an old object of its own: what was made from it may share parts.
                    shown = plans.object_of(resource, seen, api_version)
                    new = await mutate(new, shown, is_dry_run=dry_run)
                    managing.after_admission(new, tracked)
                plan = await settled(partial(self._plan_update, facts, old, new))
                if check is not None:
                    # What was changed on the way may share parts with the old object.
                    was = old if mutate is None else plans.object_of(resource, seen, api_version)
                    check(plan.obj, was)
                if review is not None:
                    shown = plans.object_of(resource, seen, api_version)
                    await review(plan.obj, shown, is_dry_run=dry_run)
                if dry_run:
                    return plan.preview()
                try:
                    return await self._carry_out(plan, may_forget=not is_applied)
                except StateMoved as moved:
                    entry = self._entry(resource, moved.current)
                    if not is_queued:
                        is_queued = True
                        await queued.enter_async_context(self._queues.turn(resource.key_of(path)))
                        newest = self.fresh(resource)
                        entry = entry if newest is None else newest.get(path)
        raise status.server_timeout(
            resource.kind.group_resource, "update", retry_after_seconds=RETRY_SECONDS
        )

    def begin_update(
        self,
        resource: Resource,
        version: str,
        path: str,
        change: Change,
        *,
        subresource: str = "",
        is_patch: bool = False,
        manager: Manager | None = SERVER,
        check: Check | None = None,
    ) -> Begun | Written | None:
        """The first try of an update, without waiting; None: nothing was begun, use `update`.

        An update that changes nothing is over at once.
        """
        is_later = self._committer.must_wait or resource.kind.is_heavy
        cache = None if is_later else self.fresh(resource)
        entry = None if cache is None else cache.get(path)
        if entry is None:
            return None
        api_version = resource.api_version(version)
        if resource.remote is not None and entry[1] != api_version:
            return None
        is_applied = isinstance(change, Apply)
        if isinstance(change, Apply) and change.takes_long(entry[2]):
            return None
        converting = Converting(resource, is_needed=is_applied)
        manager = None if is_applied else _by_path(manager, subresource)
        facts = _Facts(
            resource, api_version, path, entry, subresource, is_patch, converting, manager
        )
        try:
            old, new = self._changed(facts, entry, change)
            plan = self._plan_update(facts, old, new)
        except NotConverted:
            return None
        if check is not None:
            check(plan.obj, old)
        return self._begin(plan)

    def _changed(self, facts: _Facts, seen: Entry, change: Change) -> tuple[Object, Object]:
        """The object as it is, and as it is to be. `seen` is its entry in the version of the
        request, if somebody else converts it."""
        resource, api_version = facts.resource, facts.api_version
        old = plans.object_of(resource, seen, api_version)
        if isinstance(change, Apply):
            # It may share parts with the object that it was applied to.
            live = plans.object_of(resource, seen, api_version)
            return old, change.to(
                resource, api_version, live, now=self._clock.wall(), converting=facts.converting
            )
        if not facts.is_patch:
            return old, change(old)
        fresh = plans.object_of(resource, seen, api_version)
        if (found := old["metadata"].get("managedFields")) is not None:
            # Nobody changes what is in them: if they are the same, that is seen at once.
            fresh["metadata"]["managedFields"] = found
        return old, change(fresh)

    def _track(self, facts: _Facts, old: Object, new: Object) -> None:
        """Before others may change it: what they change is nobody's."""
        resource, api_version = facts.resource, facts.api_version
        strategy.put_back(resource, api_version, new, old, subresource=facts.subresource)
        metadata = new["metadata"]
        said = metadata.get("resourceVersion")
        self._track_change(facts, old, new)
        if said is not None:
            metadata["resourceVersion"] = said  # it is compared when all have had their say
        else:
            metadata.pop("resourceVersion", None)

    def _track_change(self, facts: _Facts, old: Object, new: Object) -> None:
        if facts.manager is None:
            return
        try:
            tracking.track_update(
                facts.resource.shape,
                old,
                new,
                manager=facts.manager,
                api_version=facts.api_version,
                time=self._time,
                convert=facts.converting,
            )
        except tracking.EntriesRefused as error:
            name = facts.path.rpartition("/")[2]
            kind = facts.resource.kind.group_kind
            raise status.invalid(kind, name, error.causes) from error

    def _time(self) -> str:
        return strategy.timestamp(self._clock.wall())

    def _plan_update(self, facts: _Facts, old: Object, new: Object) -> UpdatePlan | RemovePlan:
        resource, api_version, path, entry, subresource = facts[:5]
        name = path.rpartition("/")[2]
        strategy.check_versions(resource, new, old, name=name, is_patch=facts.is_patch)
        strategy.begin_update(
            resource,
            api_version,
            new,
            old,
            subresource=subresource,
            track=lambda: self._track_change(facts, old, new),
        )
        strategy.check(resource, api_version, new, old, subresource=subresource)
        ownership.check_update(resource, new, old)
        metadata, key = new["metadata"], resource.key_of(path)
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        managing.keep_times(new, old)
        if (
            metadata.get("deletionTimestamp")
            and not graceful.is_ending(metadata)
            and not strategy.has_finalizers(resource, new)
        ):
            ownership.check_delete(resource, old)
            return RemovePlan(resource, api_version, key, entry, new)
        return UpdatePlan(resource, api_version, key, entry, new, old)

    async def delete(
        self,
        resource: Resource,
        version: str,
        path: str,
        wish: DeleteWish,
        *,
        review: Review | None = None,
    ) -> Written:
        """Delete an object, or mark it so while finalizers hold it.

        Without a version it is the one that the object is stored in: then nothing need be
        converted to delete it.
        """
        cache = self.fresh(resource) or await self.read(resource)
        entry = cache.get(path)
        for _ in range(ATTEMPTS_MAX):
            if entry is None:
                raise self.missing(resource, path, cache)
            api_version = resource.api_version(version) if version else entry[1]
            # What goes away is only shown; what is marked is written.
            may_stay = bool(wish.policy) or b'"finalizers":' in entry[2]
            [seen] = await self.in_version(resource, [entry], api_version, is_for_writing=may_stay)
            plan = self._plan_delete(resource, api_version, path, entry, seen, wish)
            if review is not None:
                old = plans.object_of(resource, seen, api_version)
                await review(None, old, is_dry_run=wish.dry_run)
            if wish.dry_run:
                return plan.preview()
            try:
                return await self._committer.carry_out(plan)
            except StateMoved as moved:
                entry = self._entry(resource, moved.current)
        raise status.server_timeout(
            resource.kind.group_resource, "delete", retry_after_seconds=RETRY_SECONDS
        )

    def _plan_delete(  # noqa: PLR0917 - as above
        self,
        resource: Resource,
        api_version: str,
        path: str,
        entry: Entry,
        seen: Entry,
        wish: DeleteWish,
    ) -> UpdatePlan | RemovePlan:
        obj = plans.object_of(resource, seen, api_version)
        self._check_preconditions(resource, obj, path, wish)
        ownership.check_delete(resource, obj)
        goes_away = strategy.mark_deleted(
            resource,
            obj,
            now=self._clock.wall(),
            policy=wish.policy,
            grace_seconds=wish.grace_seconds,
        )
        key = resource.key_of(path)
        if goes_away:
            return RemovePlan(resource, api_version, key, entry, obj)
        old = plans.object_of(resource, seen, api_version)
        return UpdatePlan(resource, api_version, key, entry, obj, old)

    def _check_preconditions(
        self, resource: Resource, obj: Object, path: str, wish: DeleteWish
    ) -> None:
        metadata, name = obj["metadata"], path.rpartition("/")[2]
        if wish.uid and wish.uid != metadata.get("uid"):
            raise status.precondition_of_delete_failed(
                resource.kind.group_kind,
                name,
                what="UID",
                wanted=wish.uid,
                found=metadata.get("uid") or "",
            )
        if wish.resource_version and wish.resource_version != metadata["resourceVersion"]:
            raise status.precondition_of_delete_failed(
                resource.kind.group_kind,
                name,
                what="ResourceVersion",
                wanted=wish.resource_version,
                found=metadata["resourceVersion"],
            )

    def missing(self, resource: Resource, path: str, cache: WatchCache) -> status.StatusError:
        """Why an object is not in the cache."""
        if path in cache.damaged:
            return self.damaged(resource, {path: cache.damaged[path]})
        return status.not_found(resource.kind.group_resource, path.rpartition("/")[2])

    def damaged(self, resource: Resource, found: dict[str, str]) -> status.StatusError:
        """The 500 for objects that are there and cannot be read: they are never left out. A 503 if
        all that is in the way is a plug-in that does not answer."""
        shown = [f"{path}: {why}" for path, why in list(found.items())[:DAMAGED_SHOWN_MAX]]
        if len(found) > len(shown):
            shown.append(f"and {len(found) - len(shown)} more")
        text = f"{resource.kind.group_resource} cannot be read from the store: {'; '.join(shown)}"
        if all(isinstance(why, ForNow) for why in found.values()):
            return status.unavailable(text, retry_after_seconds=RETRY_SECONDS)
        return status.internal(text)

    async def rewrite(self, plan: Plan) -> Refused | Unknown | None:
        """Commit a plan that is right for one state and one version, and never encode it anew.

        None when that is done; otherwise what kept it from being done.
        """
        return await self._committer.rewrite(plan)

    def _entry(self, resource: Resource, item: Item | None) -> Entry | None:
        if item is None:
            return None
        try:
            return self.splicer(resource).serve(item.value, item.revision)
        except StorageError as error:
            raise translate(error) from error


class _Facts(NamedTuple):
    """What is known of an update, whatever it changes."""

    resource: Resource
    api_version: str
    path: str
    entry: Entry
    subresource: str
    is_patch: bool
    converting: Converting
    manager: Manager | None


def _by_path(manager: Manager | None, subresource: str) -> Manager | None:
    """Whoever writes, by this path; the server itself does not say by which."""
    if manager is SERVER and subresource:
        return manager._replace(subresource=subresource)
    return manager


__all__ = [
    "Apply",
    "Begun",
    "Change",
    "Check",
    "DeleteWish",
    "Mutate",
    "PlaceMoved",
    "ResourceStore",
    "Review",
    "Written",
]
