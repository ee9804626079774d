"""Controllers of RBAC roles: creates the default roles and bindings, and fills aggregated roles.

At its start each server creates the default roles and bindings that are missing, and adds missing
labels, rules and subjects to the others; additions by users are kept. An object with the annotation
`rbac.authorization.kubernetes.io/autoupdate: "false"` is not changed.

A ClusterRole with an aggregationRule gets the rules of all roles that it selects whenever one of
them changes. Not here: authorization by roles (`restow.authorization`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

import orjson

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import rbac, status
from restow.apimachinery.rbac import PolicyRule
from restow.apimachinery.rbac_objects import (
    AUTO_UPDATE,
    GROUP,
    Role,
    read_role,
    rules_object,
    rules_of,
)
from restow.apimachinery.status_error import StatusError
from restow.controllers.aggregated_roles import AggregatedRoles
from restow.controllers.bootstrap_roles import Default, default_objects
from restow.controllers.object_keys import working_version
from restow.controllers.object_updates import update_if_present
from restow.controllers.objects_watch import Relisting, queue_changes
from restow.registry.catalog import Catalog
from restow.registry.reconcile_loops import for_each
from restow.registry.resource import Object, Resource
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.watch_cache import Entry, WatchCache
from restow.storage.interface import Batch, Revision

ATTEMPTS_MAX: Final = 3
"""Limit of the attempts to create or change an object that others change concurrently."""
AT_ONCE_MAX: Final = 32
"""Number of roles that are processed before yielding to other tasks."""
CLUSTER_ROLES: Final = "clusterroles"
ALL: Final = ""
"""The queue key for all roles."""

logger = logging.getLogger(__name__)


# Default roles and bindings.


async def ensure_roles(store: ResourceStore, catalog: Catalog) -> None:
    """Create the default roles and bindings, or complete them. Several servers may do so
    concurrently. Raises a StorageError or a 503 when the store cannot be used."""
    defaults = default_objects()
    # The bindings last, so that none refers to a role that does not exist yet.
    for plural in dict.fromkeys(each.plural for each in defaults):
        resource = catalog.named(GROUP, plural)
        if resource is None:
            continue
        cache = await store.read(resource)
        lacking = [
            each
            for each in defaults
            if each.plural == plural
            and each.path not in cache.damaged
            and not _is_complete(each.obj, cache.get(each.path))
        ]
        await for_each(lacking, partial(_ensure, store, resource))


def _is_complete(default: Object, entry: Entry | None) -> bool:
    return entry is not None and completed(default, orjson.loads(entry[2])) is None


async def _ensure(store: ResourceStore, resource: Resource, default: Default) -> None:
    """Create or complete one object. A rejection is logged and does not stop the others."""
    try:
        for _ in range(ATTEMPTS_MAX):
            entry = (await store.read(resource)).get(default.path)
            try:
                if entry is None:
                    await _create(store, resource, default)
                elif not is_same_role(default.obj, current := orjson.loads(entry[2])):
                    await _replace(store, resource, default, current)
                else:
                    await _complete(store, resource, default)
            except (status.AlreadyExists, status.NotFound, status.Conflict):
                continue  # changed concurrently
            return
    except StatusError as error:
        if error.code >= 500:
            raise
        logger.warning("cannot create or update the default %s %s: %s", *default[:2], error)


async def _create(store: ResourceStore, resource: Resource, default: Default) -> None:
    namespace = default.obj["metadata"].get("namespace") or ""
    fresh = orjson.loads(orjson.dumps(default.obj))
    await store.create(resource, working_version(resource), fresh, namespace=namespace)


async def _complete(store: ResourceStore, resource: Resource, default: Default) -> None:
    await store.update(
        resource,
        working_version(resource),
        default.path,
        lambda current: completed(default.obj, current) or current,
        is_patch=True,
    )


async def _replace(
    store: ResourceStore, resource: Resource, default: Default, current: Object
) -> None:
    """Replace a binding to another role, since roleRef is immutable."""
    if _is_unmanaged(current):
        return
    options = DeleteOptions(uid=current["metadata"].get("uid") or "")
    await store.delete(resource, working_version(resource), default.path, options)
    await _create(store, resource, default)


def is_same_role(default: Object, current: Object) -> bool:
    """Whether a binding refers to the role of the default; always true for roles."""
    return "roleRef" not in default or default["roleRef"] == current.get("roleRef")


def completed(default: Object, current: Object) -> Object | None:
    """Return an object with the missing parts of a default; None if nothing is missing.

    A binding to another role is replaced by the default.
    """
    if _is_unmanaged(current):
        return None
    if not is_same_role(default, current):
        return default
    metadata = dict(current["metadata"])
    for name in ("labels", "annotations"):
        metadata[name] = default["metadata"][name] | (metadata.get(name) or {})
    found = {**current, "metadata": metadata}
    if "subjects" in default:
        found["subjects"] = _joined(current.get("subjects"), default["subjects"])
    elif (role := read_role(current)) is not None:  # unreadable rules are not changed
        _complete_rules(default, found, role)
    return None if _same(found, current) else found


def _is_unmanaged(current: Object) -> bool:
    return (current["metadata"].get("annotations") or {}).get(AUTO_UPDATE) == "false"


def _complete_rules(default: Object, found: Object, role: Role) -> None:
    wanted, present = default.get("aggregationRule"), found.get("aggregationRule")
    if wanted is None:
        found.pop("aggregationRule", None)
        lacking = rbac.missing(role.rules, rules_of(default["rules"]))
        if lacking:
            found["rules"] = [*(found.get("rules") or ()), *rules_object(lacking)]
        return
    # An aggregated role: its rules follow from its selectors.
    selectors = _joined((present or {}).get("clusterRoleSelectors"), wanted["clusterRoleSelectors"])
    found["aggregationRule"] = {**(present or {}), "clusterRoleSelectors": selectors}


def _joined(present: list[Any] | None, wanted: list[Any]) -> list[Any]:
    held = list(present or ())
    return held + [each for each in wanted if each not in held]


def _same(new: Object, old: Object) -> bool:
    return all(new.get(name) == old.get(name) for name in new.keys() | old.keys())


# Aggregated roles.


class RoleController(Relisting):
    """Fills ClusterRoles that have an aggregationRule. An observer of all objects."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        resource = catalog.named(GROUP, CLUSTER_ROLES)
        assert resource is not None, "this release hosts no ClusterRoles"
        self._store = store
        self._resource = resource
        self._clock = runtime.clock
        self._roles = AggregatedRoles()
        self._processed: dict[str, int] = {}
        """By name: the revision that was last processed."""
        self.queue: WorkQueue[str] = runtime.work_queue("roles")

    async def list_objects(self, revision: Revision) -> None:
        self.queue.add(ALL)

    def on_batch(self, batch: Batch) -> None:
        """Queue changed roles; the aggregated roles that select them are found by `reconcile`."""
        queue_changes(self.queue, self._resource.root, batch)

    async def reconcile(self, key: str) -> float | None:
        """Process one role, or all of them. Aggregated roles that select it are queued next. The
        event of each write queues the written role, so that changes propagate through several
        levels."""
        cache = await self._store.read(self._resource)
        if key == ALL:
            await self._process_all(cache)
            return None
        self._process(cache, key)
        rules = self._roles.lacking(key)
        if rules is not None:
            await self._write(key, rules)
        return None

    async def _process_all(self, cache: WatchCache) -> None:
        names = self._processed.keys() | set(cache.select().keys)
        for count, name in enumerate(sorted(names), start=1):
            self._process(cache, name)
            if count % AT_ONCE_MAX == 0:
                await self._clock.sleep(0)  # there may be thousands: yield to other tasks
        for name in self._roles.aggregated_names:
            self.queue.add(name)

    def _process(self, cache: WatchCache, name: str) -> None:
        """Process the current state of a role. An unreadable role keeps its last known state."""
        entry = cache.get(name)
        if name in cache.damaged or (entry and entry[0]) == self._processed.get(name):
            return
        role = None
        if entry is None:
            del self._processed[name]
        else:
            self._processed[name] = entry[0]
            role = read_role(orjson.loads(entry[2]))
        for each in self._roles.put(name, role) - {name}:
            self.queue.add(each)

    async def _write(self, name: str, rules: tuple[PolicyRule, ...]) -> None:
        def change(obj: Object) -> Object:
            # Without an aggregationRule, a role keeps its rules: they belong to its user now.
            if obj.get("aggregationRule"):
                obj["rules"] = rules_object(rules)
            return obj

        await update_if_present(self._store, self._resource, name, change)


def hosts_roles(catalog: Catalog) -> bool:
    """Whether the release hosts ClusterRoles."""
    return catalog.named(GROUP, CLUSTER_ROLES) is not None
