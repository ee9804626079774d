"""Replies to clients compared with a log: each check detects its violation."""

from __future__ import annotations

from tests.support.fire.objects import WIDGETS, content_of
from tests.support.fire.record import Operation, Shown
from tests.support.fire.replay_check import Moments, check_operations
from tests.unit.testing.fire.stories import NAMESPACE, UID, Story, told

KEY = WIDGETS.key_of(NAMESPACE, "a")


def problems(story: Story, *operations: Operation) -> str:
    return "\n".join(check_operations(operations, story.truth))


def good_story() -> tuple[Story, list[Operation]]:
    """One operation of every kind, all correct."""
    story = Story()
    made = story.write("0.0", counts={"c0": 0})
    patched = story.write("1.0", counts={"c0": 0, "c1": 5})
    story.write("1.0", counts={"c0": 0, "c1": 5}, version="v2")  # a migration
    updated = story.write("0.1", counts={"c0": 1})
    story.delete(KEY)
    told_of_patch = told("patch", "1.0", patched, at=(3, 4), counts={"c1": 5})
    told_of_patch.content = content_of(UID, {"token": "1.0", "counts": {"c0": 0, "c1": 5}})
    return story, [
        told("create", "0.0", made, at=(1, 2), counts={"c0": 0}),
        told_of_patch,
        told("update", "0.1", updated, at=(5, 6), counts={"c0": 1}, precondition=patched + 1),
        told("delete", "0.2", at=(7, 8)),
        told("create", "0.3", at=(5.5, 5.8), status=409),
        told("get", "", at=(9, 10), status=404),
    ]


def test_good() -> None:
    """A correct history has no violations; a rewrite in another version needs no client request."""
    story, operations = good_story()
    assert problems(story, *operations) == ""


def test_lost() -> None:
    """An acknowledged write must be in the log, at its revision."""
    story = Story()
    at = story.write("0.0")
    assert "acknowledged and is lost" in problems(story, told("create", "9.9", at))
    assert "acknowledged and is lost" in problems(story, told("create", "0.0", at + 1))
    assert "acknowledged and is lost" in problems(
        story, told("create", "0.0", at), told("delete", "0.1", uid="another")
    )


def test_precondition() -> None:
    """A write that was done although its precondition did not hold."""
    story = Story()
    story.write("0.0")
    second = story.write("0.1")
    told_first = told("create", "0.0", 2)
    found = problems(story, told_first, told("update", "0.1", second, precondition=99))
    assert "although" in found
    assert "although" in problems(story, told_first, told("create", "0.1", second))


def test_lost_update() -> None:
    """A patch that removed what another client had written."""
    story = Story()
    story.write("0.0", counts={"c0": 0})
    at = story.write("1.0", counts={"c1": 1})
    found = problems(
        story,
        told("create", "0.0", 2, counts={"c0": 0}),
        told("patch", "1.0", at, counts={"c1": 1}),
    )
    assert "made {'token': '1.0', 'counts': {'c1': 1}}, not" in found


def test_wrong_answer() -> None:
    """A reply that differs from the stored object, or an invalid status."""
    story = Story()
    at = story.write("0.0")
    wrong = told("create", "0.0", at, content="something")
    assert "not what is stored" in problems(story, wrong)
    assert "got status 500" in problems(story, told("create", "0.0", status=500))


def test_twice() -> None:
    """A write that was applied twice, as one that is retried blindly."""
    story = Story()
    story.write("0.0")
    story.delete(KEY)
    at = story.write("0.0")
    deleted = told("delete", "0.1")
    assert "happened 2 times" in problems(story, told("create", "0.0", at), deleted)


def test_put_off_and_done() -> None:
    """A write that was delayed, refused or not even sent, and was applied."""
    for status in (503, 409, -1):
        story = Story()
        story.write("0.0")
        assert "and was applied" in problems(story, told("create", "0.0", status=status))


