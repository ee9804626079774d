"""Positions: saved, read, and used only for the purpose that they were saved for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from restow.migration.migrator.passes import PageDone
from restow.migration.migrator.position import Counts, Position, Purpose

PURPOSE = Purpose(
    request_uid="u", resource="widgets.example.com", way="rewrite", target="h", mark="u/epoch/1"
)
numbers = st.integers(0, 10**9)
positions = st.builds(
    Position,
    pass_number=st.integers(1, 9),
    token=st.text(max_size=20),
    counts=st.builds(
        Counts,
        scanned=numbers,
        rewritten=numbers,
        unchanged=numbers,
        settled=numbers,
        failed=numbers,
    ),
    rewritten=numbers,
    objects=st.none() | numbers,
)


@given(positions)
def test_round_trip(position: Position) -> None:
    """A position that is saved and read is the same."""
    assert Position.of_text(position.to_text(PURPOSE), PURPOSE) == position


@given(positions, st.sampled_from(["request_uid", "resource", "way", "target", "mark"]))
def test_another_purpose(position: Position, field: str) -> None:
    """A position of another migration, target, method or agreement is ignored."""
    other = replace(PURPOSE, **{field: "other"})
    assert Position.of_text(position.to_text(PURPOSE), other) is None


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_arbitrary_text(text: str) -> None:
    """Any text in the annotation yields no position, or a valid one."""
    found = Position.of_text(text, PURPOSE)
    assert found is None or found.pass_number >= 1


def test_wrong_types() -> None:
    """Fields of a wrong type count as 0; without a token or a pass there is no position."""
    good = Position(token="t").to_text(PURPOSE)
    odd = good.replace('"scanned":0', '"scanned":"many"').replace('"failed":0', '"failed":-3')
    assert Position.of_text(odd, PURPOSE) == Position(token="t")
    for bad in (
        good.replace('"t"', "7"),
        good.replace('"pass":1', '"pass":true'),
        "[]",
        "x" * 99999,
    ):
        assert Position.of_text(bad, PURPOSE) is None


def test_without_a_mark_only_a_first_pass_is_resumed() -> None:
    """The agreement may have been interrupted, so a second pass starts at its beginning."""
    purpose = replace(PURPOSE, mark="")
    first, second = Position(token="t"), Position(pass_number=2, token="t")
    assert Position.of_text(first.to_text(purpose), purpose) == first
    assert Position.of_text(second.to_text(purpose), purpose) is None


def test_counting() -> None:
    """Counts are per pass; the total of rewritten objects is kept."""
    done = PageDone(token="t", scanned=3, rewritten=2, unchanged=0, failed=1)
    position = Position().behind(done)
    assert (position.token, position.counts.scanned, position.counts.failed) == ("t", 3, 1)
    again = position.restart()
    assert (again.token, again.counts, again.rewritten) == ("", Counts(), 2)
    following = position.next_pass()
    assert (following.pass_number, following.objects, following.rewritten) == (2, 3, 2)
    assert Position().is_first
    assert not following.is_first
