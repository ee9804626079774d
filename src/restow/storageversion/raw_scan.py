"""Scans the raw values of a resource for the versions in which its objects are stored, and for
values encrypted with keys that this server does not have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from restow.apis.encryption_keys import IDENTITY, is_readable
from restow.census.values import read_value
from restow.encryption.decryption import key_named_in, open_value
from restow.encryption.interface import Keys
from restow.registry.stored_bytes import is_protobuf
from restow.storage.errors import CannotOpen
from restow.storage.interface import SEALED_PREFIX, Key, Span, Storage
from restow.storage.pages import pages

PAGE_ITEMS: Final = 1000
PLACES_MAX: Final = 5
"""Number of undecryptable values that are named; all are counted."""
UNREADABLE: Final = "(unreadable)"
"""Version reported for a value that is not an object."""

# The start of every JSON value of an API server.
_HEAD: Final = re.compile(rb'\{"kind":"([^"\\]*)","apiVersion":"([^"\\]*)"')


@dataclass(slots=True)
class Unopened:
    """Values that cannot be decrypted, all under one key."""

    name: str
    """Name of the key, as stored in the values; `identity` for rejected plaintext."""
    tried: tuple[str, ...]
    """Ids of this server's keys of that name."""
    count: int = 0
    places: list[Key] = field(default_factory=list)
    """Keys of the first such values."""

    def __str__(self) -> str:
        other = ", of which it has another secret" if self.tried else ""
        return f"{self.count} under {self.name}{other}"


@dataclass(slots=True)
class Misplaced:
    """Values whose keys do not have the form of the resource's keys: no server finds them by name.
    No other count includes them."""

    count: int = 0
    places: list[Key] = field(default_factory=list)
    """Keys of the first such values."""

    def add(self, key: Key) -> None:
        self.count += 1
        if len(self.places) < PLACES_MAX:
            self.places.append(key)


class Scan(NamedTuple):
    """The result of a scan of one root at one revision."""

    versions: Counter[str]
    """Number of objects per `apiVersion`."""
    kinds: Counter[str]
    """Number of objects per kind."""
    misplaced: Misplaced
    unopened: list[Unopened]
    """Values that cannot be decrypted because the key is missing, or has another secret and
    decrypts nothing at all."""
    damaged: list[Unopened]
    """Values that a key fails to decrypt although it decrypts other values here, and no other
    secret of that name is recorded: these values were changed or moved."""


async def scan(
    storage: Storage,
    root: str,
    keys: Keys | None,
    readable: Collection[str] = (IDENTITY,),
    *,
    has_key: Callable[[Key], bool] = lambda _key: True,
    recorded: Collection[str] = (),
) -> Scan:
    """Scan all values under a root; `has_key` returns whether a key has the right form.

    `recorded`: ids of the encryption keys that the StorageState lists. If one of them has the name
    of a key of this server and another secret, undecryptable values are not damaged: they need that
    other secret.

    `readable` can list fewer keys than this server can decrypt with: a server keeps a removed key
    until all servers have switched.
    """
    versions: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    misplaced = Misplaced()
    used: set[str] = set()
    failed: dict[tuple[str, tuple[str, ...]], Unopened] = {}

    def fail(key: Key, name: str, tried: tuple[str, ...] = ()) -> None:
        found = failed.setdefault((name, tried), Unopened(name, tried))
        found.count += 1
        if len(found.places) < PLACES_MAX:
            found.places.append(key)

    span = Span.of_prefix(root)
    async for page in pages(storage, span, limit=PAGE_ITEMS, at_one_revision=True):
        for item in page.items:
            if not has_key(item.key):
                misplaced.add(item.key)
                continue
            try:
                opened = await open_value(keys, item.key, item.value)
            except CannotOpen as error:
                is_sealed = item.value.startswith(SEALED_PREFIX)
                name = key_named_in(item.value) if is_sealed else IDENTITY
                fail(item.key, name, error.tried)
                continue
            if not is_readable(opened.key_id, readable):
                fail(item.key, opened.key_id or IDENTITY)
            else:
                used.add(opened.key_id)
                kind, version = type_of(opened.value)
                versions[version] += 1
                if kind:
                    kinds[kind] += 1
    found = Scan(versions, kinds, misplaced, [], [])
    for each in failed.values():
        is_right = any(is_readable(key_id, each.tried) for key_id in used if key_id)
        is_right = is_right and not _other_secrets(each.tried, recorded)
        (found.damaged if is_right else found.unopened).append(each)
    return found


def _other_secrets(tried: Collection[str], recorded: Collection[str]) -> list[str]:
    """Return recorded keys with the name of a key that was tried, and another fingerprint."""
    names = {each.rpartition(":")[0] for each in tried}
    return [
        each
        for each in recorded
        if each.rpartition(":")[0] in names and not is_readable(each, tried)
    ]


def version_of(value: bytes) -> str:
    """Return the `apiVersion` of a stored value; `UNREADABLE` if it holds no object."""
    return type_of(value).version


class ObjectType(NamedTuple):
    """The type that a stored value declares."""

    kind: str
    """Empty: it declares none."""
    version: str


_NO_OBJECT: Final = ObjectType("", UNREADABLE)


def type_of(value: bytes) -> ObjectType:
    """Return the `kind` and `apiVersion` of a stored value."""
    if is_protobuf(value):
        stored = read_value(value)
        return ObjectType(stored.kind, stored.api_version) if stored.api_version else _NO_OBJECT
    head = _HEAD.match(value)
    if head is not None:
        return ObjectType(head[1].decode(errors="replace"), head[2].decode(errors="replace"))
    try:
        fields = orjson.loads(value)
        version, kind = fields["apiVersion"], fields.get("kind")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return _NO_OBJECT
    if not isinstance(version, str):
        return _NO_OBJECT
    return ObjectType(kind if isinstance(kind, str) else "", version)
