"""The base class of faults: a name, a begin, an end, and a check that it had an effect.

Not here: the faults (`server_faults`, `store_faults`), and the invariants during a fault.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from restow.storage.interface import Storage
from tests.support.fire.record import NOT_SENT, PUT_OFF, UNANSWERED, LoadRecord, Operation
from tests.support.fire.stage import MIXED, VICTIM, Stage
from tests.support.fire.stores import STORES


@dataclass(slots=True)
class Window:
    """The operations of clients from the beginning of a fault until recovery."""

    operations: list[Operation]
    cuts: int
    """Streams of watchers that were interrupted."""

    @classmethod
    def of(cls, record: LoadRecord, *, begin: float, end: float) -> Window:
        return cls(
            [each for each in record.operations if each.ended >= begin and each.began <= end],
            sum(begin <= cut <= end for watcher in record.watchers for cut in watcher.cuts),
        )

    def statuses(self, server: int | None = None) -> Counter[int]:
        """Number of responses by status, of one server or all."""
        chosen = (each for each in self.operations if server in (None, each.server))
        return Counter(each.status for each in chosen)

    def harmed(self, server: int | None = None) -> int:
        """Requests that failed because of a fault."""
        counts = self.statuses(server)
        return sum(counts[status] for status in (UNANSWERED, NOT_SENT, 504, *PUT_OFF))


@dataclass(slots=True)
class Fault(ABC):
    """One kind of fault."""

    NAME: ClassVar[str]
    STORES: ClassVar[Sequence[str]] = STORES
    """The stores on which it is possible."""
    RELEASES: ClassVar[Sequence[str]] = MIXED
    """Release with which servers begin."""
    NEEDS_SMALL_STORE: ClassVar[bool] = False
    NEEDS_SKEWS: ClassVar[bool] = False
    WRITES_MIN: ClassVar[int] = 0
    """Number of writes before it ends."""
    SAYS: ClassVar[str] = ""
    """Description, for people."""

    notes: list[str] = field(default_factory=list)
    """Observations of the fault itself: why it cannot have had an effect."""

    @abstractmethod
    async def inject(self, stage: Stage, storage: Storage) -> None:
        """Begin; and wait for the effects that are part of it."""

    @abstractmethod
    async def heal(self, stage: Stage, storage: Storage) -> None:
        """End the fault."""

    def missed(self, window: Window) -> list[str]:
        """Why it had no effect; empty, if it had."""
        return [] if window.harmed(VICTIM) else ["no request to the victim was harmed"]
