"""The checker of the other tests must detect violations, or they prove nothing."""

from __future__ import annotations

from restow.storage.interface import Delete, Key, Put, Transaction, Write
from restow.storage.memory import MemoryStorage
from restow.storageversion.object_codec import StoredState, encode_state
from restow.storageversion.records import EpochRecord, encode_epoch
from restow.storageversion.rules import PersistedVersions
from tests.e2e.migration.history import (
    EPOCH,
    HASHES,
    KIND,
    OLD,
    REQUESTS_ROOT,
    ROOT,
    STATE,
    History,
    replay,
    snapshot,
)
from tests.e2e.migration.stage import old_object
from tests.e2e.storageversion.clusters import V1, V2, WIDGETS_NAME

H1, H2 = HASHES[V1], HASHES[V2]


def persisted(*hashes: str) -> Put:
    state = StoredState(
        PersistedVersions(persisted=hashes, current=H2), {"name": "widgets.example.com"}
    )
    return Put(STATE, encode_state(WIDGETS_NAME, state))


def agreed(version: str | None, epoch: int) -> Put:
    return Put(EPOCH, encode_epoch(EpochRecord(epoch=epoch, kind=KIND, version=version)))


def stored(number: int, version: str) -> Put:
    return Put(Key(f"{ROOT}default/{OLD}{number:04d}"), old_object(number, version))


async def replayed(*writes: Write) -> History:
    """Returns the history of these writes, after two old objects whose version the hashes
    contain."""
    storage = MemoryStorage()
    for first in (agreed(V2, 1), persisted(H1, H2), stored(1, V1), stored(2, V1)):
        await storage.commit(Transaction(writes=(first,)))
    begun = await snapshot(storage)
    for write in writes:
        await storage.commit(Transaction(writes=(write,)))
    return await replay(storage, begun)


async def test_a_valid_history() -> None:
    """All rewritten, then narrowed: no violation."""
    history = await replayed(stored(1, V2), stored(2, V2), persisted(H2))
    assert not history.broken
    assert (history.rewritten, history.narrowed, history.left) == (2, 1, {V2: 2})
    assert history.late == []


async def test_narrowed_too_early() -> None:
    """An object in a version without a hash is detected, even if it exists only briefly."""
    history = await replayed(stored(1, V2), persisted(H2), stored(2, V2))
    assert [each[:2] for each in history.broken] == ["M4"]
    history = await replayed(stored(1, V2), stored(2, V2), persisted(H2), stored(3, V1))
    assert [each[:2] for each in history.broken] == ["M4"]


async def test_narrowed_without_agreement() -> None:
    """A narrowed state while servers do not agree is detected, whatever is stored."""
    history = await replayed(stored(1, V2), stored(2, V2), agreed(None, 2), persisted(H2))
    assert [each[:2] for each in history.broken] == ["M5"]


async def test_unreadable_values_need_unknown() -> None:
    """Only `Unknown` covers it."""
    garbage = Put(Key(f"{ROOT}default/{OLD}0001"), b"garbage")
    history = await replayed(garbage)
    assert [each[:2] for each in history.broken] == ["M4"]
    assert not (await replayed(persisted("Unknown", H1, H2), garbage)).broken


async def test_rewritten_late() -> None:
    """Rewrites without agreement, or after a migration was deleted, are counted."""
    request = Put(Key(f"{REQUESTS_ROOT}m"), b"{}")
    history = await replayed(agreed(None, 2), stored(1, V2), agreed(V2, 3), stored(2, V2))
    assert history.late == [1]
    history = await replayed(request, stored(1, V2), Delete(request.key), stored(2, V2))
    assert (history.rewritten, history.since_deletion) == (2, 1)
