"""When a watcher has seen all events."""

from __future__ import annotations

from tests.support.fire.objects import END, NAMESPACES
from tests.support.fire.record import Seen, Shown, WatcherRecord
from tests.support.fire.watchers import has_ended, note_event, note_list


def end_of(namespace: str, revision: int) -> Seen:
    return Seen("ADDED", revision, namespace, END, "content")


def test_end_of_one_namespace() -> None:
    """The last object of its own namespace suffices, and no other."""
    record = WatcherRecord(number=1, namespace=NAMESPACES[1])
    note_list(record, 1, ())
    note_event(record, Seen("ADDED", 2, NAMESPACES[1], "w-1", "content"))
    assert not has_ended(record)
    note_event(record, end_of(NAMESPACES[1], 3))
    assert has_ended(record)


def test_end_of_everything() -> None:
    """All last objects, whatever comes in between, such as a mark."""
    record = WatcherRecord(number=1, namespace="")
    note_list(record, 1, ())
    for number, namespace in enumerate(NAMESPACES):
        assert not has_ended(record)
        note_event(record, end_of(namespace, 2 + number))
        note_event(record, Seen("BOOKMARK", 2 + number))
    assert has_ended(record)


def test_end_in_a_list() -> None:
    """A new list has only the current objects."""
    record = WatcherRecord(number=1, namespace="")
    note_list(record, 1, tuple(Shown(each, END, 1, "content") for each in NAMESPACES))
    assert has_ended(record)
    note_list(record, 2, ())
    assert not has_ended(record)
