"""The nine properties of a watch, each a function of the recorded watch and the true log.

A watch with all nine gives its reader exactly the changes of its span, whole revisions at a time,
and can be stopped and resumed at any mark. The names are those of etcd's own checks. Each function
returns the violations as sentences; an empty list means none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from restow.storage.feed import RevisionEvents, revision_of
from restow.storage.interface import Batch, Event, Key, Revision, Span


@dataclass(slots=True)
class WatchRecord:
    """The parameters of one watch and the batches it yielded."""

    span: Span
    after: Revision
    batches: list[Batch] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch.events]

    @property
    def upto(self) -> Revision:
        """The revision up to which the watch claims to be complete."""
        return self.batches[-1].revision if self.batches else self.after


Log = Sequence[RevisionEvents]
"""The true changes of the store, in order, with no gap from the watch's start to its end."""


def check_ordered(record: WatchRecord, _log: Log) -> list[str]:
    """Events come in order of revision."""
    return [
        f"event {later.revision} of {later.key} came after event {earlier.revision}"
        for earlier, later in pairwise(record.events)
        if later.revision < earlier.revision
    ]


def check_unique(record: WatchRecord, _log: Log) -> list[str]:
    """No event comes twice."""
    counts = Counter((event.key, event.revision) for event in record.events)
    return [f"event {place} came {count} times" for place, count in counts.items() if count > 1]


def check_reliable(record: WatchRecord, log: Log) -> list[str]:
    """Every change up to the newest event came, and no event without a change."""
    events = record.events
    newest = max((event.revision for event in events), default=record.after)
    due = {
        (event.key, event.revision): event.value
        for event in _expected(record, log)
        if event.revision <= newest
    }
    seen = {(event.key, event.revision): event.value for event in events}
    problems = [f"event {place} is missing" for place in due if place not in seen]
    for event in events:
        true = _true_event(log, event)
        if true is None:
            problems.append(f"event {event.revision} of {event.key} never happened")
        elif true.value != event.value:
            problems.append(f"event {event.revision} of {event.key} has a wrong value")
    return problems


def check_atomic(record: WatchRecord, _log: Log) -> list[str]:
    """All events of one revision come in one batch."""
    batch_of: dict[Revision, int] = {}
    problems: list[str] = []
    for number, batch in enumerate(record.batches):
        for event in batch.events:
            if batch_of.setdefault(event.revision, number) != number:
                problems.append(f"revision {event.revision} was split over two batches")
    return problems


def check_resumable(record: WatchRecord, log: Log) -> list[str]:
    """A watch begins with the first change after the requested revision, not before it."""
    events = record.events
    problems = [
        f"event {event.revision} is not after {record.after}"
        for event in events
        if event.revision <= record.after
    ]
    expected = _expected(record, log)
    if events and expected and events[0].revision > expected[0].revision:
        problems.append(f"began with {events[0].revision}, not with {expected[0].revision}")
    return problems


def check_bookmarkable(record: WatchRecord, log: Log) -> list[str]:
    """After a batch at a revision, no event up to there follows."""
    due = deque(_expected(record, log))
    seen: set[tuple[Key, Revision]] = set()
    problems: list[str] = []
    mark = record.after
    for batch in record.batches:
        if batch.revision < mark:
            problems.append(f"mark {batch.revision} came after mark {mark}")
        late = [event.revision for event in batch.events if event.revision <= mark]
        problems += [f"event {revision} came after mark {mark}" for revision in late]
        ahead = [event.revision for event in batch.events if event.revision > batch.revision]
        problems += [f"event {revision} came in batch {batch.revision}" for revision in ahead]
        seen.update((event.key, event.revision) for event in batch.events)
        mark = max(mark, batch.revision)
        while due and due[0].revision <= batch.revision:
            event = due.popleft()
            if (event.key, event.revision) not in seen:
                problems.append(f"mark {batch.revision} came without event {event.revision}")
    return problems


def check_matches_filter(record: WatchRecord, _log: Log) -> list[str]:
    """Only keys of the span come."""
    return [
        f"event {event.revision} of {event.key} is not in {record.span}"
        for event in record.events
        if event.key not in record.span
    ]


def check_previous_value(record: WatchRecord, log: Log) -> list[str]:
    """Each event has the previous value of the key."""
    return [
        f"event {event.revision} of {event.key} has previous {event.previous},"
        f" which was {true.previous}"
        for event in record.events
        if (true := _true_event(log, event)) is not None and event.previous != true.previous
    ]


def check_create_flag(record: WatchRecord, log: Log) -> list[str]:
    """Each event has the revision of the key's creation: its own only if it is the creation."""
    problems = [
        f"event {event.revision} of {event.key} says created {event.created}, not {true.created}"
        for event in record.events
        if (true := _true_event(log, event)) is not None and event.created != true.created
    ]
    return problems + [
        f"event {event.revision} of {event.key} is a creation and has a previous value, or neither"
        for event in record.events
        if (event.created == event.revision) != (event.previous is None)
    ]


WatchCheck = Callable[[WatchRecord, Log], list[str]]

WATCH_PROPERTIES: Final[dict[str, WatchCheck]] = {
    "ordered": check_ordered,
    "unique": check_unique,
    "reliable": check_reliable,
    "atomic": check_atomic,
    "resumable": check_resumable,
    "bookmarkable": check_bookmarkable,
    "matches filter": check_matches_filter,
    "right previous value": check_previous_value,
    "right create flag": check_create_flag,
}


def check_watch(record: WatchRecord, log: Log) -> list[str]:
    """All violations of a watch, prefixed with the property's name."""
    return [
        f"{name}: {problem}"
        for name, check in WATCH_PROPERTIES.items()
        for problem in check(record, log)
    ]


def _expected(record: WatchRecord, log: Log) -> list[Event]:
    """The events of the span after the watch's start."""
    return [
        event
        for entry in log
        if entry.revision > record.after
        for event in entry.events
        if event.key in record.span
    ]


def _true_event(log: Log, event: Event) -> Event | None:
    index = bisect_left(log, event.revision, key=revision_of)
    if index == len(log) or log[index].revision != event.revision:
        return None
    return next((true for true in log[index].events if true.key == event.key), None)
