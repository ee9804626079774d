"""Plans writes: computes the plan of a request from the newest known state of the object.

Creates, updates and deletes each become a plan of one guarded transaction. This applies all
synchronous steps: the strategy, the shape of the kind, ownership rules, and managed fields. Nothing
is read or stored here.

Not here: the plans themselves (`write_plans`), the commit (`committer`) and the retries (`store`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.apply import field_managers
from restow.apimachinery.apply.entries import Manager
from restow.kinds.validation import NO_CONTENT
from restow.registry import field_management, graceful_deletion, ownership, strategy, write_plans
from restow.registry.field_management import SERVER, Apply, Converting
from restow.registry.managed_fields_cache import ManagedFieldsCache
from restow.registry.resource import Object, Resource
from restow.registry.watch_cache import Entry
from restow.registry.write_plans import CreatePlan, RemovePlan, UpdatePlan
from restow.storage.interface import RevisionIs

_NO_CONTENT: Final = frozenset(f"f:{name}" for name in NO_CONTENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """DeleteOptions of a request."""

    policy: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    grace_seconds: int | None = 0
    """The grace period; None: the one in the object's spec."""


Change = Callable[[Object], Object] | Apply
"""Computes the next state of an object from its newest one, or a configuration to apply."""


class Facts(NamedTuple):
    """Parameters of an update that do not depend on the change."""

    resource: Resource
    api_version: str
    path: str
    entry: Entry
    subresource: str
    is_patch: bool
    converting: Converting
    manager: Manager | None


def by_path(manager: Manager | None, subresource: str) -> Manager | None:
    """Return the manager with the subresource, for writes by the server itself."""
    if manager is SERVER and subresource:
        return manager._replace(subresource=subresource)
    return manager


