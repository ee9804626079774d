"""Which version a write is encoded in, and what guards it: the seam that coordination fills.

`EncodingPolicy` is asked before every write. The guards go into the write's own transaction (the
fence), so that no write commits in a version that is not this server's at that moment. It also says
whether others may have stored what cannot be read here. Not here: how servers agree.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple, Protocol

import orjson

from restow.registry.resource import Object, Resource
from restow.registry.stored_bytes import encode, head_of, splice
from restow.storage.interface import Guard


class Encoding(NamedTuple):
    """How to write objects of a resource now."""

    api_version: str
    guards: tuple[Guard, ...]
    key_id: str = ""
    """The encryption key to seal with; empty: none."""


class ReadableRevisions(NamedTuple):
    """The revisions of which it is certain that all that was stored then can be read here."""

    first: int
    last: int


ALWAYS: Final = ReadableRevisions(0, sys.maxsize)


class EncodingPolicy(Protocol):
    """Decides how a resource is written."""

    def encoding(self, resource: Resource) -> Encoding:
        """What to use for the next write. Raises a 503 when nothing may be written now."""

    async def refresh(self, resource: Resource) -> None:
        """A fence has failed: find out what is true now."""

    def readable(self, resource: Resource) -> ReadableRevisions:
        """Since when this server is registered, and was so for sure. Raises a 503 when it is not:
        others may store what it cannot read."""


class FixedPolicy:
    """One server alone: what the catalogue prefers, and no fence."""

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

    def readable(self, resource: Resource) -> ReadableRevisions:
        return ALWAYS


def stored_form(resource: Resource, obj: Object, api_version: str, target: str) -> bytes:
    """The bytes to store for an object that is in `api_version`, in version `target`."""
    converted = resource.converter.convert(obj, api_version, target)
    if resource.is_custom and api_version != target:
        # A copy, since the object goes on in its own version, in which it may have more fields.
        converted = resource.shape.default(target, orjson.loads(orjson.dumps(converted)))
    return encode(converted, target, resource.kind.kind)


def served_form(resource: Resource, stored: bytes, api_version: str, revision: int) -> bytes:
    """The served form of stored bytes that are in `api_version`."""
    return splice(head_of(resource.kind.kind, api_version), stored, revision)
