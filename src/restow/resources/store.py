"""The store of objects: create, update and delete, each one guarded transaction.

Reads come from the watch caches. A write takes the newest state it knows, computes the next one
and commits it on condition that nothing has changed meanwhile; if something has, the refusal
carries what is there now and the computation is repeated. Every write of an object goes through
`_commit`, with the guards of the encoding policy in its own transaction.

Objects are in the version of the request here; they are converted on the way to storage. Not here:
HTTP, authorisation, and what a kind's fields mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, assert_never

import orjson

from restow.machinery import status
from restow.machinery.errors import MachineryError
from restow.machinery.status import of_machinery_error
from restow.resources import ownership, strategy
from restow.resources.caches import Caches
from restow.resources.definition import Object, Resource
from restow.resources.encoding import Encoding, EncodingPolicy, served_form, stored_form
from restow.resources.errors import translate
from restow.resources.stored import Splicer
from restow.resources.watch_cache import Entry, WatchCache
from restow.runtime import Runtime
from restow.storage.errors import StorageError
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Guard,
    Item,
    Put,
    Refused,
    RevisionIs,
    Storage,
    Transaction,
    Unknown,
    Write,
)

ATTEMPTS_MAX: Final = 16
GENERATED_NAME_ATTEMPTS_MAX: Final = 8
FENCE_ATTEMPTS_MAX: Final = 5
RETRY_SECONDS: Final = 1
DAMAGED_SHOWN_MAX: Final = 10
_SORTED: Final = orjson.OPT_SORT_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a write has come to."""

    body: bytes
    """The object in the version of the request, as the client gets it."""
    created: bool = False
    removed: bool = False
    """The object is gone, by a delete or because its last finalizer was taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWish:
    """What a client asks of a delete."""

    policy: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


class PlaceMoved(Exception):
    """The namespace of a new object is not as it was when it was looked at."""


class _Retry(Exception):
    """The state has moved on; here is the newest."""

    def __init__(self, current: Entry | None) -> None:
        super().__init__("retry")
        self.current = current


class ResourceStore:
    """All objects of one server."""

    def __init__(
        self, storage: Storage, caches: Caches, policy: EncodingPolicy, runtime: Runtime
    ) -> None:
        self._storage = storage
        self._caches = caches
        self._policy = policy
        self._clock = runtime.clock
        self._ids = runtime.ids
        self._splicers: dict[str, Splicer] = {}

    # Reading.

    def fresh(self, resource: Resource) -> WatchCache | None:
        """The resource's cache, if it can be read at once and misses nothing acknowledged."""
        return self._caches.fresh(resource.root)

    async def read(self, resource: Resource) -> WatchCache:
        """The same, waiting for it."""
        try:
            cache = await self._caches.load(resource.root, self.splicer(resource))
            if self._caches.fresh(resource.root) is None:
                await self._caches.freshen()
        except StorageError as error:
            raise translate(error) from error
        return cache

    def ready(self, resource: Resource) -> WatchCache | None:
        """The cache as it is, if it is loaded."""
        return self._caches.ready(resource.root)

    async def loaded(self, resource: Resource) -> WatchCache:
        """The cache as it is, however old."""
        try:
            return await self._caches.load(resource.root, self.splicer(resource))
        except StorageError as error:
            raise translate(error) from error

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
        found = self._splicers.get(resource.root)
        if found is None:
            versions = (resource.storage_api_version, *resource.decodable)
            found = self._splicers[resource.root] = Splicer(resource.kind.kind, versions)
        return found

    def body_of(self, resource: Resource, entry: Entry, api_version: str) -> bytes:
        """An object as served in a version."""
        if entry[1] == api_version:
            return entry[2]
        return orjson.dumps(self.object_of(resource, entry, api_version))

    def object_of(self, resource: Resource, entry: Entry, api_version: str) -> Object:
        """A fresh object in a version, with its resource version."""
        obj: Object = orjson.loads(entry[2])
        if entry[1] == api_version:
            return obj
        try:
            converted = resource.converter.convert(obj, entry[1], api_version)
        except MachineryError as error:
            raise of_machinery_error(error) from error
        # The kind may be called otherwise in another group that shares the store. Defaults are
        # those of the version asked for: whoever sends this back has then changed nothing.
        return resource.shape.default(api_version, {**converted, "kind": resource.kind.kind})

    # Writing.

    async def create(
        self,
        resource: Resource,
        version: str,
        obj: Object,
        *,
        namespace: str,
        place: RevisionIs | None = None,
        dry_run: bool = False,
    ) -> Written:
        """Store a new object. Raises 409 when the name is taken.

        `place` guards the namespace: nothing is stored in one that has just gone. Raises
        `PlaceMoved` when it does not hold.
        """
        api_version = resource.api_version(version)
        name = ""
        for _ in range(GENERATED_NAME_ATTEMPTS_MAX):
            fresh = {**obj, "metadata": dict(obj["metadata"])}
            has_own_name = bool(fresh["metadata"].get("name"))
            name = strategy.begin_create(
                resource, fresh, namespace=namespace, ids=self._ids, now=self._clock.wall()
            )
            strategy.check(resource, api_version, fresh, None)
            ownership.check_create(resource, fresh)
            path = resource.path_of(namespace, name)
            try:
                return await self._create(
                    resource, api_version, path, fresh, place=place, dry_run=dry_run
                )
            except _Retry as retry:
                if has_own_name:
                    raise self._exists(resource, name, retry.current) from None
        raise status.generated_name_taken(resource.kind.group_resource, name)

    async def _create(
        self,
        resource: Resource,
        api_version: str,
        path: str,
        obj: Object,
        *,
        place: RevisionIs | None,
        dry_run: bool,
    ) -> Written:
        key = resource.key_of(path)
        if dry_run:
            if (found := (await self.read(resource)).get(path)) is not None:
                raise _Retry(found)
            return Written(body=_dumps(resource, obj, api_version), created=True)

        def write(encoding: Encoding) -> Write:
            return Put(key, self._stored(resource, obj, api_version, encoding))

        revision, stored, encoded = await self._commit(resource, Absent(key), write, place=place)
        if encoded == api_version:
            body = served_form(resource, stored, encoded, revision)
        else:
            obj["metadata"]["resourceVersion"] = str(revision)
            body = _dumps(resource, obj, api_version)
        return Written(body=body, created=True)

    def _exists(self, resource: Resource, name: str, current: Entry | None) -> status.AlreadyExists:
        deleting = current is not None and b'"deletionTimestamp":' in current[2]
        return status.already_exists(resource.kind.group_resource, name, is_being_deleted=deleting)

    async def update(
        self,
        resource: Resource,
        version: str,
        path: str,
        change: Callable[[Object], Object],
        *,
        subresource: str = "",
        is_patch: bool = False,
        dry_run: bool = False,
    ) -> Written:
        """Change an object: `change` gets the newest state and returns the next.

        It may be called several times. For a patch it gets a fresh copy that it may change,
        otherwise one to look at. Raises 404, 409, 422, or whatever `change` raises.
        """
        api_version = resource.api_version(version)
        cache = self.fresh(resource) or await self.read(resource)
        entry = cache.get(path)
        for _ in range(ATTEMPTS_MAX):
            if entry is None:
                raise self.missing(resource, path, cache)
            try:
                return await self._update(
                    resource, api_version, path, entry, change,
                    subresource=subresource, is_patch=is_patch, dry_run=dry_run,
                )  # fmt: skip
            except _Retry as retry:
                entry = retry.current
        raise status.server_timeout(
            resource.kind.group_resource, "update", retry_after_seconds=RETRY_SECONDS
        )

    async def _update(
        self,
        resource: Resource,
        api_version: str,
        path: str,
        entry: Entry,
        change: Callable[[Object], Object],
        *,
        subresource: str,
        is_patch: bool,
        dry_run: bool,
    ) -> Written:
        old = self.object_of(resource, entry, api_version)
        name = path.rpartition("/")[2]
        new = change(self.object_of(resource, entry, api_version) if is_patch else old)
        strategy.check_versions(resource, new, old, name=name, is_patch=is_patch)
        strategy.begin_update(resource, new, old, subresource=subresource)
        strategy.check(resource, api_version, new, old)
        ownership.check_update(resource, new, old)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        key = resource.key_of(path)
        guard = RevisionIs(key, entry[0])  # type: ignore[arg-type]
        goes_away = bool(new["metadata"].get("deletionTimestamp")) and not strategy.has_finalizers(
            resource, new
        )
        if goes_away:
            ownership.check_delete(resource, old)
        if dry_run:
            return Written(body=_dumps(resource, new, api_version), removed=goes_away)
        if goes_away:
            await self._commit(resource, guard, lambda _: Delete(key))
            return Written(body=_dumps(resource, new, api_version), removed=True)
        return await self._put(resource, api_version, entry, guard, new, old)

    async def _put(  # noqa: PLR0917 - one write, handed down whole
        self,
        resource: Resource,
        api_version: str,
        entry: Entry,
        guard: RevisionIs,
        new: Object,
        old: Object,
    ) -> Written:
        unchanged = False

        def write(encoding: Encoding) -> Write | None:
            nonlocal unchanged
            stored = self._stored(resource, new, api_version, encoding)
            # The same object in the same version: nothing is written, and nothing is announced.
            if encoding.api_version == entry[1]:
                body = served_form(resource, stored, entry[1], entry[0])
                unchanged = body == entry[2] or (len(body) == len(entry[2]) and _equal(new, old))
            return None if unchanged else Put(guard.key, stored)

        revision, stored, encoded = await self._commit(resource, guard, write)
        if unchanged:
            return Written(body=self.body_of(resource, entry, api_version))
        if encoded == api_version:
            return Written(body=served_form(resource, stored, encoded, revision))
        new["metadata"]["resourceVersion"] = str(revision)
        return Written(body=_dumps(resource, new, api_version))

    async def delete(
        self, resource: Resource, version: str, path: str, wish: DeleteWish
    ) -> Written:
        """Delete an object, or mark it so while finalizers hold it."""
        api_version = resource.api_version(version)
        cache = self.fresh(resource) or await self.read(resource)
        entry = cache.get(path)
        for _ in range(ATTEMPTS_MAX):
            if entry is None:
                raise self.missing(resource, path, cache)
            try:
                return await self._delete(resource, api_version, path, entry, wish)
            except _Retry as retry:
                entry = retry.current
        raise status.server_timeout(
            resource.kind.group_resource, "delete", retry_after_seconds=RETRY_SECONDS
        )

    async def _delete(
        self, resource: Resource, api_version: str, path: str, entry: Entry, wish: DeleteWish
    ) -> Written:
        obj = self.object_of(resource, entry, api_version)
        self._check_preconditions(resource, obj, path, wish)
        ownership.check_delete(resource, obj)
        goes_away = strategy.mark_deleted(resource, obj, now=self._clock.wall(), policy=wish.policy)
        key = resource.key_of(path)
        guard = RevisionIs(key, entry[0])  # type: ignore[arg-type]
        if wish.dry_run:
            return Written(body=_dumps(resource, obj, api_version), removed=goes_away)
        if goes_away:
            await self._commit(resource, guard, lambda _: Delete(key))
            return Written(body=_dumps(resource, obj, api_version), removed=True)
        old = self.object_of(resource, entry, api_version)
        return await self._put(resource, api_version, entry, guard, obj, old)

    def _check_preconditions(
        self, resource: Resource, obj: Object, path: str, wish: DeleteWish
    ) -> None:
        metadata, name = obj["metadata"], path.rpartition("/")[2]
        if wish.uid and wish.uid != metadata.get("uid"):
            raise strategy.uid_conflict(
                resource, name, asked=wish.uid, found=metadata.get("uid") or ""
            )
        if wish.resource_version and wish.resource_version != metadata["resourceVersion"]:
            raise status.precondition_failed(
                resource.kind.group_resource,
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
        """The 500 for objects that are there and cannot be read: they are never left out."""
        shown = [f"{path}: {why}" for path, why in list(found.items())[:DAMAGED_SHOWN_MAX]]
        if len(found) > len(shown):
            shown.append(f"and {len(found) - len(shown)} more")
        return status.internal(
            f"{resource.kind.group_resource} cannot be read from the store: {'; '.join(shown)}"
        )

    # The one place where objects are committed.

    async def _commit(
        self,
        resource: Resource,
        guard: Absent | RevisionIs,
        write: Callable[[Encoding], Write | None],
        *,
        place: RevisionIs | None = None,
    ) -> tuple[int, bytes, str]:
        """Commit one write under its own guards and the fence; the revision, bytes and version.

        Raises `_Retry` with the newest state when the object's guard does not hold.
        """
        own: tuple[Guard, ...] = (guard,) if place is None else (guard, place)
        for _ in range(FENCE_ATTEMPTS_MAX):
            encoding = self._policy.encoding(resource)
            wanted = write(encoding)
            if wanted is None:
                return 0, b"", encoding.api_version
            stored = wanted.value if isinstance(wanted, Put) else b""
            try:
                outcome = await self._storage.commit(
                    Transaction((*own, *encoding.guards), (wanted,))
                )
            except StorageError as error:
                raise translate(error) from error
            match outcome:
                case Done(revision):
                    return revision, stored, encoding.api_version
                case Refused(failed, current, _) if failed is guard:
                    raise _Retry(self._entry(resource, current))
                case Refused(failed, _, _) if failed is place:
                    raise PlaceMoved
                case Refused():
                    await self._policy.refresh(resource)
                case Unknown(reason):
                    raise status.timeout(
                        f"it is not known whether the write has happened: {reason}"
                    )
                case _:
                    assert_never(outcome)
        raise status.unavailable(
            f"the storage version of {resource.kind.group_resource} is changing; try again",
            retry_after_seconds=RETRY_SECONDS,
        )

    def _entry(self, resource: Resource, item: Item | None) -> Entry | None:
        if item is None:
            return None
        try:
            return self.splicer(resource).serve(item.value, item.revision)
        except StorageError as error:
            raise translate(error) from error

    def _stored(
        self, resource: Resource, obj: Object, api_version: str, encoding: Encoding
    ) -> bytes:
        try:
            return stored_form(resource, obj, api_version, encoding.api_version)
        except MachineryError as error:
            raise of_machinery_error(error) from error


def _equal(new: Object, old: Object) -> bool:
    """Whether two objects differ in nothing but the order of their fields."""
    # Python takes 1, 1.0 and true for equal; their bytes are not.
    return new == old and orjson.dumps(new, option=_SORTED) == orjson.dumps(old, option=_SORTED)


def _dumps(resource: Resource, obj: Object, api_version: str) -> bytes:
    """An object as a client gets it, type first."""
    return orjson.dumps({"kind": resource.kind.kind, "apiVersion": api_version, **_rest(obj)})


def _rest(obj: Object) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


__all__ = ["DeleteWish", "PlaceMoved", "ResourceStore", "Written"]
