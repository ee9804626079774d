"""Checks a recorded history of commits and reads by replaying it.

Every commit that changed something has a revision of its own, so the order of commits is known
and need not be searched for. Three properties are checked, one function each:

- `check_legal`: replayed in order of revision, every result is the one of a single store;
- `check_real_time`: an operation that began after another had ended comes after it;
- `check_reads`: a range at a revision equals the replay at that revision.

A history must hold every commit since its start, of all clients, and none of unknown outcome.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from restow.aio import Clock, SystemClock
from restow.storage.checks import holds
from restow.storage.feed import RevisionEvents
from restow.storage.interface import (
    Delete,
    Done,
    Event,
    Guard,
    Item,
    Key,
    Outcome,
    Put,
    RangePage,
    Refused,
    Revision,
    Span,
    Storage,
    Transaction,
    Unknown,
    Write,
)


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A commit: when it began and ended, and its outcome."""

    began: float
    ended: float
    transaction: Transaction
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RangeRecord:
    """A range without limit: when it began and ended, and its result."""

    began: float
    ended: float
    span: Span
    page: RangePage
    pinned: bool
    """Whether a revision was requested; then the result may be old."""


@dataclass(slots=True)
class History:
    """All commits after `start`, and some of the reads, in any order."""

    start: Revision
    initial: list[Item] = field(default_factory=list)
    """The items of the store at `start`."""
    commits: list[CommitRecord] = field(default_factory=list)
    ranges: list[RangeRecord] = field(default_factory=list)

    @property
    def end(self) -> Revision:
        """The newest revision that any commit returned."""
        done = (c.outcome.revision for c in self.commits if isinstance(c.outcome, Done))
        return max(done, default=self.start)


class Recorder:
    """Records the operations of one handle. Recorders of one history may run concurrently."""

    def __init__(self, storage: Storage, history: History, clock: Clock | None = None) -> None:
        self.storage = storage
        self.history = history
        self._clock = clock or SystemClock()

    async def commit(self, transaction: Transaction) -> Outcome:
        began = self._clock.monotonic()
        outcome = await self.storage.commit(transaction)
        ended = self._clock.monotonic()
        self.history.commits.append(CommitRecord(began, ended, transaction, outcome))
        return outcome

    async def range(self, span: Span, *, revision: Revision | None = None) -> RangePage:
        began = self._clock.monotonic()
        page = await self.storage.range(span, revision=revision)
        ended = self._clock.monotonic()
        pinned = revision is not None
        self.history.ranges.append(RangeRecord(began, ended, span, page, pinned))
        return page


class Timeline:
    """The item of every key at every revision, according to the commits."""

    def __init__(self, start: Revision, initial: Iterable[Item]) -> None:
        self.revision = start
        self.log: list[RevisionEvents] = []
        self._versions: dict[Key, list[tuple[Revision, Item | None]]] = {
            item.key: [(item.revision, item)] for item in initial
        }

    def item_at(self, key: Key, revision: Revision) -> Item | None:
        versions = self._versions.get(key, [])
        index = bisect_right(versions, revision, key=lambda version: version[0])
        return versions[index - 1][1] if index else None

    def items_at(self, span: Span, revision: Revision) -> list[Item]:
        items = (self.item_at(key, revision) for key in sorted(self._versions) if key in span)
        return [item for item in items if item is not None]

    def would_change(self, writes: Iterable[Write]) -> bool:
        return any(
            isinstance(write, Put) or self.item_at(write.key, self.revision) is not None
            for write in writes
        )

    def first_failing(self, guards: Iterable[Guard], revision: Revision) -> Guard | None:
        for guard in guards:
            if not holds(guard, self.item_at(guard.key, revision)):
                return guard
        return None

    def apply(self, revision: Revision, writes: Iterable[Write]) -> None:
        events = tuple(event for write in writes if (event := self._event(write, revision)))
        for event in events:
            item = None
            if event.value is not None:
                item = Item(event.key, event.value, revision, event.created)
            self._versions.setdefault(event.key, []).append((revision, item))
        self.revision = revision
        self.log.append(RevisionEvents(revision, events))

    def _event(self, write: Write, revision: Revision) -> Event | None:
        previous = self.item_at(write.key, self.revision)
        match write:
            case Put(key, value):
                created = previous.created if previous else revision
                return Event(key, value, revision, created, previous)
            case Delete(key):
                if previous is None:
                    return None
                return Event(key, None, revision, previous.created, previous)