def test_unknown() -> None:
    """A write of unknown outcome may have been applied or not, but not before it began."""
    story = Story()
    first = story.write("0.0")
    assert problems(story, told("create", "0.0", status=0)) == ""
    assert problems(story, told("create", "0.0", first), told("patch", "0.1", status=504)) == ""
    second = story.write("0.1", "b")
    found = problems(
        story,
        told("create", "0.1", second, at=(1, 2), name="b"),
        told("create", "0.0", status=0, at=(3, 99)),
    )
    assert "before it began" in found


def test_not_requested() -> None:
    """A change, and a deletion, without a client request."""
    story = Story()
    at = story.write("0.0")
    assert "without a request" in problems(story)
    story.delete(KEY)
    made = told("create", "0.0", at)
    assert "is deleted at 3 without a request" in problems(story, made)
    assert problems(story, made, told("delete", "0.1", status=504)) == ""
    guarded = told("delete", "0.1", status=504, precondition=77)
    assert "without a request" in problems(story, made, guarded)


def test_real_time() -> None:
    """An operation that began after another had ended, and has a smaller revision."""
    story = Story()
    first, second = story.write("0.0"), story.write("0.1", "b")
    found = problems(
        story,
        told("create", "0.1", second, at=(1, 2), name="b"),
        told("create", "0.0", first, at=(3, 4)),
    )
    assert "that began after 3 had been acknowledged" in found


def test_deletion_in_real_time() -> None:
    """A deletion, whose reply has no revision, at an impossible position."""
    story = Story()
    made, _, later = story.write("0.0"), story.delete(KEY), story.write("0.1", "b", uid="uid-2")
    late = told("create", "0.1", later, at=(3, 4), name="b", uid="uid-2")
    late.content = content_of("uid-2", {"token": "0.1", "counts": {}})
    created = told("create", "0.0", made, at=(1, 2))
    assert problems(story, created, late, told("delete", "0.2", at=(2, 5))) == ""
    assert "not in 4" in problems(story, created, late, told("delete", "0.2", at=(5, 6)))


def test_refused_for_nothing() -> None:
    """A conflict without a reason, and a 404 for an object that exists."""
    story = Story()
    at = story.write("0.0")
    made = told("create", "0.0", at, at=(1, 2))
    for refusal in (
        told("update", "0.1", at=(3, 4), status=409, precondition=at),
        told("patch", "0.1", at=(3, 4), status=404),
    ):
        assert "without a cause" in problems(story, made, refusal)
    right = told("update", "0.1", at=(3, 4), status=409, precondition=at + 7)
    assert problems(story, made, right) == ""


def test_stale_reads() -> None:
    """A stale read, a stale list, and an incomplete list."""
    story = Story()
    old, new = story.write("0.0"), story.write("0.1")
    made = told("create", "0.0", old, at=(1, 2))
    changed = told("update", "0.1", new, at=(3, 4), precondition=old)
    content = content_of(UID, {"token": "0.0", "counts": {}})
    stale = told("get", "", old, at=(5, 6), content=content)
    assert "did not exist" in problems(story, made, changed, stale)
    early = told("get", "", old, at=(2.5, 6), content=content)
    assert problems(story, made, changed, early) == ""
    shown = (Shown(NAMESPACE, "a", old, content),)
    listed = told("list", "", old, at=(5, 6), name="", shown=shown)
    assert "is older than" in problems(story, made, changed, listed)
    empty = told("list", "", new, at=(5, 6), name="")
    assert "differs from the stored state: ['a']" in problems(story, made, changed, empty)


def test_moments() -> None:
    """Bounds of the revisions of an object, from earlier and later replies."""
    story = Story()
    first, second = story.write("0.0"), story.write("0.1", "b")
    moments = Moments(
        [
            told("create", "0.0", first, at=(1, 2)),
            told("create", "0.1", second, at=(5, 6), name="b"),
        ],
        end=9,
    )
    assert (moments.low(1.5), moments.low(3), moments.low(7)) == (0, first, second)
    assert (moments.high(0.5), moments.high(4), moments.high(7)) == (first - 1, second - 1, 9)