class WritePlanner:
    """Makes plans with the clock and the ID generator of one server."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._ids = runtime.ids
        self.known: Final = ManagedFieldsCache(runtime.ids.uid())

    def plan_create(  # noqa: PLR0917 - the parameters of one write
        self,
        resource: Resource,
        version: str,
        obj: Object,
        namespace: str,
        place: RevisionIs | None,
        manager: Manager | None,
    ) -> CreatePlan:
        """Plan the create of an object. Raises a StatusError if it is not allowed."""
        write_plans.refuse_closing(resource, obj)
        api_version, now = resource.api_version(version), self._clock.wall()
        fresh = {**obj, "metadata": dict(obj["metadata"])}

        def track() -> None:
            if manager is not None:
                time = fresh["metadata"]["creationTimestamp"]
                field_managers.track_create(resource.shape, fresh, manager, api_version, time)

        strategy.begin_create(
            resource, api_version, fresh, namespace=namespace, ids=self._ids, now=now, track=track
        )
        strategy.check(resource, api_version, fresh, None)
        ownership.check_create(resource, fresh)
        name = fresh["metadata"].get("name")
        path = resource.path_of(namespace, name if isinstance(name, str) else "")
        return CreatePlan(resource, api_version, path, fresh, place=place)

    def track_new(
        self, resource: Resource, version: str, obj: Object, manager: Manager | None
    ) -> None:
        """Track managed fields before mutating admission, whose additions have no manager."""
        api_version = resource.api_version(version)
        if resource.has_status(api_version) and not resource.kind.create_keeps_status:
            obj.pop("status", None)
        if manager is not None:
            field_managers.track_create(resource.shape, obj, manager, api_version, self._time())

    def changed(self, facts: Facts, seen: Entry, change: Change) -> tuple[Object, Object]:
        """Apply a change; return the current object and the new one. `seen` is the entry in the
        version of the request, if a webhook converts it."""
        resource, api_version = facts.resource, facts.api_version
        if isinstance(change, Apply):
            old = write_plans.object_of(resource, seen, api_version)
            # The result may share parts with the object that the configuration was applied to.
            live = write_plans.object_of(resource, seen, api_version)
            return old, change.to(
                resource, api_version, live, now=self._clock.wall(), converting=facts.converting
            )
        old = self._object_of(facts, seen)
        if not facts.is_patch:
            return old, change(old)
        fresh = self._object_of(facts, seen)
        if (found := old["metadata"].get("managedFields")) is not None:
            # Entries are never changed in place: unchanged ones are detected by identity.
            fresh["metadata"]["managedFields"] = found
        return old, change(fresh)

    def _object_of(self, facts: Facts, seen: Entry) -> Object:
        """Return a new object in the version of the request; managed fields may be shared."""
        resource, api_version = facts.resource, facts.api_version
        if seen[1] != api_version:
            return write_plans.object_of(resource, seen, api_version)
        return self.known.load(resource.key_of(facts.path), seen[2])

    def track(self, facts: Facts, old: Object, new: Object) -> None:
        """Track managed fields before mutating admission, whose changes have no manager."""
        resource, api_version = facts.resource, facts.api_version
        strategy.put_back(resource, api_version, new, old, subresource=facts.subresource)
        metadata = new["metadata"]
        sent = metadata.get("resourceVersion")
        self._track_change(facts, old, new)
        if sent is not None:
            metadata["resourceVersion"] = sent  # compared after admission
        else:
            metadata.pop("resourceVersion", None)

    def _track_change(self, facts: Facts, old: Object, new: Object) -> bool:
        """Track managed fields; return whether the content certainly differs."""
        if facts.manager is None:
            return False
        try:
            modified = field_managers.track_update(
                facts.resource.shape,
                old,
                new,
                manager=facts.manager,
                api_version=facts.api_version,
                time=self._time,
                convert=facts.converting,
            )
        except field_managers.EntriesRefused as error:
            name = facts.path.rpartition("/")[2]
            kind = facts.resource.kind.group_kind
            raise status.invalid(kind, name, error.causes) from error
        key = facts.resource.key_of(facts.path)
        # An object stored by another program may have the same content in another form.
        was_whole = self.known.is_whole(key, old)
        found, before = (each["metadata"].get("managedFields") for each in (new, old))
        if found:
            # A write through a subresource normalizes only a part. With unchanged managed fields,
            # the object may be the old one; whether it will be stored is unknown here.
            is_whole = was_whole or (not facts.subresource and found is not before)
            self.known.note(key, found, is_whole=is_whole)
        return was_whole and not modified.keys() <= _NO_CONTENT

    def _time(self) -> str:
        return strategy.timestamp(self._clock.wall())

    def update(
        self, facts: Facts, seen: Entry, change: Change
    ) -> tuple[Object, UpdatePlan | RemovePlan]:
        """Apply a change and plan it; return the current object, and the plan."""
        old, new = self.changed(facts, seen, change)
        self.begin_update(facts, old, new)
        return old, self.plan_update(facts, old, new)

    def begin_update(self, facts: Facts, old: Object, new: Object) -> None:
        """Set the metadata of the new object that the server sets. Raises a StatusError."""
        name = facts.path.rpartition("/")[2]
        strategy.check_versions(facts.resource, new, old, name=name, is_patch=facts.is_patch)
        strategy.begin_update(
            facts.resource,
            facts.api_version,
            new,
            old,
            subresource=facts.subresource,
            track=lambda: self._track_change(facts, old, new),
        )

    @staticmethod
    def plan_update(facts: Facts, old: Object, new: Object) -> UpdatePlan | RemovePlan:
        """Plan an update after `begin_update`; a removal if a deleted object has no finalizers
        left. Raises a StatusError if the object is invalid."""
        resource, api_version, path, entry, subresource = facts[:5]
        strategy.check(resource, api_version, new, old, subresource=subresource)
        ownership.check_update(resource, new, old)
        metadata, key = new["metadata"], resource.key_of(path)
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        field_management.keep_times(new, old)
        if (
            metadata.get("deletionTimestamp")
            and not graceful_deletion.is_ending(metadata)
            and not strategy.has_finalizers(resource, new)
        ):
            ownership.check_delete(resource, old)
            return RemovePlan(resource, api_version, key, entry, new)
        place = ownership.guard_of_update(resource, new, old)
        return UpdatePlan(resource, api_version, key, entry, new, old, place=place)

    def plan_delete(  # noqa: PLR0917 - the parameters of one write
        self,
        resource: Resource,
        api_version: str,
        path: str,
        entry: Entry,
        seen: Entry,
        options: DeleteOptions,
    ) -> UpdatePlan | RemovePlan:
        """Plan a delete: removes or marks the object. Raises 409."""
        obj = write_plans.object_of(resource, seen, api_version)
        self._check_preconditions(resource, obj, path, options)
        ownership.check_delete(resource, obj)
        goes_away = strategy.mark_deleted(
            resource,
            obj,
            now=self._clock.wall(),
            policy=options.policy,
            grace_seconds=options.grace_seconds,
        )
        key = resource.key_of(path)
        if goes_away:
            return RemovePlan(resource, api_version, key, entry, obj)
        old = write_plans.object_of(resource, seen, api_version)
        return UpdatePlan(resource, api_version, key, entry, obj, old)

    def _check_preconditions(
        self, resource: Resource, obj: Object, path: str, options: DeleteOptions
    ) -> None:
        metadata, name = obj["metadata"], path.rpartition("/")[2]
        if options.uid and options.uid != metadata.get("uid"):
            raise status.precondition_of_delete_failed(
                resource.kind.group_kind,
                name,
                what="UID",
                wanted=options.uid,
                found=metadata.get("uid") or "",
            )
        if options.resource_version and options.resource_version != metadata["resourceVersion"]:
            raise status.precondition_of_delete_failed(
                resource.kind.group_kind,
                name,
                what="ResourceVersion",
                wanted=options.resource_version,
                found=metadata["resourceVersion"],
            )
