"""In which versions the objects of a resource are really stored, read from the raw values."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

import orjson

from restow.storage.interface import Revision, Span, Storage

PAGE_ITEMS: Final = 1000
UNREADABLE: Final = "(unreadable)"
"""Stands for the version of what is no object."""

# How every value begins that an API server has written as JSON.
_HEAD: Final = re.compile(rb'\{"kind":"[^"\\]*","apiVersion":"([^"\\]*)"')


async def stored_versions(storage: Storage, root: str) -> Counter[str]:
    """How many objects under a root are stored in which `apiVersion`, at one moment."""
    found: Counter[str] = Counter()
    span, revision = Span.of_prefix(root), Revision(0)
    while True:
        page = await storage.range(span, limit=PAGE_ITEMS, revision=revision or None)
        revision = page.revision
        found.update(version_of(item.value) for item in page.items)
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
