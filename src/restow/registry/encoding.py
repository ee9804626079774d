"""The version that a write is encoded in, and the guards of that decision: the interface between
the registry and the coordination of storage versions.

`EncodingPolicy` is called before every write. Its guards become part of the write's own transaction
(the fence), so that no write commits in a version that this server does not use at that moment. It
also tells whether other servers may have stored versions that this server cannot decode. Not here:
how servers agree on a version.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple, Protocol

import orjson

from restow.registry.resource import Object, Resource
from restow.registry.stored_bytes import encode, head_of, splice
from restow.storage.interface import Guard


class Encoding(NamedTuple):
    """How to encode objects of a resource at this moment."""

    api_version: str
    guards: tuple[Guard, ...]
    key_id: str = ""
    """The encryption key to use; empty: none."""


class ReadableRevisions(NamedTuple):
    """Revisions at which this server could certainly decode everything that was stored."""

    first: int
    last: int


ALWAYS: Final = ReadableRevisions(0, sys.maxsize)


class EncodingPolicy(Protocol):
    """Determines how objects of a resource are encoded."""

    def encoding(self, resource: Resource) -> Encoding:
        """Return the encoding of the next write. Raises a 503 if writes are not allowed now."""

    async def refresh(self, resource: Resource) -> None:
        """Determine the current encoding after a fence has failed."""

    def check_lease(self) -> None:
        """Called in the step that commits a write. Raises a 503 if this server has not renewed its
        lease in time."""

    def readable(self, resource: Resource) -> ReadableRevisions:
        """Return the revisions at which this server was certainly registered. Raises a 503 if it is
        not registered: other servers may store versions that it cannot decode."""


class FixedPolicy:
    """For a single server: the preferred version of the catalog, without a fence."""

    def __init__(self) -> None:
        self._encodings: dict[str, Encoding] = {}

    def encoding(self, resource: Resource) -> Encoding:
        version = resource.storage_api_version
        found = self._encodings.get(version)
        if found is None:
            found = self._encodings[version] = Encoding(version, ())
        return found

    async def refresh(self, resource: Resource) -> None:
        return None

    def check_lease(self) -> None:
        return None

    def readable(self, resource: Resource) -> ReadableRevisions:
        return ALWAYS


def stored_form(resource: Resource, obj: Object, api_version: str, target: str) -> bytes:
    """Encode an object that is in `api_version` for storage in version `target`."""
    converted = resource.converter.convert(obj, api_version, target)
    if resource.is_custom and api_version != target:
        # A copy: the caller keeps the object in its own version, where it may have more fields.
        converted = resource.shape.default(target, orjson.loads(orjson.dumps(converted)))
    return encode(converted, target, resource.kind.kind)


def served_form(resource: Resource, stored: bytes, api_version: str, revision: int) -> bytes:
    """Return the served form of stored bytes that are in `api_version`."""
    return splice(head_of(resource.kind.kind, api_version), stored, revision)
