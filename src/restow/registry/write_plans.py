"""Writes that have been worked out: what to store under which guard, and what to answer then.

A plan is made from one state of the object, in one go. Only the version to store it in is left
open: the encoding policy is asked for it at the last moment, and again if the fence did not hold.
What somebody else converts is converted before it is written, by `prepare`.

Not here: how a plan is committed (`store`), and how the next state comes about (`strategy`).
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
    """What a write has come to."""

    body: bytes
    """The object in the version of the request, as the client gets it."""
    created: bool = False
    removed: bool = False
    """The object is gone, by a delete or because its last finalizer was taken away."""


class WritePlan(Protocol):
    """One write of one object."""

    @property
    def resource(self) -> Resource: ...

    @property
    def guard(self) -> Absent | RevisionIs:
        """The state that the plan was made from."""

    @property
    def place(self) -> Guard | None:
        """The namespace that a new object was planned to be in; of an update, what else it is on
        condition of."""

    def must_prepare(self, encoding: Encoding) -> bool:
        """Whether somebody else has to convert what is to be written; asked of such resources."""

    async def prepare(self, encoding: Encoding) -> None:
        """Have it converted. Raises a StatusError."""

    def write(self, encoding: Encoding) -> Write | None:
        """What to commit; None when it is stored like that already."""

    def preview(self) -> Written:
        """The answer to a dry run."""

    def unchanged(self) -> Written:
        """The answer when there was nothing to store."""

    def written(
        self, revision: int, write: Write, encoded: str, served: bytes | None = None
    ) -> Written:
        """The answer once it is committed, at this revision and in this version.

        `served` is its body in that version, if somebody has it already.
        """


class CreatePlan:
    """A new object."""

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
        """The object as it will be."""
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
        return self.preview()  # a new object always has something to store

    def written(
        self, revision: int, write: Write, encoded: str, served: bytes | None = None
    ) -> Written:
        if served is not None and encoded == self._api_version:
            return Written(body=served, created=True)
        body = _served(self.resource, self._obj, self._api_version, revision, write, encoded)
        return Written(body=body, created=True)


class UpdatePlan:
    """A change of an object, or its mark that it is to be deleted."""

    __slots__ = ("_api_version", "_entry", "_new", "_old", "_remote", "guard", "place", "resource")

    def __init__(  # noqa: PLR0917 - one write, handed down whole
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
        """The object as it will be."""
        return self._new

    def must_prepare(self, encoding: Encoding) -> bool:
        return _is_missing(self._remote, self._api_version, encoding.api_version)

    async def prepare(self, encoding: Encoding) -> None:
        # Who changes nothing writes nothing, whatever the way there and back would make of it.
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
        # The same object in the same version: nothing is written, and nothing is announced.
        if encoding.api_version == self._entry[1] and self._is_stored(stored):
            return None
        return Put(self.guard.key, stored)

    def _is_stored(self, stored: bytes) -> bool:
        revision, version, body = self._entry
        # Equal objects have bytes of equal length, in whatever order: most need no closer look.
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
    """The end of an object that nothing holds any longer."""

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
        """The object as it was last."""
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
    """Raise a 403 when nothing new is created, as the definition of the resource is going away."""
    if resource.origin is not None and resource.origin.is_closing:
        raise status.forbidden(
            "create not allowed while custom resource definition is terminating",
            resource=resource.kind.group_resource,
            name=obj["metadata"].get("name") or "",
        )


def body_of(resource: Resource, entry: Entry, api_version: str) -> bytes:
    """An object as served in a version."""
    if entry[1] == api_version:
        return entry[2]
    return orjson.dumps(object_of(resource, entry, api_version))


def object_of(resource: Resource, entry: Entry, api_version: str) -> Object:
    """A fresh object in a version, with its resource version.

    What somebody else converts must be in that version already.
    """
    obj: Object = orjson.loads(entry[2])
    if entry[1] == api_version:
        return obj
    assert resource.remote is None, f"{entry[1]} is not to be converted here"
    try:
        converted = resource.converter.convert(obj, entry[1], api_version)
    except MachineryError as error:
        raise of_machinery_error(error) from error
    # The kind may be called otherwise in another group that shares the store. Defaults are
    # those of the version asked for: whoever sends this back has then changed nothing.
    return resource.shape.default(api_version, {**converted, "kind": resource.kind.kind})


_Remote = tuple[str, bytes]
"""A version, and the bytes to store in it; no bytes when it is stored like that already."""


def _is_missing(remote: _Remote | None, api_version: str, encoded: str) -> bool:
    return api_version != encoded and (remote is None or remote[0] != encoded)


async def _convert(resource: Resource, obj: Object, api_version: str, encoded: str) -> _Remote:
    typed = {"kind": resource.kind.kind, "apiVersion": api_version, **_rest(obj)}
    [converted] = await convert(resource, [typed], encoded)
    return encoded, encode(converted, encoded, resource.kind.kind)


def _stored(resource: Resource, obj: Object, api_version: str, encoded: str) -> bytes:
    assert resource.remote is None or api_version == encoded, "it must be prepared"
    try:
        return stored_form(resource, obj, api_version, encoded)
    except MachineryError as error:
        raise of_machinery_error(error) from error


def _served(  # noqa: PLR0917 - as above
    resource: Resource, obj: Object, api_version: str, revision: int, write: Write, encoded: str
) -> bytes:
    """The body of an object that was written in version `encoded`."""
    if encoded == api_version and isinstance(write, Put):
        return served_form(resource, write.value, encoded, revision)
    if resource.is_custom and resource.remote is None and isinstance(write, Put):
        # What was stored may have lost fields that the storage version does not know.
        body = served_form(resource, write.value, encoded, revision)
        return body_of(resource, (revision, encoded, body), api_version)
    obj["metadata"]["resourceVersion"] = str(revision)
    return _dumps(resource, obj, api_version)


def _equal(new: Object, old: Object) -> bool:
    """Whether two objects differ in nothing but the order of their fields."""
    # Python takes 1, 1.0 and true for equal; their bytes are not.
    return new == old and orjson.dumps(new, option=_SORTED) == orjson.dumps(old, option=_SORTED)


def _dumps(resource: Resource, obj: Object, api_version: str) -> bytes:
    """An object as a client gets it, type first."""
    return orjson.dumps({"kind": resource.kind.kind, "apiVersion": api_version, **_rest(obj)})


def _rest(obj: Object) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