def replay(history: History) -> tuple[Timeline, list[str]]:
    """Replay the commits that were done; also return the violations found."""
    timeline = Timeline(history.start, history.initial)
    problems: list[str] = []
    done = sorted(
        ((c.outcome.revision, c.transaction) for c in history.commits if type(c.outcome) is Done),
        key=lambda pair: pair[0],
    )
    for revision, group in groupby(done, key=lambda pair: pair[0]):
        transactions = [transaction for _, transaction in group]
        problems += _replay_revision(timeline, revision, transactions)
    return timeline, problems


def log_of(history: History) -> list[RevisionEvents]:
    """The changes that watchers of this history must have seen."""
    timeline, problems = replay(history)
    assert not problems, problems
    return timeline.log


def check_history(history: History) -> list[str]:
    """All violations in a history."""
    return check_legal(history) + check_real_time(history) + check_reads(history)


def check_legal(history: History) -> list[str]:
    """Check that each result is the one of a single store at that revision."""
    timeline, problems = replay(history)
    for commit in history.commits:
        match commit.outcome:
            case Refused():
                problems += _check_refusal(timeline, commit.transaction, commit.outcome)
            case Unknown(reason):
                problems.append(f"a commit of unknown outcome cannot be replayed: {reason}")
            case Done():
                pass
    return problems


def check_real_time(history: History) -> list[str]:
    """Check that later operations have larger revisions, or for reads no smaller ones."""
    operations = [
        (c.began, c.ended, c.outcome.revision, _is_sure_change(c))
        for c in history.commits
        if not isinstance(c.outcome, Unknown)
    ]
    operations += [
        (r.began, r.ended, r.page.revision, False) for r in history.ranges if not r.pinned
    ]
    by_end = sorted((ended, revision) for _, ended, revision, _ in operations)
    problems: list[str] = []
    passed, newest_ended = 0, history.start
    for began, _, revision, changes in sorted(operations):
        while passed < len(by_end) and by_end[passed][0] < began:
            newest_ended = max(newest_ended, by_end[passed][1])
            passed += 1
        if revision < newest_ended or (changes and revision == newest_ended):
            problems.append(
                f"revision {revision} was given to an operation that began after {newest_ended}"
                " had been acknowledged"
            )
    return problems


def check_reads(history: History) -> list[str]:
    """A range at a revision equals the replay at that revision."""
    timeline, _ = replay(history)
    problems: list[str] = []
    for read in history.ranges:
        expected = timeline.items_at(read.span, read.page.revision)
        if read.page.items != expected:
            problems.append(
                f"range of {read.span} at {read.page.revision} gave {read.page.items},"
                f" the replay has {expected}"
            )
    return problems


def _replay_revision(
    timeline: Timeline, revision: Revision, transactions: list[Transaction]
) -> list[str]:
    """Replay all commits with one revision: at most one of them may change anything."""
    problems: list[str] = []
    changing = [t for t in transactions if any(isinstance(write, Put) for write in t.writes)]
    if not changing and revision > timeline.revision:
        changing = [t for t in transactions if timeline.would_change(t.writes)][:1]
    if len(changing) > 1:
        problems.append(f"revision {revision} was given to {len(changing)} commits")
    if changing and revision != timeline.revision + 1:
        problems.append(f"revision {revision} follows {timeline.revision}")
    if changing:
        failing = timeline.first_failing(changing[0].guards, timeline.revision)
        if failing is not None:
            problems.append(f"commit {revision} was done although {failing} did not hold")
        timeline.apply(revision, changing[0].writes)
    for idle in (t for t in transactions if not any(t is other for other in changing)):
        problems += _check_idle(timeline, revision, idle)
    return problems


def _check_idle(timeline: Timeline, revision: Revision, transaction: Transaction) -> list[str]:
    """Check a commit that had nothing to change and returned the current revision."""
    if revision != timeline.revision:
        return [f"a commit without effect returned {revision}, which no commit has"]
    if timeline.would_change(transaction.writes):
        return [f"commit {transaction} shares revision {revision} but should have changed it"]
    failing = timeline.first_failing(transaction.guards, revision)
    return [] if failing is None else [f"{transaction} was done although {failing} did not hold"]


def _check_refusal(timeline: Timeline, transaction: Transaction, refused: Refused) -> list[str]:
    failing = timeline.first_failing(transaction.guards, refused.revision)
    if failing != refused.guard:
        return [f"refused for {refused.guard} at {refused.revision}, but {failing} failed first"]
    current = timeline.item_at(refused.guard.key, refused.revision)
    if current != refused.current:
        return [f"refused with {refused.current} at {refused.revision}, the replay has {current}"]
    return []


def _is_sure_change(commit: CommitRecord) -> bool:
    return isinstance(commit.outcome, Done) and any(
        isinstance(write, Put) for write in commit.transaction.writes
    )
