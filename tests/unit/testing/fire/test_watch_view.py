"""Watch events compared with a log: the nine properties, and those of the API."""

from __future__ import annotations

import pytest

from tests.support.fire.objects import WIDGETS, content_of
from tests.support.fire.record import Seen, Shown, Stretch, WatcherRecord
from tests.support.fire.watch_view import check_watcher, comparable_log
from tests.unit.testing.fire.stories import NAMESPACE, UID, Story


def content(token: str) -> str:
    return content_of(UID, {"token": token, "counts": {}})


def saw(type_: str, revision: int, token: str) -> Seen:
    return Seen(type_, revision, NAMESPACE, "a", content(token))


FIRST, SECOND, GONE, AGAIN = (
    saw("ADDED", 2, "0.0"),
    saw("MODIFIED", 3, "0.1"),
    saw("DELETED", 4, "0.1"),
    saw("ADDED", 5, "0.2"),
)
MARK = Seen("BOOKMARK", 4)


def problems(
    *seen: Seen, after: int = 0, initial: tuple[Shown, ...] = (), reached_end: bool = True
) -> str:
    story = Story()
    story.write("0.0")
    story.write("0.1")
    story.delete(WIDGETS.key_of(NAMESPACE, "a"))
    story.write("0.2")
    record = WatcherRecord(number=7, namespace=NAMESPACE, reached_end=reached_end)
    record.stretches.append(Stretch(after=after, initial=initial, seen=list(seen)))
    return "\n".join(check_watcher(record, story.truth, comparable_log(story.truth)))


def test_good() -> None:
    """A correct watch, with a mark; and one after a list."""
    assert problems(FIRST, SECOND, GONE, MARK, AGAIN) == ""
    shown = (Shown(NAMESPACE, "a", 3, content("0.1")),)
    assert problems(GONE, AGAIN, after=3, initial=shown) == ""


@pytest.mark.parametrize(
    ("seen", "property_name"),
    [
        ((FIRST, GONE, SECOND), "ordered"),
        ((FIRST, SECOND, SECOND), "unique"),
        ((FIRST, GONE, AGAIN), "reliable"),
        ((FIRST, saw("MODIFIED", 3, "9.9")), "reliable"),
        ((SECOND, GONE), "resumable"),
        ((FIRST, MARK, SECOND), "bookmarkable"),
        ((FIRST, MARK), "bookmarkable"),
        ((Seen("ADDED", 2, "fire-1", "a", content("0.0")),), "matches filter"),
        ((FIRST, GONE), "right previous value"),
        ((FIRST, saw("ADDED", 3, "0.1")), "right create flag"),
        ((saw("MODIFIED", 2, "0.0"), saw("ADDED", 3, "0.1")), "right create flag"),
    ],
)
def test_broken(seen: tuple[Seen, ...], property_name: str) -> None:
    """Each violated property is detected."""
    assert f"{property_name}:" in problems(*seen)


def test_deletion_shows_something_else() -> None:
    """A deletion has the last state of the object."""
    assert "deletion:" in problems(FIRST, SECOND, saw("DELETED", 4, "0.0"))


def test_list() -> None:
    """The initial list of a watch is the state at its revision."""
    assert "list:" in problems(GONE, AGAIN, after=3)


def test_end() -> None:
    """A watch that never reaches the end."""
    assert "never saw the last objects" in problems(FIRST, reached_end=False)
