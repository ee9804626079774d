"""Compares every response that a client got with the log of the store.

| | |
|---|---|
| lost | an acknowledged write is in the log, at the returned revision, as it was sent |
| legal | its precondition held there, and its response has the stored content |
| once | a write is there at most once; one that was refused, delayed or not sent, not at all |
| requested | every change was requested by a client, or changes the stored version only |
| real time | an operation that began after another had ended comes after it |
| reads | a read returns a state during the request, a list all of it at one revision |

A write of unknown outcome may be in the log or not; if it is, it comes after the writes
acknowledged before it began. The order of the log is known, so nothing is searched for. Not here:
stored versions (`raw_audit`), and watches (`watch_view`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import orjson

from restow.storage.interface import (
    REVISION_FIRST,
    Absent,
    Done,
    Event,
    Guard,
    Item,
    Key,
    Present,
    Revision,
    RevisionIs,
    Span,
    Transaction,
)
from restow.testing.history import CommitRecord, History, check_legal, check_real_time
from tests.support.fire.objects import Spec, merged, stored_content, stored_spec, written_kind
from tests.support.fire.record import NOT_SENT, NOT_SERVED, PUT_OFF, REFUSALS, Operation, Shown
from tests.support.fire.truth import Truth, write_of

FAIR: frozenset[int] = frozenset({200, 201, 504, 0, NOT_SENT, NOT_SERVED}) | PUT_OFF | REFUSALS
"""Allowed statuses during a fault."""


class Moments:
    """Bounds of the revision of each request, derived from other responses."""

    def __init__(self, operations: Iterable[Operation], end: int) -> None:
        known = [each for each in operations if each.is_done and each.revision]
        by_end = sorted((each.ended, each.revision) for each in known)
        self._ends = [ended for ended, _ in by_end]
        self._newest = list(accumulate((revision for _, revision in by_end), max))
        # Only a write shows that a revision did not exist before it began.
        by_begin = sorted((each.began, each.revision) for each in known if each.is_write)
        self._begins = [began for began, _ in by_begin]
        oldest = accumulate((revision for _, revision in reversed(by_begin)), min)
        self._oldest = list(oldest)[::-1]
        self._end = end

    def low(self, began: float) -> int:
        """The newest revision in a response before that time."""
        index = bisect_left(self._ends, began)
        return self._newest[index - 1] if index else 0

    def high(self, ended: float) -> int:
        """The newest revision that can have existed."""
        index = bisect_left(self._begins, ended)
        return self._oldest[index] - 1 if index < len(self._begins) else self._end


class _Judge:
    """Goes through all operations, and notes which change of the log each of them explains."""

    def __init__(self, operations: Sequence[Operation], truth: Truth) -> None:
        self.problems: list[str] = []
        self.places: dict[int, Event] = {}
        """Of the operations that were applied, by their number."""
        self._operations = operations
        self._truth = truth
        self._moments = Moments(operations, truth.end)
        self._explained: set[tuple[Key, int]] = set()
        self._by_token: dict[str, list[Event]] = {}
        self._deletions: dict[str, Event] = {}
        """By the uid of the deleted object."""
        for event in _events(truth):
            if event.value is None:
                if event.previous is not None:
                    uid = orjson.loads(event.previous.value)["metadata"]["uid"]
                    self._deletions[uid] = event
                continue
            token = stored_spec(event.value).get("token", "")
            before = {} if event.previous is None else stored_spec(event.previous.value)
            if event.previous is None or before.get("token") != token:
                self._by_token.setdefault(token, []).append(event)

    def judge(self) -> None:
        for number, operation in enumerate(self._operations):
            if operation.status not in FAIR:
                self._complain(operation, f"got status {operation.status}")
            if operation.is_write:
                self._judge_write(number, operation)
            elif operation.is_done and operation.verb == "list":
                self._judge_list(operation)
            elif operation.status in (200, 404):
                self._judge_get(operation)
        self._judge_rest()

    def _complain(self, operation: Operation, text: str) -> None:
        what = f"{operation.verb} of {operation.resource} {operation.namespace}/{operation.name}"
        what += f" {operation.token}"
        self.problems.append(f"{what} at {operation.revision or 'no revision'} {text}")

    def _judge_write(self, number: int, operation: Operation) -> None:
        found = self._by_token.get(operation.token, [])
        if operation.verb == "delete":
            self._judge_delete(number, operation)
            return
        if len(found) > 1:
            self._complain(operation, f"happened {len(found)} times")
        if operation.is_done:
            event = self._truth.event_at(operation.key, operation.revision)
            if event is None or event not in found:
                self._complain(operation, "was acknowledged and is lost")
                return
            self._judge_change(number, operation, event)
        elif found and not operation.is_unknown:
            self._complain(operation, f"got {operation.status}, and was applied")
        elif found:
            if found[0].revision <= self._moments.low(operation.began):
                self._complain(operation, f"happened at {found[0].revision}, before it began")
            self._judge_change(number, operation, found[0])

    def _judge_change(self, number: int, operation: Operation, event: Event) -> None:
        self.places[number] = event
        self._explained.add((event.key, event.revision))
        assert event.value is not None
        before = {} if event.previous is None else stored_spec(event.previous.value)
        expected: Spec = dict(operation.spec)
        if operation.verb == "patch":
            expected = merged(before, expected)
        if stored_spec(event.value) != expected:
            self._complain(operation, f"made {stored_spec(event.value)}, not {expected}")
        if operation.is_done and operation.content != stored_content(event.value):
            self._complain(operation, f"returned {operation.content}, which is not what is stored")

    def _judge_delete(self, number: int, operation: Operation) -> None:
        if operation.is_done:
            event = self._deletions.get(operation.uid)
            if event is None or event.key != operation.key:
                self._complain(operation, f"of {operation.uid} was acknowledged and is lost")
                return
            low, high = self._moments.low(operation.began), self._moments.high(operation.ended)
            if not low < event.revision <= high:
                self._complain(operation, f"happened at {event.revision}, not in {low}..{high}")
            if (event.key, event.revision) in self._explained:
                self._complain(operation, "was acknowledged to two clients")
            self.places[number] = event
            self._explained.add((event.key, event.revision))

    def _judge_list(self, operation: Operation) -> None:
        span = Span.of_prefix(f"{operation.kind.root}{operation.namespace}/")
        revision = Revision(operation.revision)
        if revision < self._moments.low(operation.began):
            self._complain(operation, "is older than an earlier response")
        expected = {
            show_item(item)
            for item in self._truth.timeline.items_at(span, revision)
            if written_kind(item.key)
        }
        if set(operation.shown) != expected:
            odd = sorted({each.name for each in set(operation.shown) ^ expected})
            self._complain(operation, f"differs from the stored state: {odd[:5]}")

    def _judge_get(self, operation: Operation) -> None:
        key = operation.key
        low, high = self._moments.low(operation.began), self._moments.high(operation.ended)
        states = self._truth.states_between(key, low, high)
        shown = (operation.revision, operation.content) if operation.is_done else None
        if shown not in [
            None if item is None else (item.revision, stored_content(item.value)) for item in states
        ]:
            self._complain(operation, f"returned {shown}, which did not exist in {low}..{high}")

    def _judge_rest(self) -> None:
        """Check refusals, and changes without an acknowledged request."""
        unsure: dict[Key, list[Operation]] = {}
        for operation in self._operations:
            if operation.is_unknown and operation.verb == "delete":
                unsure.setdefault(operation.key, []).append(operation)
            if operation.is_write and operation.status in REFUSALS:
                self._judge_refusal(operation)
        for event in _events(self._truth):
            if (event.key, event.revision) in self._explained:
                continue
            if event.value is None:
                self._judge_deletion(event, unsure.get(event.key, []))
            elif event.previous is None or not _is_rewrite(event.previous, event.value):
                self.problems.append(f"{event.key} changed at {event.revision} without a request")

    def _judge_deletion(self, event: Event, unsure: list[Operation]) -> None:
        """Find a delete of unknown outcome for it; each can explain one deletion."""
        assert event.previous is not None
        for operation in unsure:
            wanted = operation.precondition in (0, event.previous.revision)
            if wanted and event.revision > self._moments.low(operation.began):
                unsure.remove(operation)
                return
        self.problems.append(f"{event.key} is deleted at {event.revision} without a request")

    def _judge_refusal(self, operation: Operation) -> None:
        key = operation.key
        low, high = self._moments.low(operation.began), self._moments.high(operation.ended)
        states = self._truth.states_between(key, low, high)
        if not any(_refuses(operation, item) for item in states):
            self._complain(
                operation, f"was refused ({operation.reason}) without a cause: {low}..{high}"
            )


def check_operations(operations: Sequence[Operation], truth: Truth) -> list[str]:
    """All violations in the responses to clients."""
    judge = _Judge(operations, truth)
    judge.judge()
    history = as_history(operations, truth, judge.places)
    return judge.problems + check_legal(history) + check_real_time(history)


def as_history(operations: Sequence[Operation], truth: Truth, places: dict[int, Event]) -> History:
    """The log as commits, each with the preconditions and times of its client request.

    A commit without a reply may have happened at any time.
    """
    asked = {event.revision: operations[number] for number, event in places.items()}
    history = History(start=REVISION_FIRST)
    for entry in truth.log:
        operation = asked.get(entry.revision)
        guards = () if operation is None else (_guard(operation),)
        began = 0.0 if operation is None else operation.began
        is_told = operation is not None and operation.is_done
        ended = operation.ended if operation is not None and is_told else math.inf
        transaction = Transaction(guards, tuple(write_of(event) for event in entry.events))
        history.commits.append(CommitRecord(began, ended, transaction, Done(entry.revision)))
    return history


def _guard(operation: Operation) -> Guard:
    """The precondition of an operation, as a guard."""
    key = operation.key
    if operation.verb == "create":
        return Absent(key)
    if operation.precondition:
        return RevisionIs(key, Revision(operation.precondition))
    return Present(key)


def _refuses(operation: Operation, item: Item | None) -> bool:
    """Whether a state of its object is a reason to refuse a write."""
    if operation.status == 404:
        return item is None
    if operation.verb == "create":
        return item is not None
    # A write without a precondition is retried for a while after a conflict.
    return not operation.precondition or item is None or item.revision != operation.precondition


def _is_rewrite(before: Item, value: bytes) -> bool:
    """Whether a change affects the stored version only."""
    old, new = (_without_version(each) for each in (before.value, value))
    return old == new


def _without_version(value: bytes) -> dict[str, Any]:
    stored: dict[str, Any] = orjson.loads(value)
    return stored | {"apiVersion": ""}


def _events(truth: Truth) -> Iterable[Event]:
    """The changes of the objects that the load writes."""
    return (event for entry in truth.log for event in entry.events if written_kind(event.key))


def show_item(item: Item) -> Shown:
    """A stored object as a read must return it."""
    namespace, name = item.key.rsplit("/", 2)[1:]
    return Shown(namespace, name, item.revision, stored_content(item.value))
