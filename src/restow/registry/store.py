"""The object store: create, update and delete, each in one guarded transaction.

A write takes the newest known state (`object_reader`), computes the next one (`write_planner`) and
commits it on condition that nothing has changed since (`committer`). If a guard does not hold,
nothing was written, and the single retry loop (`_write`) tries again: with a plan from the newest
state, which the refusal contains, or with the same plan in another version.

Objects are in the version of the request here; they are converted for storage, by a webhook before
the commit. If the CRD of a custom resource is replaced meanwhile, `ResourceReplaced` is raised and
the request starts again with its remaining retries.

Not here: HTTP, authorization, and the meaning of the fields of a kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
from restow.registry.field_management import Apply, Converting
from restow.registry.long_work import ON_LOOP, WorkRunner
from restow.registry.object_reader import ObjectReader
from restow.registry.resource import Object, Resource
from restow.registry.write_options import Check, FindPlace, ObjectWriteOptions
from restow.registry.write_planner import Change, DeleteOptions, Facts, WritePlanner, by_path
from restow.registry.write_plans import CreatePlan, RemovePlan, UpdatePlan, WritePlan, Written
from restow.registry.write_queues import HeavyObjects, QueueSlot, WriteQueues
from restow.storage.interface import Refused, Storage, Unknown

ObjectPlan: TypeAlias = CreatePlan | UpdatePlan | RemovePlan
PlanNext: TypeAlias = "Callable[[Moved | None], Awaitable[tuple[ObjectPlan, WorkRunner]]]"
"""Plans a write; for a retry, it gets the guard that the previous plan failed on."""


class ResourceStore(ObjectReader):
    """Reads and writes all objects of one server."""

    def __init__(
        self,
        storage: Storage,
        caches: Caches,
        policy: EncodingPolicy,
        runtime: Runtime,
        *,
        sealed: Sealed | None = None,
    ) -> None:
        """`sealed`: the storage below the encryption layer; None without encryption."""
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
        """Store a new object. Raises 409 if the name is taken.

        `place` guards the namespace: no object is created in a namespace that was just deleted.
        """
        options = options or ObjectWriteOptions()
        manager, may_forget = options.manager, options.manager is not None
        runner = options.runner()
        if options.mutate is not None:
            if place is not None:  # no admission for an object that cannot be created
                await place(must_be_fresh=False)
            obj = {**obj, "metadata": dict(obj["metadata"])}
            strategy.place(resource.kind, obj["metadata"], namespace)
            await runner.run(self._planner.track_new, resource, version, obj, manager)
            tracked, manager = obj["metadata"].get("managedFields"), None
            obj = await options.mutate(obj, None, is_dry_run=options.dry_run, runner=runner)
            field_management.after_admission(obj, tracked)
        name = obj["metadata"].get("name")

        async def plan(moved: Moved | None) -> tuple[CreatePlan, WorkRunner]:
            if isinstance(moved, StateMoved) and name:
                raise self.exists(resource, name, self._entry(resource, moved.current))
            if resource.kind.is_heavy:
                await self.heavy_objects.enter()
            guard = None
            if place is not None:
                guard = await place(must_be_fresh=isinstance(moved, PlaceMoved))
            wanted = (resource, version, obj, namespace, guard, manager)
            made = await runner.run(
                self._planner.plan_create, *wanted, has_rules=resource.is_custom
            )
            if options.check is not None:
                options.check(made.obj, None)
            if options.review is not None:
                await options.review(made.obj, None, is_dry_run=options.dry_run, runner=runner)
            if options.dry_run:
                taken = (await self.read(resource)).get(made.path)
                if taken is not None and name:
                    raise self.exists(resource, name, taken)
                if taken is not None:
                    raise StateMoved(None)
            return made, runner

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
        """Change an object: `change` gets the newest state and returns the next one.

        `change` and admission may run several times. For a patch, `change` gets a copy that it may
        modify, otherwise an object that it must not modify. Raises 404, 409, 422, and the errors of
        `change` and admission. Without a version, the object is processed in its stored version.
        """
        options = options or ObjectWriteOptions()
        is_applied = isinstance(change, Apply)
        converting = Converting(resource, is_needed=is_applied)
        manager = None if is_applied else by_path(options.manager, subresource)
        cache = await self.read(resource)
        entry = cache.get(path)
        old: Object = {}

        async def plan(moved: Moved | None) -> tuple[UpdatePlan | RemovePlan, WorkRunner]:
            nonlocal entry, old
            if isinstance(moved, PlaceMoved):
                raise ownership.narrowing_refused(resource, old)
            if isinstance(moved, StateMoved):
                entry = self.newest(resource, path, moved)
            if entry is None:
                raise self.missing(resource, path, cache)
            api_version = resource.api_version(version) if version else entry[1]
            if resource.kind.is_heavy:
                await self.heavy_objects.enter()
            seen = await self.converted(resource, entry, api_version)
            facts = Facts(
                resource, api_version, path, entry, subresource, is_patch, converting, manager
            )
            runner = options.runner(len(seen[2]))
            has_rules = resource.is_custom
            if options.mutate is None:
                old, made = await runner.run(
                    self._planner.update, facts, seen, change, has_rules=has_rules
                )
            else:
                old, new = await runner.run(self._planner.changed, facts, seen, change)
                await runner.run(self._planner.track, facts, old, new)
                facts = facts._replace(manager=None)
                tracked = new["metadata"].get("managedFields")
                # Webhooks get an old object of their own: the new one may share parts with `old`.
                shown = await runner.run(write_plans.object_of, resource, seen, api_version)
                new = await options.mutate(new, shown, is_dry_run=options.dry_run, runner=runner)
                field_management.after_admission(new, tracked)
                await runner.run(self._planner.begin_update, facts, old, new)
                made = await runner.run(
                    self._planner.plan_update, facts, old, new, has_rules=has_rules
                )
            if options.check is not None:
                # An object changed by admission may share parts with the old object.
                is_shared = options.mutate is not None
                was = old
                if is_shared:
                    was = await runner.run(write_plans.object_of, resource, seen, api_version)
                options.check(made.obj, was)
            if options.review is not None:
                shown = await runner.run(write_plans.object_of, resource, seen, api_version)
                await options.review(made.obj, shown, is_dry_run=options.dry_run, runner=runner)
            return made, runner

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
        """Delete an object, or mark it as deleted while it has finalizers.

        Without a version, the object is processed in its stored version, so that a delete does not
        require a conversion.
        """
        options = options or ObjectWriteOptions(dry_run=sent.dry_run)
        cache = await self.read(resource)
        entry = cache.get(path)

        async def plan(moved: Moved | None) -> tuple[UpdatePlan | RemovePlan, WorkRunner]:
            nonlocal entry
            if isinstance(moved, StateMoved):
                entry = self.newest(resource, path, moved)
            if entry is None:
                raise self.missing(resource, path, cache)
            api_version = resource.api_version(version) if version else entry[1]
            # A removed object is only returned; an object that stays is written.
            may_stay = bool(sent.policy) or b'"finalizers":' in entry[2]
            seen = await self.converted(resource, entry, api_version, is_for_writing=may_stay)
            runner = options.runner(len(seen[2]))
            made = await runner.run(
                self._planner.plan_delete, resource, api_version, path, entry, seen, sent
            )
            if options.review is not None:
                old = await runner.run(write_plans.object_of, resource, seen, api_version)
                await options.review(None, old, is_dry_run=options.dry_run, runner=runner)
            return made, runner

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
        """Plan and commit a write; retry until all guards hold or no retries remain."""
        moved: Moved | None = None
        slot: QueueSlot | None = None
        made: ObjectPlan | None = None
        runner = ON_LOOP
        is_planned = False
        try:
            while True:
                try:
                    if made is None or not is_planned:
                        (made, runner), is_planned = await plan(moved), True
                    if options.dry_run:
                        return await runner.run(made.preview)
                    return await self._committer.commit(made, runner)
                except status.RequestEntityTooLarge:
                    if not (made and is_planned and may_forget and _drop_managers(made)):
                        raise
                    continue
                except (StateMoved, PlaceMoved) as error:
                    moved, is_planned = error, False
                except FenceMoved as error:  # the same plan, in another version
                    moved = error
                    # KEP-1201 0.20: read the selection, encode again, and retry
                    await self._policy.refresh(resource)
                if not options.retries.take():
                    raise overtaken(resource, verb, moved, made)
                if slot is None and not is_planned and isinstance(made, UpdatePlan | RemovePlan):
                    slot = await self._queues.enter(made.guard.key)
        finally:
            if slot is not None:
                slot.leave()

    async def rewrite(self, plan: WritePlan) -> Refused | Unknown | None:
        """Commit a plan that is valid for one state and one version only, without retries.

        Return None after the commit, otherwise the outcome that prevented it.
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
