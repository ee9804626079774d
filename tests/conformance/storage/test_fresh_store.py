"""A newly created store."""

from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.drivers import open_storage
from restow.storage.interface import (
    EVERYTHING,
    REVISION_FIRST,
    Done,
    Key,
    Put,
    Revision,
    Transaction,
)


@pytest.mark.parametrize("driver", ["memory", "sqlite"])
async def test_first_revision(driver: str, tmp_path: Path) -> None:
    """An empty store is at the first revision, as in etcd, and its first commit at the next."""
    address = "memory:" if driver == "memory" else f"sqlite:{tmp_path / 'store'}"
    storage = await open_storage(address, Runtime.system())
    try:
        assert await storage.revision() == REVISION_FIRST
        page = await storage.range(EVERYTHING, revision=REVISION_FIRST)
        assert (page.items, page.revision) == ([], REVISION_FIRST)
        outcome = await storage.commit(Transaction(writes=(Put(Key("/a"), b""),)))
        assert outcome == Done(Revision(REVISION_FIRST + 1))
    finally:
        await storage.close()
