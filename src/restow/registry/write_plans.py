"""Plans of writes: what to store under which guard, and the response after the commit.

A plan is computed from one state of the object, without waiting. Only the storage version is left
open: the encoding policy determines it just before the commit, and again if the fence did not hold.
Objects with a conversion webhook are converted before the write, by `prepare`.

Not here: the commit (`committer`), and the computation of the next state (`strategy`).
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import orjson
from msgspec import Struct

from restow.apimachinery import status
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status import of_machinery_error
from restow.registry.custom.conversion import convert
from restow.registry.encoding import Encoding, served_form, stored_form
from restow.registry.resource import Object, Resource
from restow.registry.stored_bytes import encode, served_length
from restow.registry.watch_cache import Entry
from restow.storage.interface import Absent, Delete, Guard, Key, Put, Revision, RevisionIs, Write

_SORTED: Final = orjson.OPT_SORT_KEYS


class Written(Struct, frozen=True, kw_only=True):
    """The result of a write."""

    body: bytes
    """The object in the version of the request, as the client gets it."""
    created: bool = False
    removed: bool = False
    """Whether the object was removed, by a delete or with its last finalizer."""


class WritePlan(Protocol):
    """One write of one object."""

    @property
    def resource(self) -> Resource: ...

    @property
    def guard(self) -> Absent | RevisionIs:
        """The state of the object that the plan is based on."""

    @property
    def place(self) -> Guard | None:
        """For a create, the guard on the namespace; for an update, an additional guard."""

    def must_prepare(self, encoding: Encoding) -> bool:
        """Whether a webhook must convert the object first; called for resources that have one."""

    async def prepare(self, encoding: Encoding) -> None:
        """Convert the object with the webhook. Raises a StatusError."""

    def write(self, encoding: Encoding) -> Write | None:
        """Return the write to commit; None if the same bytes are stored already."""

    def preview(self) -> Written:
        """Return the response to a dry run."""

    def unchanged(self) -> Written:
        """Return the response if nothing had to be stored."""

    def written(
        self, revision: int, write: Write, encoded: str, served: bytes | None = None
    ) -> Written:
        """Return the response after the commit at this revision, in version `encoded`.

        `served` is the body in that version, if the watch cache has it already.
        """


class CreatePlan:
    """Creates an object."""

    __slots__ = ("_api_version", "_obj", "_remote", "guard", "path", "place", "resource")

    def __init__(
        self,
        resource: Resource,
        api_version: str,
        path: str,
        obj: Object,
        *,
        place: RevisionIs | None,
    ) -> None:
        self.resource = resource
        self.path = path
        self.guard = Absent(resource.key_of(path))
        self.place = place
        self._api_version = api_version
        self._obj = obj
        self._remote: _Remote | None = None

    @property
    def obj(self) -> Object:
        """The new object."""
        return self._obj

    def must_prepare(self, encoding: Encoding) -> bool:
        return _is_missing(self._remote, self._api_version, encoding.api_version)

    async def prepare(self, encoding: Encoding) -> None:
        self._remote = await _convert(
            self.resource, self._obj, self._api_version, encoding.api_version
        )

    def write(self, encoding: Encoding) -> Write:
        refuse_closing(self.resource, self._obj)
        if self._remote is not None and self._remote[0] == encoding.api_version:
            return Put(self.guard.key, self._remote[1])
        return Put(
            self.guard.key,
            _stored(self.resource, self._obj, self._api_version, encoding.api_version),
        )

    def preview(self) -> Written:
        return Written(body=_dumps(self.resource, self._obj, self._api_version), created=True)

    def unchanged(self) -> Written:
        return self.preview()  # not called: a create always stores an object

    def written(
        self, revision: int, write: Write, encoded: str, served: bytes | None = None
    ) -> Written:
        if served is not None and encoded == self._api_version:
            return Written(body=served, created=True)
        body = _served(self.resource, self._obj, self._api_version, revision, write, encoded)
        return Written(body=body, created=True)


class UpdatePlan:
    """Changes an object, or marks it as deleted."""

    __slots__ = ("_api_version", "_entry", "_new", "_old", "_remote", "guard", "place", "resource")

    def __init__(  # noqa: PLR0917 - the parameters of one write
        self,
        resource: Resource,
        api_version: str,
        key: Key,
        entry: Entry,
        new: Object,
        old: Object,
        *,
        place: Guard | None = None,
    ) -> None:
        self.resource = resource
        self.place = place
        self.guard = RevisionIs(key, Revision(entry[0]))
        self._api_version = api_version
        self._entry = entry
        self._new = new
        self._old = old
        self._remote: _Remote | None = None

    @property
    def obj(self) -> Object:
        """The object after the change."""
        return self._new

    def must_prepare(self, encoding: Encoding) -> bool:
        return _is_missing(self._remote, self._api_version, encoding.api_version)

    async def prepare(self, encoding: Encoding) -> None:
        # An unchanged object is not written, even if a round-trip conversion would change it.
        if encoding.api_version == self._entry[1] and _equal(self._new, self._old):
            self._remote = (encoding.api_version, b"")
            return
        self._remote = await _convert(
            self.resource, self._new, self._api_version, encoding.api_version
        )

    def write(self, encoding: Encoding) -> Write | None:
        if self._remote is not None and self._remote[0] == encoding.api_version:
            stored = self._remote[1]
            if not stored:
                return None
        else:
            stored = _stored(self.resource, self._new, self._api_version, encoding.api_version)
        # An unchanged object in the same version is not written, and watches get no event.
        if encoding.api_version == self._entry[1] and self._is_stored(stored):
            return None
        return Put(self.guard.key, stored)

    def _is_stored(self, stored: bytes) -> bool:
        revision, version, body = self._entry
        # Equal objects have encodings of equal length; most changes are detected by it.
        if served_length(stored, revision) != len(body):
            return False
        if served_form(self.resource, stored, version, revision) == body:
            return True
        return _equal(self._new, self._old)

    def preview(self) -> Written:
        return Written(body=_dumps(self.resource, self._new, self._api_version))

    def unchanged(self) -> Written:
        if self.resource.remote is not None:
            return Written(body=_dumps(self.resource, self._old, self._api_version))
        return Written(body=body_of(self.resource, self._entry, self._api_version))

    def written(
        self, revision: int, write: Write, encoded: str, served: bytes | None = None
    ) -> Written:
        if served is not None and encoded == self._api_version:
            return Written(body=served)
        return Written(
            body=_served(self.resource, self._new, self._api_version, revision, write, encoded)
        )


class RemovePlan:
    """Removes an object that has no finalizers left."""

    __slots__ = ("_api_version", "_obj", "guard", "resource")

    place: Final = None

    def __init__(
        self, resource: Resource, api_version: str, key: Key, entry: Entry, obj: Object
    ) -> None:
        self.resource = resource
        self.guard = RevisionIs(key, Revision(entry[0]))
        self._api_version = api_version
        self._obj = obj

    @property
    def obj(self) -> Object:
        """The last state of the object."""
        return self._obj

    def must_prepare(self, _encoding: Encoding) -> bool:
        return False

    async def prepare(self, _encoding: Encoding) -> None:
        return None

    def write(self, _encoding: Encoding) -> Write:
        return Delete(self.guard.key)

    def preview(self) -> Written:
        return Written(body=_dumps(self.resource, self._obj, self._api_version), removed=True)

    def unchanged(self) -> Written:
        return self.preview()

    def written(
        self, _revision: int, _write: Write, _encoded: str, _served: bytes | None = None
    ) -> Written:
        return self.preview()


def refuse_closing(resource: Resource, obj: Object) -> None:
    """Raise a 403 for a create while the CRD of the resource is being deleted."""
    if resource.origin is not None and resource.origin.is_closing:
        raise status.forbidden(
            "create not allowed while custom resource definition is terminating",
            resource=resource.kind.group_resource,
            name=obj["metadata"].get("name") or "",
        )


def body_of(resource: Resource, entry: Entry, api_version: str) -> bytes:
    """Return an object as served in a version."""
    if entry[1] == api_version:
        return entry[2]
    return orjson.dumps(object_of(resource, entry, api_version))


def object_of(resource: Resource, entry: Entry, api_version: str) -> Object:
    """Return a new object in a version, with its resource version.

    An object that a webhook converts must be in that version already.
    """
    obj: Object = orjson.loads(entry[2])
    if entry[1] == api_version:
        return obj
    assert resource.remote is None, (
        f"objects of {resource.kind.group_resource} are converted by a webhook"
    )
    try:
        converted = resource.converter.convert(obj, entry[1], api_version)
    except MachineryError as error:
        raise of_machinery_error(error) from error
    # The kind may have another name in another group that shares the store. Defaults are those
    # of the requested version, so that a client that writes this back changes nothing.
    return resource.shape.default(api_version, {**converted, "kind": resource.kind.kind})


_Remote = tuple[str, bytes]
"""A version, and the bytes to store in it; no bytes if the same object is stored already."""


def _is_missing(remote: _Remote | None, api_version: str, encoded: str) -> bool:
    return api_version != encoded and (remote is None or remote[0] != encoded)


async def _convert(resource: Resource, obj: Object, api_version: str, encoded: str) -> _Remote:
    typed = {"kind": resource.kind.kind, "apiVersion": api_version, **_rest(obj)}
    [converted] = await convert(resource, [typed], encoded)
    return encoded, encode(converted, encoded, resource.kind.kind)


def _stored(resource: Resource, obj: Object, api_version: str, encoded: str) -> bytes:
    assert resource.remote is None or api_version == encoded, "`prepare` must be called first"
    try:
        return stored_form(resource, obj, api_version, encoded)
    except MachineryError as error:
        raise of_machinery_error(error) from error


def _served(  # noqa: PLR0917 - as above
    resource: Resource, obj: Object, api_version: str, revision: int, write: Write, encoded: str
) -> bytes:
    """Return the response body of an object that was written in version `encoded`."""
    if encoded == api_version and isinstance(write, Put):
        return served_form(resource, write.value, encoded, revision)
    if resource.is_custom and resource.remote is None and isinstance(write, Put):
        # The stored object may lack fields that the storage version does not have.
        body = served_form(resource, write.value, encoded, revision)
        return body_of(resource, (revision, encoded, body), api_version)
    obj["metadata"]["resourceVersion"] = str(revision)
    return _dumps(resource, obj, api_version)


def _equal(new: Object, old: Object) -> bool:
    """Whether two objects are equal except for the order of their fields."""
    # Python considers 1, 1.0 and True equal; their JSON differs.
    return new == old and orjson.dumps(new, option=_SORTED) == orjson.dumps(old, option=_SORTED)


def _dumps(resource: Resource, obj: Object, api_version: str) -> bytes:
    """Return an object as a client gets it, kind and apiVersion first."""
    return orjson.dumps({"kind": resource.kind.kind, "apiVersion": api_version, **_rest(obj)})


def _rest(obj: Object) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
