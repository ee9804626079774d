"""Recording a clean pass: only under its agreement, never over later records, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from restow.apis.names import VERIFIED_BY_MIGRATOR, VERIFIED_BY_SERVERS
from restow.storage.interface import (
    Outcome,
    Put,
    RevisionIs,
    Storage,
    Transaction,
    Unknown,
)
from restow.storageversion import verification
from restow.storageversion.identity import ServerId
from restow.storageversion.object_codec import decode_state, edited_state, state_key
from restow.storageversion.rules import (
    Agreement,
    PersistedVersions,
    StorageVersionEntry,
    verifier_of,
)
from restow.storageversion.verification import CleanPass, record_clean_pass, record_failures
from tests.unit.storageversion.rewrite_world import NAME, V1, V2, Rewriting, rewriting
from tests.unit.storageversion.world import Line

Act = Callable[[], Awaitable[None]]


class InterposedStorage(Line):
    """A connection to the store with an action before the first commit."""

    def __init__(self, storage: Storage, act: Act | None = None, *, is_lost: bool = False) -> None:
        super().__init__(storage)
        self._act = act
        self._is_lost = is_lost
        self.commits = 0

    async def commit(self, transaction: Transaction) -> Outcome:
        self.commits += 1
        act, self._act = self._act, None
        if act is not None:
            await act()
        outcome = await super().commit(transaction)
        return Unknown("lost") if self._is_lost and self.commits == 1 else outcome


async def state_of(it: Rewriting) -> PersistedVersions:
    item = await it.world.storage.get(state_key(NAME))
    assert item is not None
    return decode_state(item).state


async def clean_pass(it: Rewriting, **changes: object) -> CleanPass:
    epoch = (await it.world.epoch()).epoch
    return CleanPass(Agreement(V2), epoch, 1, "uid")._replace(**changes)  # type: ignore[arg-type]


async def record(it: Rewriting, found: CleanPass, line: Line | None = None) -> bool:
    return bool(await it.world.run(record_clean_pass(line or it.line, NAME, found)))


async def test_only_under_the_agreement_of_the_pass(tmp_path: Path) -> None:
    """Neither for another epoch, nor for another version or key."""
    async with rewriting(tmp_path) as it:
        before = await state_of(it)
        for wrong in ({"epoch": 9}, {"target": Agreement(V1)}, {"target": Agreement(V2, "k")}):
            found = await clean_pass(it, **wrong)
            assert await record(it, found) is False
        assert await state_of(it) == before
        assert await record(it, await clean_pass(it)) is True
        after = await state_of(it)
        assert (after.persisted, after.verifier) == ((after.current,), VERIFIED_BY_SERVERS)


async def test_an_agreement_that_changes_before_the_commit(tmp_path: Path) -> None:
    """The version that another server is about to write stays listed: the guards reject the
    transaction,
    and the next attempt finds another epoch."""
    async with rewriting(tmp_path) as it:

        async def join() -> None:
            await it.world.server("x+1").start()

        line = InterposedStorage(it.world.storage, join)
        assert await record(it, await clean_pass(it), line) is False
        assert line.commits == 1
        assert "Unknown" in (await state_of(it)).persisted
        assert len((await state_of(it)).persisted) == 3


async def test_a_state_that_changes_before_the_commit(tmp_path: Path) -> None:
    """A heartbeat, or "Unknown" by an operator: the state is read again, and narrowed from its new
    value."""
    async with rewriting(tmp_path) as it:

        async def touch() -> None:
            item = await it.world.storage.get(state_key(NAME))
            assert item is not None
            hashes = ("Unknown", "other")
            value = edited_state(item, persisted=hashes, keys=("identity",), owned={})
            guard = RevisionIs(item.key, item.revision)
            await it.world.storage.commit(Transaction((guard,), (Put(item.key, value),)))

        line = InterposedStorage(it.world.storage, touch)
        assert await record(it, await clean_pass(it), line) is True
        assert line.commits == 2
        assert len((await state_of(it)).persisted) == 1


async def test_a_lost_reply_is_looked_up(tmp_path: Path) -> None:
    """The commit was carried out: the next attempt finds it, and writes nothing."""
    async with rewriting(tmp_path) as it:
        line = InterposedStorage(it.world.storage, is_lost=True)
        assert await record(it, await clean_pass(it), line) is True
        assert line.commits == 1
        assert await record(it, await clean_pass(it), line) is True
        assert line.commits == 1  # the same migration and an unchanged state
        assert await record(it, await clean_pass(it, migration_uid="another"), line) is True
        assert line.commits == 2


async def test_attempts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that changes continuously is left unchanged."""
    monkeypatch.setattr(verification, "ATTEMPTS_MAX", 3)

    class Refusing(InterposedStorage):
        async def commit(self, transaction: Transaction) -> Outcome:
            self.commits += 1
            return Unknown("never")

    async with rewriting(tmp_path) as it:
        line = Refusing(it.world.storage)
        assert await record(it, await clean_pass(it), line) is False
        await it.world.run(record_failures(line, NAME))
        assert line.commits == 3  # "Unknown" is listed already


def entry(name: str, *, store: str = "", loose_seconds: float = 0.0) -> StorageVersionEntry:
    return StorageVersionEntry(
        server_id=ServerId(name),
        encoding_version=V2,
        decodable_versions=(V2,),
        store=store,
        loose_seconds=loose_seconds,
    )


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], ""),
        ([entry("a")], VERIFIED_BY_SERVERS),
        ([entry("a"), entry("gadgets")], VERIFIED_BY_SERVERS),
        ([entry("gadgets")], VERIFIED_BY_MIGRATOR),
        ([entry("b", store="other")], VERIFIED_BY_MIGRATOR),
        ([entry("a", loose_seconds=60.0)], VERIFIED_BY_MIGRATOR),
    ],
)
def test_verifier(entries: list[StorageVersionEntry], expected: str) -> None:
    """A main server that stores the resource itself, under a fence; otherwise no server can
    verify."""
    assert verifier_of(entries, {ServerId("gadgets")}) == expected
