"""Mutants of store and API."""

from __future__ import annotations

from typing import Any, Final

from restow.aio.events import EventChannel
from restow.registry import committer
from restow.registry.caches import Caches
from restow.registry.committer import ObjectCommitter
from restow.registry.write_plans import CreatePlan
from restow.storage.interface import (
    Delete,
    Done,
    Outcome,
    Present,
    Storage,
    Transaction,
    Unknown,
)
from restow.storageversion.encoding_table import EncodingTable
from tests.support.sim.mutants.mutant import Mutant, Patch


class _Answering:
    """A store whose lost replies are taken for success."""

    def __init__(self, storage: Storage, *, repeats: bool) -> None:
        self._storage = storage
        self._repeats = repeats

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def commit(self, transaction: Transaction) -> Outcome:
        outcome = await self._storage.commit(transaction)
        if not isinstance(outcome, Unknown):
            return outcome
        if self._repeats:
            return await self._storage.commit(transaction)
        return Done(await self._storage.revision())


def _unknown_is_done(patch: Patch) -> None:
    made = ObjectCommitter.__init__

    def init(self: ObjectCommitter, storage: Any, *args: Any) -> None:
        made(self, _Answering(storage, repeats=False), *args)

    patch(ObjectCommitter, "__init__", init)


def _unknown_is_sent_again(patch: Patch) -> None:
    made = ObjectCommitter.__init__

    def init(self: ObjectCommitter, storage: Any, *args: Any) -> None:
        made(self, _Answering(storage, repeats=True), *args)

    patch(ObjectCommitter, "__init__", init)


def _reads_are_as_they_are(patch: Patch) -> None:
    """Reads return the state in memory, however old."""
    patch(Caches, "fresh", Caches.ready)


def _updates_without_revision(patch: Patch) -> None:
    """An update is committed without a check of the object's current revision."""
    made = committer._transaction

    def transaction(plan: Any, encoding: Any, write: Any, *, in_background: bool = False) -> Any:
        whole = made(plan, encoding, write, in_background=in_background)
        if isinstance(plan, CreatePlan) or isinstance(write, Delete):
            return whole
        return Transaction((Present(write.key), *whole.guards[1:]), whole.writes, in_background)

    patch(committer, "_transaction", transaction)


def _discovery_is_kept(patch: Patch) -> None:
    """The document is created once, whatever is written later."""
    opened = EncodingTable.open

    def open_(self: EncodingTable, resource: Any, encoding: Any) -> None:
        listeners, self.switched = self.switched, EventChannel()  # type: ignore[misc]
        opened(self, resource, encoding)
        self.switched = listeners  # type: ignore[misc]

    patch(EncodingTable, "open", open_)


MUTANTS: Final = (
    Mutant("unknown-is-done", "A2 F9", "a lost reply is taken for success", _unknown_is_done),
    Mutant("unknown-is-repeated", "F9", "a lost write is sent again", _unknown_is_sent_again),
    Mutant("stale-reads", "A5", "reads do not wait for the cache", _reads_are_as_they_are),
    Mutant("update-without-revision", "A1", "an update undoes another", _updates_without_revision),
    Mutant("discovery-kept", "D1", "the hash switches later than the encoder", _discovery_is_kept),
)  # fmt: skip
