"""Wraps a store and shifts its revisions, to compare it with a newly created one."""

from dataclasses import dataclass

from restow.storage.errors import Compacted, FutureRevision
from restow.storage.feed import RevisionEvents
from restow.storage.interface import (
    Batch,
    Done,
    Event,
    Guard,
    Item,
    Key,
    Outcome,
    RangePage,
    Refused,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
    Unknown,
    Watch,
)
from restow.testing.storage_suite.steps import collect, record


@dataclass(frozen=True)
class Gone:
    """Result for a compacted revision."""

    compacted: int


@dataclass(frozen=True)
class Ahead:
    """Result for a future revision."""

    asked: int
    current: int


class ShiftedStorage:
    """Accepts and returns revisions reduced by `offset`. Errors are returned as values."""

    def __init__(self, storage: Storage, *, offset: int) -> None:
        self.storage = storage
        self.offset = offset

    async def revision(self) -> Revision:
        return self._near(await self.storage.revision())

    async def get(self, key: Key, revision: Revision) -> Item | Gone | Ahead | None:
        try:
            return self._item(await self.storage.get(key, revision=self._far(revision)))
        except (Compacted, FutureRevision) as error:
            return self._error(error)

    async def range(
        self, span: Span, limit: int, revision: Revision | None
    ) -> RangePage | Gone | Ahead:
        far = None if revision is None else self._far(revision)
        try:
            page = await self.storage.range(span, limit=limit, revision=far, with_total=True)
        except (Compacted, FutureRevision) as error:
            return self._error(error)
        items = [found for item in page.items if (found := self._item(item))]
        return page._replace(items=items, revision=self._near(page.revision))

    async def count(self, span: Span, revision: Revision) -> int | Gone | Ahead:
        try:
            return await self.storage.count(span, revision=self._far(revision))
        except (Compacted, FutureRevision) as error:
            return self._error(error)

    async def commit(self, transaction: Transaction) -> Outcome:
        guards = tuple(self._guard(guard, self.offset) for guard in transaction.guards)
        outcome = await self.storage.commit(Transaction(guards, transaction.writes))
        match outcome:
            case Done(revision):
                return Done(self._near(revision))
            case Refused(guard, current, revision):
                guard = self._guard(guard, -self.offset)
                return Refused(guard, self._item(current), self._near(revision))
            case Unknown():
                return outcome

    async def compact(self, revision: Revision) -> Gone | Ahead | None:
        try:
            await self.storage.compact(self._far(revision))
        except (Compacted, FutureRevision) as error:
            return self._error(error)
        return None

    async def log(
        self, span: Span, after: Revision, upto: Revision
    ) -> list[RevisionEvents] | Gone | Ahead:
        """The events of a new watch, by revision, each in order of key."""
        far = self._far(after)
        try:
            seen = await record(self.storage, span, after=far, upto=self._far(upto))
        except (Compacted, FutureRevision) as error:
            return self._error(error)
        return entries_of([self._batch(batch) for batch in seen.batches])

    async def watch(self, span: Span, after: Revision) -> Watch:
        return self.storage.watch(span, after=self._far(after))

    async def read(self, watch: Watch, upto: Revision) -> list[Batch] | Gone | Ahead:
        """Read a watch of this store up to `upto`."""
        try:
            return [self._batch(batch) for batch in await collect(watch, self._far(upto))]
        except (Compacted, FutureRevision) as error:
            return self._error(error)

    def _near(self, revision: int) -> Revision:
        return Revision(revision - self.offset)

    def _far(self, revision: int) -> Revision:
        return Revision(revision + self.offset)

    def _item(self, item: Item | None) -> Item | None:
        if item is None:
            return None
        near = self._near
        return item._replace(revision=near(item.revision), created=near(item.created))

    def _batch(self, batch: Batch) -> Batch:
        return Batch(self._near(batch.revision), tuple(map(self._event, batch.events)))

    def _event(self, event: Event) -> Event:
        return event._replace(
            revision=self._near(event.revision),
            created=self._near(event.created),
            previous=self._item(event.previous),
        )

    def _guard(self, guard: Guard, by: int) -> Guard:
        if isinstance(guard, RevisionIs):
            return RevisionIs(guard.key, Revision(guard.revision + by))
        return guard

    def _error(self, error: Compacted | FutureRevision) -> Gone | Ahead:
        if isinstance(error, Compacted):
            return Gone(self._near(error.compacted))
        return Ahead(self._near(error.asked), self._near(error.current))


def entries_of(batches: list[Batch]) -> list[RevisionEvents]:
    """All events of some batches, by revision, each in order of key."""
    events: dict[Revision, list[Event]] = {}
    for batch in batches:
        for event in batch.events:
            events.setdefault(event.revision, []).append(event)
    return [RevisionEvents(revision, tuple(sorted(found))) for revision, found in events.items()]
