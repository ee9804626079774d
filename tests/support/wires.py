"""Connections to a store with injected faults: on request, or at random from a seed.

A transaction can be lost, its reply can be lost, it can arrive late, when its sender may have
exited; reads can fail; watches can stall silently, or break. Every message has a random delay, so
that messages overtake each other; those of one stream do not.

Not here: time itself. Simulated worlds have a loop of their own (`sim.network`), scenarios a clock
that is advanced explicitly.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final, TypeVar

from restow.storage.errors import StorageError, Unavailable
from restow.storage.interface import (
    Batch,
    Item,
    Key,
    Outcome,
    RangePage,
    Revision,
    Span,
    Storage,
    Transaction,
    Unknown,
    Watch,
)
from tests.support.in_process import set_failure, set_result

T = TypeVar("T")

SILENCE_SECONDS: Final = 2.0
"""Timeout of a sender without a reply."""
LATE_SECONDS_MAX: Final = 25.0


@dataclass(slots=True)
class Chances:
    """Probability of each fault for each message; times are maximums in seconds."""

    lost: float = 0.0
    """The message is lost silently."""
    reply_lost: float = 0.0
    """The message arrives, and the reply is lost."""
    late: float = 0.0
    """It arrives long after its sender's timeout."""
    error: float = 0.0
    """An error reply without an effect."""
    duplicated: float = 0.0
    """The reply arrives twice."""
    delay_seconds: float = 0.0
    watch_delay_seconds: float = 0.0


class Link(ABC):
    """The connection between two places, with its current faults."""

    def __init__(self, seed: str, hits: Counter[str], *, quick_seconds: float = 0.0) -> None:
        """`quick_seconds`: maximum delay of a message without faults."""
        self.random = Random(seed)
        self._quick_seconds = quick_seconds
        self.chances = self._no_chances()
        self.is_cut = False
        """Whether all messages are lost."""
        self.is_stalled = False
        """Whether watches stall silently."""
        self.blind_to = ""
        """Prefixes of keys whose changes their own watches silently omit."""
        self.refuses: Callable[[Transaction], bool] | None = None
        """Transactions that are lost, whatever else gets through."""
        self.hits = hits
        """How often each fault has affected a message."""
        self._flowing = asyncio.Event()
        self._broken = 0

    @abstractmethod
    def later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a callback, independent of the process that requested it."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait, as a process that may be paused or killed meanwhile."""

    def _no_chances(self) -> Chances:
        quick = self._quick_seconds
        return Chances(delay_seconds=quick, watch_delay_seconds=quick)

    def heal(self) -> None:
        self.chances, self.is_cut, self.is_stalled = self._no_chances(), False, False
        self.refuses, self.blind_to = None, ""
        self.look_again()

    def look_again(self) -> None:
        """Stalled watches may continue, unless another fault blocks them."""
        self._flowing.set()
        self._flowing = asyncio.Event()

    def set(self, **chances: float) -> None:
        for each in fields(Chances):
            if each.name in chances:
                setattr(self.chances, each.name, chances[each.name])

    def is_hit(self, fault: str, chance: float) -> bool:
        if chance and self.random.random() < chance:
            self.hits[fault] += 1
            return True
        return False

    def seconds(self) -> float:
        return self.random.random() * self.chances.delay_seconds

    def break_watches(self) -> None:
        """End all watches with an error."""
        self._broken += 1
        self.look_again()

    def is_blind_to(self, span: Span) -> bool:
        return bool(self.blind_to) and span.start.startswith(self.blind_to)

    async def flow(self, began: int, span: Span) -> None:
        """Delay before an item of a stream. Raises when the stream is broken."""
        await self.sleep(self.random.random() * self.chances.watch_delay_seconds)
        while self.is_cut or self.is_stalled or self.is_blind_to(span):
            self.hits["cut" if self.is_cut else "stalled" if self.is_stalled else "blind"] += 1
            await self._flowing.wait()
        if began != self._broken:
            self.hits["broken"] += 1
            raise Unavailable("the connection to the store was reset")

    @property
    def streams(self) -> int:
        return self._broken


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    work.close()
    raise AssertionError("the store in memory has waited")


