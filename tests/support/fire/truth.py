"""The true history: the whole log of the store, from its first revision to its last.

Read directly from the store after a run. All checks use it. Not here: checks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from restow.storage.feed import RevisionEvents, revision_of
from restow.storage.interface import (
    EVERYTHING,
    Delete,
    Event,
    Item,
    Key,
    Put,
    Revision,
    Storage,
    Write,
)
from restow.testing.history import Timeline

SAMPLES: Final = 25
"""Number of revisions at which the store is also read as a whole."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The log, and the states of every key."""

    log: list[RevisionEvents]
    timeline: Timeline

    @property
    def end(self) -> Revision:
        return self.timeline.revision

    def events_of(self, key: Key, *, after: int, upto: int) -> Iterator[Event]:
        """The changes of a key between two revisions."""
        begin = bisect_right(self.log, after, key=revision_of)
        for entry in self.log[begin : bisect_right(self.log, upto, key=revision_of)]:
            yield from (event for event in entry.events if event.key == key)

    def event_at(self, key: Key, revision: int) -> Event | None:
        index = bisect_left(self.log, revision, key=revision_of)
        if index == len(self.log) or self.log[index].revision != revision:
            return None
        return next((event for event in self.log[index].events if event.key == key), None)

    def states_between(self, key: Key, low: int, high: int) -> list[Item | None]:
        """All states of a key from one revision to another."""
        moments = [low, *(event.revision for event in self.events_of(key, after=low, upto=high))]
        return [self.timeline.item_at(key, Revision(each)) for each in moments]


def truth_of(log: list[RevisionEvents]) -> Truth:
    """A replay of a log."""
    timeline = Timeline(Revision(0), [])
    for entry in log:
        timeline.apply(entry.revision, [write_of(event) for event in entry.events])
    return Truth(log, timeline)


async def read_truth(storage: Storage) -> tuple[Truth, list[str]]:
    """The truth, and contradictions within the store."""
    log: list[RevisionEvents] = []
    until = await storage.revision()
    watch = storage.watch(EVERYTHING, after=Revision(0))
    watch.expect(until)
    async for batch in watch:
        for event in batch.events:
            if log and log[-1].revision == event.revision:
                log[-1] = RevisionEvents(event.revision, (*log[-1].events, event))
            else:
                log.append(RevisionEvents(event.revision, (event,)))
        if batch.revision >= until:
            break
    await watch.close()
    truth = truth_of([entry for entry in log if entry.revision <= until])
    return truth, check_log(truth) + await _check_ranges(storage, truth)


def check_log(truth: Truth) -> list[str]:
    """Check each event's previous value and creation revision."""
    problems: list[str] = []
    for entry, replayed in zip(truth.log, truth.timeline.log, strict=True):
        for event, true in zip(entry.events, replayed.events, strict=False):
            if event != true:
                problems.append(f"log: {event} at {entry.revision}, replayed it is {true}")
        if len(entry.events) != len(replayed.events):
            problems.append(f"log: {entry.revision} deletes a key that does not exist")
    return problems


async def _check_ranges(storage: Storage, truth: Truth) -> list[str]:
    """Check that the store's content equals its log, at some revisions, and at the last one."""
    revisions = [entry.revision for entry in truth.log]
    chosen = {*revisions[:: max(len(revisions) // SAMPLES, 1)], *revisions[-1:]}
    problems: list[str] = []
    for revision in sorted(chosen):
        found = (await storage.range(EVERYTHING, revision=revision)).items
        expected = truth.timeline.items_at(EVERYTHING, revision)
        if found != expected:
            odd = {item.key for item in set(found) ^ set(expected)}
            problems.append(f"store at {revision} differs from its log: {sorted(odd)[:5]}")
    return problems


def write_of(event: Event) -> Write:
    """The write behind an event."""
    return Delete(event.key) if event.value is None else Put(event.key, event.value)
