"""The change counter: commits are detected in shared memory, and no lock is lost by it."""

from pathlib import Path

from restow.aio import Runtime
from restow.storage.interface import Done, Key, Put, Transaction
from restow.storage.sqlite import change_counter, open_sqlite


async def test_unchanged_means_nothing_was_committed(tmp_path: Path) -> None:
    """The header changes with every commit of any handle, and only then."""
    first = await open_sqlite(tmp_path / "store.db", Runtime.system())
    second = await open_sqlite(tmp_path / "store.db", Runtime.system())
    for number in range(20):
        before = second._change_counter.read()
        assert second._change_counter.read() == before
        outcome = await first.commit(Transaction((), (Put(Key("/a"), b"%d" % number),)))
        assert isinstance(outcome, Done)
        assert second._change_counter.read() != before
        assert second.revision_now() == outcome.revision
    await first.close()
    await second.close()


async def test_one_descriptor_for_all_handles(tmp_path: Path) -> None:
    """Closing one handle leaves the descriptor open: to close it would drop the other's locks."""
    first = await open_sqlite(tmp_path / "store.db", Runtime.system())
    second = await open_sqlite(tmp_path / "store.db", Runtime.system())
    (mapping,) = change_counter._mappings.values()
    await first.close()
    assert list(change_counter._mappings.values()) == [mapping]
    assert not mapping.memory.closed
    assert (await second.commit(Transaction((), (Put(Key("/a"), b"1"),)))) == Done(
        await second.revision()
    )
    await second.close()
    assert change_counter._mappings == {}
    assert mapping.memory.closed
