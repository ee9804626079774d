"""An in-memory store that loses transactions and replies on request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal

from restow.storage.errors import Unavailable
from restow.storage.interface import (
    Batch,
    Item,
    Key,
    Outcome,
    Revision,
    Span,
    Transaction,
    Unknown,
    Watch,
)
from restow.storage.memory import MemoryStorage

Fate = Literal["done", "lost", "answer lost", "error"]


class LossyStorage(MemoryStorage):
    """Satisfies `Storage`."""

    def __init__(self) -> None:
        super().__init__()
        self.fates: Iterator[Fate] = iter(())
        """The results of the next commits; later ones succeed."""
        self.reads_fail = False
        self.watches_fail = False
        self.commits: list[Transaction] = []
        self.late: list[Transaction] = []
        """Lost transactions that may still commit."""
        self._broken = asyncio.Event()

    async def commit(self, transaction: Transaction) -> Outcome:
        self.commits.append(transaction)
        match next(self.fates, "done"):
            case "error":
                raise Unavailable("no answer")
            case "lost":
                self.late.append(transaction)
                return Unknown("lost")
            case "answer lost":
                await super().commit(transaction)
                return Unknown("the answer was lost")
        return await super().commit(transaction)

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        if self.reads_fail:
            raise Unavailable("no answer")
        return await super().get(key, revision=revision)

    async def land(self) -> Outcome:
        """Commits the oldest lost transaction after all."""
        return await super().commit(self.late.pop(0))

    def break_watches(self) -> None:
        """Ends all watches with an error, and rejects new ones."""
        self.watches_fail = True
        self._broken.set()

    def restore_watches(self) -> None:
        self.watches_fail = False
        self._broken = asyncio.Event()

    def watch(self, span: Span, *, after: Revision) -> Watch:
        return _FragileWatch(super().watch(span, after=after), self._broken)


class _FragileWatch:
    """Satisfies `Watch`."""

    def __init__(self, watch: Watch, broken: asyncio.Event) -> None:
        self._watch = watch
        self._broken = broken

    def __aiter__(self) -> _FragileWatch:
        return self

    async def __anext__(self) -> Batch:
        following = asyncio.ensure_future(self._watch.__anext__())
        breaking = asyncio.ensure_future(self._broken.wait())
        try:
            await asyncio.wait({following, breaking}, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.is_set():
                raise Unavailable("the watch has ended")
            return await following
        finally:
            for task in (following, breaking):
                task.cancel()
            await asyncio.gather(following, breaking, return_exceptions=True)

    def expect(self, revision: Revision) -> None:
        self._watch.expect(revision)

    async def close(self) -> None:
        await self._watch.close()
