"""All of a span, some at a time: a look at everything must not hold it all at once.

Not here: what is done with it.
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

    Without a revision each is read as the store is then; `at_one_revision`: as it is at the first.
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
