"""Reads all of a span in pages, so that it is never in memory as a whole.

Not here: the use of the pages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from restow.storage.interface import Item, RangePage, Revision, Span, Storage

PAGE_ITEMS: Final = 200


async def pages(
    storage: Storage,
    span: Span,
    *,
    limit: int = PAGE_ITEMS,
    revision: Revision | None = None,
    at_one_revision: bool = False,
) -> AsyncIterator[RangePage]:
    """The pages of a span, in order. Raises a StorageError.

    By default each page is read at the current revision; `at_one_revision`: at that of the first.
    """
    while True:
        page = await storage.range(span, limit=limit, revision=revision)
        yield page
        if not page.more:
            return
        span = span.starting_at(page.items[-1].key + "\0")
        if at_one_revision:
            revision = page.revision


async def items_below(
    storage: Storage, prefix: str, *, limit: int = PAGE_ITEMS, revision: Revision | None = None
) -> AsyncIterator[Item]:
    """The items whose keys begin with a prefix, in order. Raises a StorageError."""
    async for page in pages(storage, Span.of_prefix(prefix), limit=limit, revision=revision):
        for item in page.items:
            yield item
