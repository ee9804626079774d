"""In which versions the objects of a resource are really stored, read from the raw values, and
which of them are encrypted with keys that this server does not have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from restow.api.encryption_keys import IDENTITY, is_readable
from restow.storage.encryption.asking import key_named_in, open_value
from restow.storage.encryption.interface import Keys
from restow.storage.errors import CannotOpen
from restow.storage.interface import SEALED_PREFIX, Key, Revision, Span, Storage

PAGE_ITEMS: Final = 1000
PLACES_MAX: Final = 5
"""So many values are named that cannot be opened; all are counted."""
UNREADABLE: Final = "(unreadable)"
"""Stands for the version of what is no object."""

# How every value begins that an API server has written as JSON.
_HEAD: Final = re.compile(rb'\{"kind":"[^"\\]*","apiVersion":"([^"\\]*)"')


@dataclass(slots=True)
class Unopened:
    """Values that do not open, all under one key."""

    name: str
    """Of the key, as the values give it; `identity` for plain ones that are not taken."""
    tried: tuple[str, ...]
    """The ids of the keys of that name that the server has."""
    count: int = 0
    places: list[Key] = field(default_factory=list)
    """Where the first of them are."""

    def __str__(self) -> str:
        other = ", of which it has another secret" if self.tried else ""
        return f"{self.count} under {self.name}{other}"


class Scan(NamedTuple):
    """What was found under a root, at one moment."""

    versions: Counter[str]
    """How many objects are stored in which `apiVersion`."""
    unopened: list[Unopened]
    """What cannot be opened because the key is missing, or is another one of that name: then it
    opens nothing at all."""
    damaged: list[Unopened]
    """What a key does not open that opens other values here: these were changed or moved."""


async def scan(
    storage: Storage, root: str, keys: Keys | None, readable: Collection[str] = (IDENTITY,)
) -> Scan:
    """Look at everything under a root. What is to be readable counts, which may be less than what
    can be opened just now: keys that are given up are kept until all servers know."""
    versions: Counter[str] = Counter()
    used: set[str] = set()
    failed: dict[tuple[str, tuple[str, ...]], Unopened] = {}

    def fail(key: Key, name: str, tried: tuple[str, ...] = ()) -> None:
        found = failed.setdefault((name, tried), Unopened(name, tried))
        found.count += 1
        if len(found.places) < PLACES_MAX:
            found.places.append(key)

    span, revision = Span.of_prefix(root), Revision(0)
    while True:
        page = await storage.range(span, limit=PAGE_ITEMS, revision=revision or None)
        revision = page.revision
        for item in page.items:
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
                versions[version_of(opened.value)] += 1
        if not page.more:
            break
        span = span.starting_at(page.items[-1].key + "\0")
    found = Scan(versions, [], [])
    for each in failed.values():
        is_right = any(is_readable(key_id, each.tried) for key_id in used if key_id)
        (found.damaged if is_right else found.unopened).append(each)
    return found


def version_of(value: bytes) -> str:
    """The `apiVersion` of a stored value."""
    head = _HEAD.match(value)
    if head is not None:
        return head[1].decode(errors="replace")
    try:
        version = orjson.loads(value)["apiVersion"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return UNREADABLE
    return version if isinstance(version, str) else UNREADABLE
