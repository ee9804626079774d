"""The store of objects: create, update and delete, each one guarded transaction.

A write takes the newest state it knows (`object_reader`), computes the next one (`write_planner`)
and commits it on condition that nothing has changed meanwhile; if something has, the refusal
carries what is there now and the computation is repeated. Every write of an object is committed by
the `ObjectCommitter`, with the guards of the encoding policy in its own transaction.

Objects are in the version of the request here; they are converted on the way to storage. Where
somebody else converts them, that is awaited, before anything is committed. Whoever comes with a
custom resource in whose place there is another by now is sent back: `ResourceReplaced`.

Not here: HTTP, authorisation, and what a kind's fields mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, Protocol

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.apply.entries import Manager
from restow.registry import field_management, ownership, strategy, write_plans
from restow.registry.caches import Caches
from restow.registry.committer import Begun, ObjectCommitter, PlaceMoved, Sealed, StateMoved
from restow.registry.encoding import EncodingPolicy
from restow.registry.field_management import SERVER, Apply, Converting, NotConverted, settled
from restow.registry.object_reader import ObjectReader
from restow.registry.resource import Object, Resource
from restow.registry.write_planner import Change, DeleteOptions, Facts, WritePlanner, by_path
from restow.registry.write_plans import CreatePlan, RemovePlan, UpdatePlan, WritePlan, Written
from restow.registry.write_queues import WriteQueues
from restow.storage.interface import Refused, RevisionIs, Storage, Unknown

ATTEMPTS_MAX: Final = 16
GENERATED_NAME_ATTEMPTS_MAX: Final = 8
HEAVY_TURNS: Final = 3


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


Check = Callable[[Object, Object | None], None]
"""Told of an object as it would be, and as it is, if it is; raises a StatusError to refuse it. Also
on the way that waits for nothing."""


class ResourceStore(ObjectReader):
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
        super().__init__(storage, caches, policy, runtime.clock)
        self.sealed: Final = sealed
        self._committer = ObjectCommitter(storage, caches, policy, sealed)
        self._clock = runtime.clock
        self._planner = WritePlanner(runtime)
        self.known_entries: Final = self._planner.known
        self._heavy = asyncio.Lock()
        self._queues = WriteQueues(runtime.clock)

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
            self._planner.track_new(resource, version, obj, manager)
            tracked, manager = obj["metadata"].get("managedFields"), None
            obj = await mutate(obj, None, is_dry_run=dry_run)
            field_management.after_admission(obj, tracked)
        for _ in range(GENERATED_NAME_ATTEMPTS_MAX):
            await self.take_turn(resource)
            plan = self._planner.plan_create(
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
        plan = self._planner.plan_create(
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

    async def applied(self, resource: Resource, version: str, options: Apply) -> Object:
        """A new object that is what its applier wants, complete and with its entry. Raises 400."""
        now, converting = self._clock.wall(), Converting(resource)
        api_version = resource.api_version(version)
        work = partial(options.to, resource, api_version, None, now=now, converting=converting)
        return await settled(work, is_long=options.is_long)

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
        manager = None if is_applied else by_path(manager, subresource)
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
                facts = Facts(
                    resource, api_version, path, entry, subresource, is_patch, converting, manager
                )
                is_long = isinstance(change, Apply) and change.takes_long(seen[2])
                work = partial(self._planner.changed, facts, seen, change)
                old, new = await settled(work, is_long=is_long)
                if mutate is not None:
                    await settled(partial(self._planner.track, facts, old, new))
                    facts = facts._replace(manager=None)
                    tracked = new["metadata"].get("managedFields")
                    # Each is given an old object of its own: what was made from it may share parts.
                    shown = write_plans.object_of(resource, seen, api_version)
                    new = await mutate(new, shown, is_dry_run=dry_run)
                    field_management.after_admission(new, tracked)
                plan = await settled(partial(self._planner.plan_update, facts, old, new))
                if check is not None:
                    # What was changed on the way may share parts with the old object.
                    was = (
                        old
                        if mutate is None
                        else write_plans.object_of(resource, seen, api_version)
                    )
                    check(plan.obj, was)
                if review is not None:
                    shown = write_plans.object_of(resource, seen, api_version)
                    await review(plan.obj, shown, is_dry_run=dry_run)
                if dry_run:
                    return plan.preview()
                try:
                    return await self._carry_out(plan, may_forget=not is_applied)
                except PlaceMoved:
                    raise ownership.narrowing_refused(resource, old) from None
                except StateMoved as moved:
                    entry = self._entry(resource, moved.current)
                    if not is_queued:
                        is_queued = True
                        await queued.enter_async_context(self._queues.turn(resource.key_of(path)))
                        newest = self.fresh(resource)
                        entry = entry if newest is None else newest.get(path)
        raise status.server_timeout(
            resource.kind.group_resource, "update", retry_after_seconds=status.RETRY_AFTER_SECONDS
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
        is_caught_up: bool = False,
    ) -> Begun | Written | None:
        """The first try of an update, without waiting; None: nothing was begun, use `update`.

        An update that changes nothing is over at once. `is_caught_up`: memory has all that was
        acknowledged before the request, as `caches.when_fresh` has just told.
        """
        is_later = self._committer.must_wait or resource.kind.is_heavy
        cache = None
        if not is_later:
            cache = self.ready(resource) if is_caught_up else self.fresh(resource)
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
        manager = None if is_applied else by_path(manager, subresource)
        facts = Facts(
            resource, api_version, path, entry, subresource, is_patch, converting, manager
        )
        try:
            old, new = self._planner.changed(facts, entry, change)
            plan = self._planner.plan_update(facts, old, new)
        except NotConverted:
            return None
        if check is not None:
            check(plan.obj, old)
        return self._begin(plan)

    def is_behind(self, resource: Resource) -> bool:
        """Whether `begin_update` lacks nothing but changes that memory is about to have."""
        if self._committer.must_wait or resource.kind.is_heavy:
            return False
        return self.ready(resource) is not None and self.fresh(resource) is None

    async def delete(
        self,
        resource: Resource,
        version: str,
        path: str,
        options: DeleteOptions,
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
            may_stay = bool(options.policy) or b'"finalizers":' in entry[2]
            [seen] = await self.in_version(resource, [entry], api_version, is_for_writing=may_stay)
            plan = self._planner.plan_delete(resource, api_version, path, entry, seen, options)
            if review is not None:
                old = write_plans.object_of(resource, seen, api_version)
                await review(None, old, is_dry_run=options.dry_run)
            if options.dry_run:
                return plan.preview()
            try:
                return await self._committer.carry_out(plan)
            except StateMoved as moved:
                entry = self._entry(resource, moved.current)
        raise status.server_timeout(
            resource.kind.group_resource, "delete", retry_after_seconds=status.RETRY_AFTER_SECONDS
        )

    async def rewrite(self, plan: WritePlan) -> Refused | Unknown | None:
        """Commit a plan that is right for one state and one version, and never encode it anew.

        None when that is done; otherwise what kept it from being done.
        """
        return await self._committer.rewrite(plan)


__all__ = [
    "Apply",
    "Begun",
    "Change",
    "Check",
    "DeleteOptions",
    "Mutate",
    "PlaceMoved",
    "ResourceStore",
    "Review",
    "Written",
]