class StoreWire(Storage):
    """One process's connection to a store in memory."""

    def __init__(self, storage: Storage, link: Link) -> None:
        self._storage = storage
        self.link = link
        self.commits = 0

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        return await self._read(lambda: self._storage.get(key, revision=revision))

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> RangePage:
        return await self._read(
            lambda: self._range(span, limit=limit, revision=revision, with_total=with_total)
        )

    def _range(
        self, span: Span, *, limit: int, revision: Revision | None, with_total: bool
    ) -> Coroutine[Any, Any, RangePage]:
        """The store's handling of a range request that has arrived."""
        return self._storage.range(span, limit=limit, revision=revision, with_total=with_total)

    async def count(self, span: Span, *, revision: Revision | None = None) -> int:
        return await self._read(lambda: self._storage.count(span, revision=revision))

    async def revision(self) -> Revision:
        return await self._read(self._storage.revision)

    def revision_now(self) -> Revision | None:
        return None

    async def compact(self, revision: Revision) -> None:
        return await self._read(lambda: self._storage.compact(revision))

    async def _read(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        link, chances = self.link, self.link.chances
        if link.is_cut or link.is_hit("error", chances.error):
            await link.sleep(link.seconds())
            raise Unavailable("the store cannot be reached")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            if link.is_cut or link.is_hit("lost", chances.lost):
                link.later(SILENCE_SECONDS, set_failure, answer, Unavailable("no answer"))
                return
            try:
                found = at_once(work())
            except StorageError as error:
                link.later(link.seconds(), set_failure, answer, error)
                return
            link.later(link.seconds(), set_result, answer, found)
            if link.is_hit("duplicated", chances.duplicated):
                link.later(link.seconds(), set_result, answer, found)

        link.later(link.seconds(), arrive)
        return await answer

    async def commit(self, transaction: Transaction) -> Outcome:
        return await self._sent(transaction)

    def _sent(self, transaction: Transaction) -> asyncio.Future[Outcome]:
        self.commits += 1
        link, chances = self.link, self.link.chances
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        refused = link.refuses is not None and link.refuses(transaction)
        if link.is_cut or refused or link.is_hit("error", chances.error):
            link.hits["refused"] += refused
            error = Unavailable("the store cannot be reached")
            link.later(link.seconds(), set_failure, answer, error)
            return answer
        if link.is_hit("lost", chances.lost):
            link.later(SILENCE_SECONDS, set_result, answer, Unknown("lost on its way"))
            return answer
        seconds = link.seconds()
        if link.is_hit("late", chances.late):
            seconds = link.random.random() * LATE_SECONDS_MAX
            link.later(min(seconds, SILENCE_SECONDS), set_result, answer, Unknown("late"))
        link.later(seconds, self._arrive, transaction, answer)
        return answer

    def _arrive(self, transaction: Transaction, answer: asyncio.Future[Outcome]) -> None:
        """Arrival at the store. The sender may have exited by now."""
        link = self.link
        if link.is_cut:
            link.hits["cut"] += 1
            link.later(SILENCE_SECONDS, set_result, answer, Unknown("cut off"))
            return
        outcome = at_once(self._commit(transaction))
        if link.is_hit("reply_lost", link.chances.reply_lost):
            link.later(SILENCE_SECONDS, set_result, answer, Unknown("the answer was lost"))
            return
        link.later(link.seconds(), set_result, answer, outcome)
        if link.is_hit("duplicated", link.chances.duplicated):
            link.later(link.seconds(), set_result, answer, outcome)

    def _commit(self, transaction: Transaction) -> Coroutine[Any, Any, Outcome]:
        """The store's handling of a transaction that has arrived."""
        return self._storage.commit(transaction)

    def watch(self, span: Span, *, after: Revision) -> Watch:
        return _WireWatch(self._storage.watch(span, after=after), self.link, span)

    async def close(self) -> None:
        return None


class _WireWatch:
    """Satisfies `Watch`."""

    def __init__(self, watch: Watch, link: Link, span: Span) -> None:
        self._watch = watch
        self._span = span
        self._link = link
        self._began = link.streams
        self._held: Batch | None = None

    def __aiter__(self) -> _WireWatch:
        return self

    async def __anext__(self) -> Batch:
        if self._held is None:
            self._held = await self._watch.__anext__()
        await self._link.flow(self._began, self._span)
        batch, self._held = self._held, None
        return batch

    def expect(self, revision: Revision) -> None:
        self._watch.expect(revision)

    async def close(self) -> None:
        await self._watch.close()
