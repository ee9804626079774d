"""The checkers of watches: each detects its violation."""

from dataclasses import replace

import pytest

from restow.storage.feed import RevisionEvents
from restow.storage.interface import (
    Batch,
    Delete,
    Event,
    Item,
    Key,
    Put,
    Revision,
    Span,
    Write,
)
from restow.testing.history import Timeline
from restow.testing.watch_checks import WATCH_PROPERTIES, WatchRecord, check_watch

A1, A2, B1 = Key("/a/1"), Key("/a/2"), Key("/b/1")
AFTER = Revision(10)
HISTORY: list[tuple[Write, ...]] = [
    (Put(A1, b"before the watch"),),  # 10
    (Put(A1, b"x"), Put(A2, b"x")),  # 11
    (Put(B1, b"not in the span"),),  # 12
    (Put(A1, b"y"), Put(B1, b"y")),  # 13
    (Delete(A2),),  # 14
    (Put(A2, b"z"),),  # 15
]


def make_log() -> list[RevisionEvents]:
    timeline = Timeline(Revision(9), [])
    for number, writes in enumerate(HISTORY):
        timeline.apply(Revision(10 + number), writes)
    return timeline.log


LOG = make_log()
SPAN = Span.of_prefix("/a/")


def events(revision: int) -> tuple[Event, ...]:
    """The true events of the span at a revision."""
    [entry] = [entry for entry in LOG if entry.revision == revision]
    return tuple(event for event in entry.events if event.key in SPAN)


def batch(revision: int, *parts: tuple[Event, ...]) -> Batch:
    return Batch(Revision(revision), tuple(event for part in parts for event in part))


def seen(*batches: Batch) -> WatchRecord:
    return WatchRecord(SPAN, AFTER, list(batches))


def changed(revision: int, /, **fields: object) -> tuple[Event, ...]:
    """The first event of a revision with a wrong field."""
    first, *rest = events(revision)
    return (first._replace(**fields), *rest)  # type: ignore[arg-type]


GOOD = {
    "one by one": seen(*(batch(r, events(r)) for r in (11, 13, 14, 15))),
    "all at once": seen(batch(15, *(events(r) for r in (11, 13, 14, 15)))),
    "with marks": seen(
        batch(10), batch(12, events(11)), batch(12), batch(15, *map(events, (13, 14, 15)))
    ),
    "not yet far": seen(batch(11, events(11))),
    "nothing yet": seen(),
    "order within a revision": seen(batch(11, events(11)[::-1])),
}

OTHER = Item(A1, b"other", Revision(10), Revision(10))

BROKEN: dict[str, list[WatchRecord]] = {
    "ordered": [
        seen(batch(15, events(13), events(11))),
        seen(batch(15, events(11), events(14)), batch(16, events(13))),
    ],
    "unique": [
        seen(batch(11, events(11), events(11))),
        seen(batch(11, events(11)), batch(13, events(11), events(13))),
    ],
    "reliable": [
        seen(batch(13, events(13))),
        seen(batch(11, events(11)), batch(14, events(14))),
        seen(batch(11, events(11)[:1]), batch(13, events(13))),
        seen(batch(11, changed(11, value=b"wrong"))),
        seen(batch(11, changed(11, value=None))),
        seen(batch(11, changed(11, key=Key("/a/3")))),
        seen(batch(16, *map(events, (11, 13, 14, 15)), changed(15, revision=Revision(16)))),
    ],
    "atomic": [
        seen(batch(11, events(11)[:1]), batch(11, events(11)[1:])),
        seen(batch(11, events(11)[1:]), batch(13, events(11)[:1], events(13))),
    ],
    "resumable": [
        seen(batch(13, events(13))),
        seen(batch(11, events(10), events(11))),
    ],
    "bookmarkable": [
        seen(batch(15)),
        seen(batch(13), batch(13, events(11), events(13))),
        seen(batch(11, events(11)), batch(13), batch(14, events(13), events(14))),
        seen(batch(11, events(11)), batch(14, events(14))),
        seen(batch(12, events(11)), batch(11)),
        seen(batch(11, events(11), events(13))),
        seen(batch(11, events(11)[:1])),
    ],
    "matches filter": [
        seen(batch(12, events(11), tuple(LOG[2].events))),
    ],
    "right previous value": [
        seen(batch(11, changed(11, previous=None))),
        seen(batch(11, changed(11, previous=OTHER))),
        seen(batch(11, events(11)), batch(13, changed(13, previous=events(11)[0].previous))),
        seen(batch(13, events(11), events(13)), batch(14, changed(14, previous=None))),
        seen(batch(14, *map(events, (11, 13, 14))), batch(15, changed(15, previous=OTHER))),
    ],
    "right create flag": [
        seen(batch(11, changed(11, created=Revision(11)))),
        seen(batch(14, *map(events, (11, 13, 14))), batch(15, changed(15, created=Revision(11)))),
        seen(batch(14, events(11), events(13), changed(14, created=Revision(14)))),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    """A correct watch, in whatever batches, violates no property."""
    assert check_watch(GOOD[name], LOG) == []


def test_every_property_is_tested() -> None:
    """There are nine properties, and broken histories for each."""
    assert list(BROKEN) == list(WATCH_PROPERTIES)
    assert len(WATCH_PROPERTIES) == 9


@pytest.mark.parametrize(
    ("name", "record"), [(name, record) for name, records in BROKEN.items() for record in records]
)
def test_broken(name: str, record: WatchRecord) -> None:
    """A watch that violates a property is detected by that property's own check."""
    assert WATCH_PROPERTIES[name](record, LOG) != []
    assert any(problem.startswith(name) for problem in check_watch(record, LOG))


ALONE = {
    "unique": seen(batch(11, events(11), events(11))),
    "bookmarkable": seen(batch(11, events(11)), batch(15)),
    "matches filter": BROKEN["matches filter"][0],
    "right previous value": BROKEN["right previous value"][1],
    "right create flag": BROKEN["right create flag"][2],
    "ordered": seen(batch(15, events(11), events(14), events(13), events(15))),
}


@pytest.mark.parametrize("name", ALONE)
def test_alone(name: str) -> None:
    """Some violations are detected by one check only, so each check is necessary."""
    found = {problem.partition(":")[0] for problem in check_watch(ALONE[name], LOG)}
    assert found == {name}


def test_upto() -> None:
    """The position of a watch is its last mark, or its start."""
    assert seen().upto == AFTER
    assert seen(batch(11, events(11)), batch(15)).upto == 15
    assert replace(seen(), after=Revision(3)).upto == 3
