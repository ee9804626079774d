"""What every fault has: a name, a begin, an end, and a way to see that it has bitten.

Not here: the faults (`server_faults`, `store_faults`), and what must hold whatever they do.
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
    """What clients met from the begin of a fault until all was well again."""

    operations: list[Operation]
    cuts: int
    """Streams of watchers that broke off."""

    @classmethod
    def of(cls, record: LoadRecord, *, begin: float, end: float) -> Window:
        return cls(
            [each for each in record.operations if each.ended >= begin and each.began <= end],
            sum(begin <= cut <= end for watcher in record.watchers for cut in watcher.cuts),
        )

    def statuses(self, server: int | None = None) -> Counter[int]:
        """How often each status was answered, by one server or all."""
        chosen = (each for each in self.operations if server in (None, each.server))
        return Counter(each.status for each in chosen)

    def harmed(self, server: int | None = None) -> int:
        """Requests that were not done because of something wrong."""
        counts = self.statuses(server)
        return sum(counts[status] for status in (UNANSWERED, NOT_SENT, 504, *PUT_OFF))


@dataclass(slots=True)
class Fault(ABC):
    """One thing that goes wrong."""

    NAME: ClassVar[str]
    STORES: ClassVar[Sequence[str]] = STORES
    """Where there is such a thing."""
    RELEASES: ClassVar[Sequence[str]] = MIXED
    """That servers begin with."""
    NEEDS_SMALL_STORE: ClassVar[bool] = False
    NEEDS_SKEWS: ClassVar[bool] = False
    WRITES_MIN: ClassVar[int] = 0
    """So many are done before it ends."""
    SAYS: ClassVar[str] = ""
    """What is done, for people."""

    notes: list[str] = field(default_factory=list)
    """What it has seen itself: why it cannot have bitten."""

    @abstractmethod
    async def inject(self, stage: Stage, storage: Storage) -> None:
        """Let it begin; and wait for what must come of it, if that is part of it."""

    @abstractmethod
    async def heal(self, stage: Stage, storage: Storage) -> None:
        """Let it end."""

    def missed(self, window: Window) -> list[str]:
        """Why it has not bitten; nothing, if it has."""
        return [] if window.harmed(VICTIM) else ["no request to the victim was harmed"]
