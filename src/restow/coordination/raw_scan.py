"""In which versions the objects of a resource are really stored, read from the raw values, and
which of them are encrypted with keys that this server does not have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Final, NamedTuple

import orjson

from restow.api.encryption_keys import IDENTITY, is_readable
from restow.storage.encryption.asking import key_named_in, open_value
from restow.storage.encryption.interface import Keys
from restow.storage.errors import CannotOpen
from restow.storage.interface import SEALED_PREFIX, Revision, Span, Storage

PAGE_ITEMS: Final = 1000
UNREADABLE: Final = "(unreadable)"
"""Stands for the version of what is no object."""

# How every value begins that an API server has written as JSON.
_HEAD: Final = re.compile(rb'\{"kind":"[^"\\]*","apiVersion":"([^"\\]*)"')


class Scan(NamedTuple):
    """What was found under a root, at one moment."""

    versions: Counter[str]
    """How many objects are stored in which `apiVersion`."""
    unopened: Counter[str]
    """How many cannot be opened, by the key that they name; plain ones that are not taken are
    `identity`."""


async def scan(
    storage: Storage, root: str, keys: Keys | None, readable: Collection[str] = (IDENTITY,)
) -> Scan:
    """Look at everything under a root. What is to be readable counts, which may be less than what
    can be opened just now: keys that are given up are kept until all servers know."""
    found = Scan(Counter(), Counter())
    span, revision = Span.of_prefix(root), Revision(0)
    while True:
        page = await storage.range(span, limit=PAGE_ITEMS, revision=revision or None)
        revision = page.revision
        for item in page.items:
            try:
                opened = await open_value(keys, item.key, item.value)
            except CannotOpen:
                is_sealed = item.value.startswith(SEALED_PREFIX)
                found.unopened[key_named_in(item.value) if is_sealed else IDENTITY] += 1
                continue
            if not is_readable(opened.key_id, readable):
                found.unopened[opened.key_id or IDENTITY] += 1
            else:
                found.versions[version_of(opened.value)] += 1
        if not page.more:
            return found
        span = span.starting_at(page.items[-1].key + "\0")


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
