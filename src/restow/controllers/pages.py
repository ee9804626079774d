"""All that lies below a prefix, some at a time: a look at everything must not hold it all at once.

Not here: what is done with it. Pages are read as the store is when each is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from restow.storage.interface import Item, Span, Storage

PAGE: Final = 200


async def items_below(storage: Storage, prefix: str) -> AsyncIterator[Item]:
    """The items whose keys begin with a prefix, in order. Raises a StorageError."""
    span = Span.of_prefix(prefix)
    while True:
        page = await storage.range(span, limit=PAGE)
        for item in page.items:
            yield item
        if not page.more:
            return
        span = span.starting_at(page.items[-1].key + "\0")
