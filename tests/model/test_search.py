"""The search itself, on graphs with a known answer."""

import pytest

from tests.model.search import TooLarge, search


def clock(state: int) -> list[tuple[str, int]]:
    return [("one", (state + 1) % 12), ("five", (state + 5) % 12)]


def is_eleven(state: int) -> str | None:
    return "eleven" if state == 11 else None


def never(state: int) -> str | None:
    return None


def test_the_trace_is_the_shortest() -> None:
    """Of all paths to a sought state, one with the fewest steps is returned, action by action."""
    outcome = search(0, clock, is_eleven, states_max=100)
    assert outcome.found == "eleven"
    assert outcome.trace is not None
    assert [step.state for step in outcome.trace][-1] == 11
    assert sorted(step.action for step in outcome.trace[1:]) == ["five", "five", "one"]
    assert outcome.steps == 3
    assert "five" in str(outcome)


def test_all_states_are_seen() -> None:
    """A search without a result has visited every state, and has their number."""
    outcome = search(0, clock, never, states_max=100)
    assert (outcome.states, outcome.trace) == (12, None)


def test_the_initial_state_is_checked() -> None:
    """The initial state is checked too."""
    outcome = search(11, clock, is_eleven, states_max=100)
    assert (outcome.states, outcome.steps) == (1, 0)


def test_equal_up_to_names() -> None:
    """States with the same canonical form are visited once, and the trace has real states."""

    def moves(state: tuple[int, int]) -> list[tuple[str, tuple[int, int]]]:
        left, right = state
        grown = [("left", (left + 1, right)), ("right", (left, right + 1))]
        return [(name, after) for name, after in grown if max(after) <= 3]

    def ordered(state: tuple[int, int]) -> tuple[int, int]:
        return min(state), max(state)

    def is_corner(state: tuple[int, int]) -> str | None:
        return "corner" if state == (3, 3) else None

    outcome = search((0, 0), moves, is_corner, canonical=ordered, states_max=100)
    assert outcome.states == 10
    assert outcome.trace is not None
    for before, after in zip(outcome.trace, outcome.trace[1:], strict=False):
        assert (after.action, after.state) in moves(before.state)


def test_a_space_that_grows_is_noticed() -> None:
    """More states than the limit is an error, never a proof."""
    with pytest.raises(TooLarge):
        search(0, lambda state: [("one", state + 1)], never, states_max=50)
