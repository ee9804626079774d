"""Roles that the servers look after: those that every cluster has, and those that gather others.

At its start each server makes the default roles and bindings that are missing, and adds to the
others what they lack; what somebody has added stays. One that is annotated with
`rbac.authorization.kubernetes.io/autoupdate: "false"` is left alone.

A cluster role with an aggregationRule gets the rules of all that it selects, whenever one of them
changes. Not here: who decides by roles (`restow.authorization`).
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
from restow.registry.catalog import Catalog
from restow.registry.reconcile_loops import for_each
from restow.registry.resource import Object, Resource
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.watch_cache import Entry, WatchCache
from restow.storage.interface import Batch, Revision

LOOK_SECONDS: Final = 300.0
ATTEMPTS_MAX: Final = 3
"""How often one object is made or changed that others make or remove at the same time."""
AT_ONCE_MAX: Final = 32
"""How many roles are looked at before others have their turn."""
CLUSTER_ROLES: Final = "clusterroles"
ALL: Final = ""
"""No name: all of them."""

logger = logging.getLogger(__name__)


# What every cluster has.


async def ensure_roles(store: ResourceStore, catalog: Catalog) -> None:
    """Make the default roles and bindings, or add what they lack. Several servers may do so at
    once. Raises a StorageError or a 503 when the store cannot be used."""
    defaults = default_objects()
    # The bindings last, so that none names a role that is not there yet.
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
    """Make one object right. One that cannot be is said, and holds nobody up."""
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
                continue  # another was faster
            return
    except StatusError as error:
        if error.code >= 500:
            raise
        logger.warning("the default %s %s is not as it should be: %s", *default[:2], error)


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
    """A binding cannot be made to name another role."""
    if _is_left_alone(current):
        return
    options = DeleteOptions(uid=current["metadata"].get("uid") or "")
    await store.delete(resource, working_version(resource), default.path, options)
    await _create(store, resource, default)


def is_same_role(default: Object, current: Object) -> bool:
    """Whether a binding is of the role that it should be of; all else is."""
    return "roleRef" not in default or default["roleRef"] == current.get("roleRef")


def completed(default: Object, current: Object) -> Object | None:
    """An object with what it lacks of a default one; None when there is nothing to do.

    For a binding of another role it is just another object.
    """
    if _is_left_alone(current):
        return None
    if not is_same_role(default, current):
        return default
    metadata = dict(current["metadata"])
    for name in ("labels", "annotations"):
        metadata[name] = default["metadata"][name] | (metadata.get(name) or {})
    found = {**current, "metadata": metadata}
    if "subjects" in default:
        found["subjects"] = _joined(current.get("subjects"), default["subjects"])
    elif (role := read_role(current)) is not None:  # what cannot be read is left as it is
        _complete_rules(default, found, role)
    return None if _same(found, current) else found


def _is_left_alone(current: Object) -> bool:
    return (current["metadata"].get("annotations") or {}).get(AUTO_UPDATE) == "false"


def _complete_rules(default: Object, found: Object, role: Role) -> None:
    wanted, present = default.get("aggregationRule"), found.get("aggregationRule")
    if wanted is None:
        found.pop("aggregationRule", None)
        lacking = rbac.missing(role.rules, rules_of(default["rules"]))
        if lacking:
            found["rules"] = [*(found.get("rules") or ()), *rules_object(lacking)]
        return
    # Its rules are gathered.
    selectors = _joined((present or {}).get("clusterRoleSelectors"), wanted["clusterRoleSelectors"])
    found["aggregationRule"] = {**(present or {}), "clusterRoleSelectors": selectors}


def _joined(present: list[Any] | None, wanted: list[Any]) -> list[Any]:
    held = list(present or ())
    return held + [each for each in wanted if each not in held]


def _same(new: Object, old: Object) -> bool:
    return all(new.get(name) == old.get(name) for name in new.keys() | old.keys())


# Those that gather others.


class RoleController:
    """Fills cluster roles that gather the rules of others. An observer of all objects."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        resource = catalog.named(GROUP, CLUSTER_ROLES)
        assert resource is not None, "asked for only where there are some"
        self._store = store
        self._resource = resource
        self._clock = runtime.clock
        self._roles = AggregatedRoles()
        self._seen: dict[str, int] = {}
        """By name: the revision of what was looked at."""
        self.queue: WorkQueue[str] = runtime.work_queue("roles")

    async def look(self, revision: Revision) -> None:
        self.queue.add(ALL)

    async def look_again(self) -> float:
        """The periodic look."""
        self.queue.add(ALL)
        return LOOK_SECONDS

    def see(self, batch: Batch) -> None:
        """Notice which of them have changed: who gathers them is seen when looking."""
        root = self._resource.root
        for event in batch.events:
            if event.key.startswith(root):
                self.queue.add(event.key[len(root) :])

    async def reconcile(self, key: str) -> float | None:
        """Look at one role, or at all. Those that gather it come next; what is written is seen,
        and looked at again: so that it comes to those who gather from those who gather."""
        cache = await self._store.read(self._resource)
        if key == ALL:
            await self._look_at_all(cache)
            return None
        self._take(cache, key)
        rules = self._roles.lacking(key)
        if rules is not None:
            await self._write(key, rules)
        return None

    async def _look_at_all(self, cache: WatchCache) -> None:
        names = self._seen.keys() | set(cache.select().keys)
        for count, name in enumerate(sorted(names), start=1):
            self._take(cache, name)
            if count % AT_ONCE_MAX == 0:
                await self._clock.sleep(0)  # there may be thousands, and others have work too
        for name in self._roles.gatherers:
            self.queue.add(name)

    def _take(self, cache: WatchCache, name: str) -> None:
        """Know a role as it is now. One that cannot be read counts as it was known."""
        entry = cache.get(name)
        if name in cache.damaged or (entry and entry[0]) == self._seen.get(name):
            return
        role = None
        if entry is None:
            del self._seen[name]
        else:
            self._seen[name] = entry[0]
            role = read_role(orjson.loads(entry[2]))
        for each in self._roles.put(name, role) - {name}:
            self.queue.add(each)

    async def _write(self, name: str, rules: tuple[PolicyRule, ...]) -> None:
        def change(obj: Object) -> Object:
            # One that gathers no more keeps what it has, as it is somebody's own now.
            if obj.get("aggregationRule"):
                obj["rules"] = rules_object(rules)
            return obj

        await update_if_present(self._store, self._resource, name, change)


def hosts_roles(catalog: Catalog) -> bool:
    """Whether there are roles that could gather others."""
    return catalog.named(GROUP, CLUSTER_ROLES) is not None
