"""The store of objects: create, update and delete, each one guarded transaction.

A write takes the newest state it knows (`object_reader`), computes the next one (`write_planner`)
and commits it on condition that nothing has changed meanwhile (`committer`). If a guard did not
hold, nothing was written, and the one retry loop (`_write`) tries again: with a plan from the
newest state, which the refusal carries, or the same plan in another version.

Objects are in the version of the request here; they are converted on the way to storage, by a
webhook before anything is committed. A custom resource whose CRD was replaced meanwhile raises
`ResourceReplaced`: the request begins again, with what is left of its retries.

Not here: HTTP, authorization, and what a kind's fields mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from restow.aio import Runtime
from restow.apimachinery import status
from restow.registry import field_management, ownership, strategy, write_plans
from restow.registry.caches import Caches
from restow.registry.committer import (
    FenceMoved,
    Moved,
    ObjectCommitter,
    PlaceMoved,
    Sealed,
    StateMoved,
    overtaken,
)
from restow.registry.encoding import EncodingPolicy
from restow.registry.field_management import Apply, Converting, settled
from restow.registry.object_reader import ObjectReader
from restow.registry.resource import Object, Resource
from restow.registry.watch_cache import Entry
from restow.registry.write_options import Check, FindPlace, ObjectWriteOptions
from restow.registry.write_planner import Change, DeleteOptions, Facts, WritePlanner, by_path
from restow.registry.write_plans import CreatePlan, RemovePlan, UpdatePlan, WritePlan, Written
from restow.registry.write_queues import HeavyObjects, QueueTurn, WriteQueues
from restow.storage.interface import Refused, Storage, Unknown

ObjectPlan: TypeAlias = CreatePlan | UpdatePlan | RemovePlan
PlanNext: TypeAlias = "Callable[[Moved | None], Awaitable[ObjectPlan]]"
"""Plans a write: at first, and again with why the plan before was not carried out."""


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
        """`sealed`: what lies beneath a storage that is encrypted."""
        super().__init__(storage, caches, policy, runtime.clock)
        self.sealed: Final = sealed
        self._committer = ObjectCommitter(storage, caches, policy, sealed)
        self._planner = WritePlanner(runtime)
        self.known_entries: Final = self._planner.known
        self.heavy_objects: Final = HeavyObjects(runtime.clock)
        self._queues = WriteQueues(runtime.clock)

    async def create(
        self,
        resource: Resource,
        version: str,
        obj: Object,
        *,
        namespace: str,
        place: FindPlace | None = None,
        options: ObjectWriteOptions | None = None,
    ) -> Written:
        """Store a new object. Raises 409 when the name is taken.

        `place` guards the namespace: nothing is stored in one that was just deleted.
        """
        options = options or ObjectWriteOptions()
        manager, may_forget = options.manager, options.manager is not None
        if options.mutate is not None:
            if place is not None:  # nothing is asked about an object that cannot be created
                await place(must_be_fresh=False)
            obj = {**obj, "metadata": dict(obj["metadata"])}
            strategy.place(resource.kind, obj["metadata"], namespace)
            self._planner.track_new(resource, version, obj, manager)
            tracked, manager = obj["metadata"].get("managedFields"), None
            obj = await options.mutate(obj, None, is_dry_run=options.dry_run)
            field_management.after_admission(obj, tracked)
        name = obj["metadata"].get("name")

        async def plan(moved: Moved | None) -> CreatePlan:
            if isinstance(moved, StateMoved) and name:
                raise self.exists(resource, name, self._entry(resource, moved.current))
            if resource.kind.is_heavy:
                await self.heavy_objects.enter()
            guard = None
            if place is not None:
                guard = await place(must_be_fresh=isinstance(moved, PlaceMoved))
            made = self._planner.plan_create(
                resource, version, obj, namespace=namespace, place=guard, manager=manager
            )
            if options.check is not None:
                options.check(made.obj, None)
            if options.review is not None:
                await options.review(made.obj, None, is_dry_run=options.dry_run)
            if options.dry_run:
                taken = (await self.read(resource)).get(made.path)
                if taken is not None and name:
                    raise self.exists(resource, name, taken)
                if taken is not None:
                    raise StateMoved(None)
            return made

        return await self._write(plan, resource, options, verb="create", may_forget=may_forget)

    async def update(
        self,
        resource: Resource,
        version: str,
        path: str,
        change: Change,
        *,
        subresource: str = "",
        is_patch: bool = False,
        options: ObjectWriteOptions | None = None,
    ) -> Written:
        """Change an object: `change` gets the newest state and returns the next.

        It may be called several times, and admission after it. For a patch it gets a fresh copy
        that it may change, otherwise one to look at. Raises 404, 409, 422, or what these raise.
        Without a version it is the one that the object is stored in.
        """
        options = options or ObjectWriteOptions()
        is_applied = isinstance(change, Apply)
        converting = Converting(resource, is_needed=is_applied)
        manager = None if is_applied else by_path(options.manager, subresource)
        cache = await self.read(resource)
        entry = cache.get(path)
        old: Object = {}

        async def plan(moved: Moved | None) -> UpdatePlan | RemovePlan:
            nonlocal entry, old
            if isinstance(moved, PlaceMoved):
                raise ownership.narrowing_refused(resource, old)
            if isinstance(moved, StateMoved):
                entry = self._newest(resource, path, moved)
            if entry is None:
                raise self.missing(resource, path, cache)
            api_version = resource.api_version(version) if version else entry[1]
            if resource.kind.is_heavy:
                await self.heavy_objects.enter()
            seen = await self._seen(resource, entry, api_version)
            facts = Facts(
                resource, api_version, path, entry, subresource, is_patch, converting, manager
            )
            is_long = isinstance(change, Apply) and change.takes_long(seen[2])
            work = partial(self._planner.changed, facts, seen, change)
            old, new = await settled(work, is_long=is_long)
            if options.mutate is not None:
                await settled(partial(self._planner.track, facts, old, new))
                facts = facts._replace(manager=None)
                tracked = new["metadata"].get("managedFields")
                # Each is given an old object of its own: what was made from it may share parts.
                shown = write_plans.object_of(resource, seen, api_version)
                new = await options.mutate(new, shown, is_dry_run=options.dry_run)
                field_management.after_admission(new, tracked)
            made = await settled(partial(self._planner.plan_update, facts, old, new))
            if options.check is not None:
                # What admission changed may share parts with the old object.
                is_shared = options.mutate is not None
                was = write_plans.object_of(resource, seen, api_version) if is_shared else old
                options.check(made.obj, was)
            if options.review is not None:
                shown = write_plans.object_of(resource, seen, api_version)
                await options.review(made.obj, shown, is_dry_run=options.dry_run)
            return made

        return await self._write(plan, resource, options, verb="update", may_forget=not is_applied)

    async def delete(
        self,
        resource: Resource,
        version: str,
        path: str,
        sent: DeleteOptions,
        *,
        options: ObjectWriteOptions | None = None,
    ) -> Written:
        """Delete an object, or mark it so while finalizers hold it.

        Without a version it is the one that the object is stored in: then nothing need be
        converted to delete it.
        """
        options = options or ObjectWriteOptions(dry_run=sent.dry_run)
        cache = await self.read(resource)
        entry = cache.get(path)

        async def plan(moved: Moved | None) -> UpdatePlan | RemovePlan:
            nonlocal entry
            if isinstance(moved, StateMoved):
                entry = self._newest(resource, path, moved)
            if entry is None:
                raise self.missing(resource, path, cache)
            api_version = resource.api_version(version) if version else entry[1]
            # What goes away is only shown; what is marked is written.
            may_stay = bool(sent.policy) or b'"finalizers":' in entry[2]
            seen = await self._seen(resource, entry, api_version, is_for_writing=may_stay)
            made = self._planner.plan_delete(resource, api_version, path, entry, seen, sent)
            if options.review is not None:
                old = write_plans.object_of(resource, seen, api_version)
                await options.review(None, old, is_dry_run=options.dry_run)
            return made

        return await self._write(plan, resource, options, verb="delete")

    async def _write(
        self,
        plan: PlanNext,
        resource: Resource,
        options: ObjectWriteOptions,
        *,
        verb: str,
        may_forget: bool = False,
    ) -> Written:
        """The retry loop of every write: plan and commit, until all guards hold."""
        moved: Moved | None = None
        turn: QueueTurn | None = None
        made: ObjectPlan | None = None
        is_planned = False
        try:
            while True:
                try:
                    if made is None or not is_planned:
                        made, is_planned = await plan(moved), True
                    if options.dry_run:
                        return made.preview()
                    return await self._committer.commit(made)
                except status.RequestEntityTooLarge:
                    if not (made and is_planned and may_forget and _drop_managers(made)):
                        raise
                    continue
                except (StateMoved, PlaceMoved) as error:
                    moved, is_planned = error, False
                except FenceMoved as error:  # the same plan, in another version
                    moved = error
                    await self._policy.refresh(resource)
                if not options.retries.take():
                    raise overtaken(resource, verb, moved, made)
                if turn is None and not is_planned and isinstance(made, UpdatePlan | RemovePlan):
                    turn = await self._queues.enter(made.guard.key)
        finally:
            if turn is not None:
                turn.leave()

    def _newest(self, resource: Resource, path: str, moved: StateMoved) -> Entry | None:
        """The newest state of an object that was changed while a write of it was planned."""
        newest = self.fresh(resource)
        return self._entry(resource, moved.current) if newest is None else newest.get(path)

    async def _seen(
        self, resource: Resource, entry: Entry, api_version: str, *, is_for_writing: bool = True
    ) -> Entry:
        """An object in the version of the request, if a webhook converts it."""
        if resource.remote is None:
            return entry
        [seen] = await self.in_version(
            resource, [entry], api_version, is_for_writing=is_for_writing
        )
        return seen

    async def rewrite(self, plan: WritePlan) -> Refused | Unknown | None:
        """Commit a plan that is right for one state and one version, and never encode it again.

        None when that is done; otherwise what kept it from being done.
        """
        return await self._committer.rewrite(plan)


def _drop_managers(plan: ObjectPlan) -> bool:
    """Remove the managed fields, which only server-side apply needs; False if there are none."""
    return plan.resource.remote is None and bool(plan.obj["metadata"].pop("managedFields", None))


__all__ = [
    "Apply",
    "Change",
    "Check",
    "DeleteOptions",
    "ObjectWriteOptions",
    "ResourceStore",
    "Written",
]
