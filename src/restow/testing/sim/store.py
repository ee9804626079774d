"""The store of a world: in memory, and it holds every commit against the promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from restow.resources.catalog import Catalog
from restow.resources.custom.definitions import ROOT as DEFINITIONS
from restow.storage.interface import Done, Event, Outcome, Span, Transaction
from restow.storage.memory import MemoryStorage
from restow.testing.coordination_audit import AuditedStorage, PromiseBroken
from restow.testing.sim.ledger import Ledger

_AUDITED: Final = ("G1", "R5", "M2")
"""What the audit of coordination asks of every commit (`G1`, `E1`, `EP`)."""


class WatchedStorage(AuditedStorage):
    """See the module. A broken promise is noted; the world goes on to its next moment, and ends."""

    ledger: Ledger

    def __init__(
        self, catalogs: Iterable[Catalog], *, is_fenced: bool, is_audited: bool = True
    ) -> None:
        """`is_audited`: False in worlds whose operators do what the audit takes for a defect."""
        super().__init__(catalogs)
        self.is_fenced = is_fenced
        self._is_audited = is_audited
        self.on_commit: Callable[[str, tuple[Event, ...]], None] = lambda _sender, _events: None
        """Called with each commit of a process."""

    def is_listed(self, sender: str, span: Span) -> None:
        """A process reads a part of what there is."""
        if span.start == DEFINITIONS:
            self.ledger.notice(f"definitions read by {sender.partition('-')[0]}")

    async def commit_by(self, sender: str, transaction: Transaction) -> Outcome:
        """The commit of one process."""
        before = self._revision
        try:
            if self._is_audited:
                outcome = await self.commit(transaction)
            else:
                outcome = await MemoryStorage.commit(self, transaction)
        except PromiseBroken as broken:
            self.ledger.problem(str(broken))
            return Done(self._revision)
        if isinstance(outcome, Done) and self._revision != before:
            self.ledger.checked.update(_AUDITED)
            self.ledger.commit(sender, self._log[-1].events)
            self.on_commit(sender, self._log[-1].events)
        return outcome
