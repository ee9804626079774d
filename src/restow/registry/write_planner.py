"""What a write comes to: from what a client asks, and the newest state that is known, to a plan.

A create, an update and a delete each become a plan of one guarded transaction, after everybody has
had their say who need not be waited for: the strategy, the kind, its owners, and who manages which
fields. Nothing is read or stored here.

Not here: what a plan is (`write_plans`), who commits it, and how often it is made anew (`store`).
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
    """What a client asks of a delete."""

    policy: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    grace_seconds: int | None = 0
    """How long it has to end, if it needs time for that; None: as long as it says itself."""


Change = Callable[[Object], Object] | Apply
"""The next state of an object by its newest one; or a configuration that is applied to it."""


class Facts(NamedTuple):
    """What is known of an update, whatever it changes."""

    resource: Resource
    api_version: str
    path: str
    entry: Entry
    subresource: str
    is_patch: bool
    converting: Converting
    manager: Manager | None


def by_path(manager: Manager | None, subresource: str) -> Manager | None:
    """Whoever writes, by this path; the server itself does not say by which."""
    if manager is SERVER and subresource:
        return manager._replace(subresource=subresource)
    return manager


class WritePlanner:
    """Makes plans, with the time and the ids of one server."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._ids = runtime.ids
        self.known: Final = ManagedFieldsCache(runtime.ids.uid())

    def plan_create(
        self,
        resource: Resource,
        version: str,
        obj: Object,
        *,
        namespace: str,
        place: RevisionIs | None,
        manager: Manager | None,
    ) -> CreatePlan:
        """The plan of a new object. Raises a StatusError when there may be none."""
        write_plans.refuse_closing(resource, obj)
        api_version, now = resource.api_version(version), self._clock.wall()
        fresh = {**obj, "metadata": dict(obj["metadata"])}

        def track() -> None:
            if manager is not None:
                time = fresh["metadata"]["creationTimestamp"]
                field_managers.track_create(resource.shape, fresh, manager, api_version, time)

        name = strategy.begin_create(
            resource, api_version, fresh, namespace=namespace, ids=self._ids, now=now, track=track
        )
        strategy.check(resource, api_version, fresh, None)
        ownership.check_create(resource, fresh)
        path = resource.path_of(namespace, name)
        return CreatePlan(resource, api_version, path, fresh, place=place)

    def track_new(
        self, resource: Resource, version: str, obj: Object, manager: Manager | None
    ) -> None:
        """Before others may change it: what they add is nobody's."""
        api_version = resource.api_version(version)
        if resource.has_status(api_version) and not resource.kind.create_keeps_status:
            obj.pop("status", None)
        if manager is not None:
            field_managers.track_create(resource.shape, obj, manager, api_version, self._time())

    def changed(self, facts: Facts, seen: Entry, change: Change) -> tuple[Object, Object]:
        """The object as it is, and as it is to be. `seen` is its entry in the version of the
        request, if somebody else converts it."""
        resource, api_version = facts.resource, facts.api_version
        if isinstance(change, Apply):
            old = write_plans.object_of(resource, seen, api_version)
            # It may share parts with the object that it was applied to.
            live = write_plans.object_of(resource, seen, api_version)
            return old, change.to(
                resource, api_version, live, now=self._clock.wall(), converting=facts.converting
            )
        old = self._object_of(facts, seen)
        if not facts.is_patch:
            return old, change(old)
        fresh = self._object_of(facts, seen)
        if (found := old["metadata"].get("managedFields")) is not None:
            # Nobody changes what is in them: if they are the same, that is seen at once.
            fresh["metadata"]["managedFields"] = found
        return old, change(fresh)

    def _object_of(self, facts: Facts, seen: Entry) -> Object:
        """A fresh object in the version of the request; its entries may be shared."""
        resource, api_version = facts.resource, facts.api_version
        if seen[1] != api_version:
            return write_plans.object_of(resource, seen, api_version)
        return self.known.load(resource.key_of(facts.path), seen[2])

    def track(self, facts: Facts, old: Object, new: Object) -> None:
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

    def _track_change(self, facts: Facts, old: Object, new: Object) -> bool:
        """Whether it is known already that the content differs."""
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
        # What somebody else has stored may say the same in other words.
        was_whole = self.known.is_whole(key, old)
        found, before = (each["metadata"].get("managedFields") for each in (new, old))
        if found:
            # By a path of its own only a part is written. With the entries that it had before, an
            # object may be as it was before: whether this is ever stored is not known here.
            is_whole = was_whole or (not facts.subresource and found is not before)
            self.known.note(key, found, is_whole=is_whole)
        return was_whole and not modified.keys() <= _NO_CONTENT

    def _time(self) -> str:
        return strategy.timestamp(self._clock.wall())

    def plan_update(self, facts: Facts, old: Object, new: Object) -> UpdatePlan | RemovePlan:
        """The plan of a change; of its end, if nothing holds it any more that is to be deleted."""
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

    def plan_delete(  # noqa: PLR0917 - what is known of one write
        self,
        resource: Resource,
        api_version: str,
        path: str,
        entry: Entry,
        seen: Entry,
        options: DeleteOptions,
    ) -> UpdatePlan | RemovePlan:
        """The plan of a delete: it goes away, or is marked. Raises 409."""
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
