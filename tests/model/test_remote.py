"""Two stores and the messages between them: restow's order violates nothing, each other order does.

`pytest tests/model/test_remote.py -rP` shows the shortest trace of every mistake.
"""

import sys
from typing import Final

import pytest

from tests.model.remote import NOTIFIED, REGISTRATIONS_MAX, Remote, Rules, State, sought
from tests.model.search import search

STATES_MAX: Final = 150_000
STEPS_MAX: Final = 14
BOTH: Final = frozenset({1, 2})

MISTAKES: Final = {
    "reported after it was opened": Rules(reports_first=False),
    "the old key is not closed before the report": Rules(holds=False),
    "opened whatever has happened meanwhile": Rules(open_compares=False),
    "late words are believed": Rules(numbered=False),
    "withdrawn when the server key is gone": Rules(waits_for_encoder=False),
    "withdrawn for good while the server lives": Rules(waits_for_exit=False),
}


def test_no_order_violates_the_protocol() -> None:
    """Under any pause, death, delay or repetition each write matches the entry in the main
    store."""
    model = Remote(Rules())
    outcome = search(State(), model.successors, sought, states_max=STATES_MAX)
    sys.stdout.write(f"{outcome}\n")
    assert outcome.trace is None, str(outcome)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_detected(mistake: str) -> None:
    """Omitting a rule leads within a few steps to a write that does not match the main store."""
    model = Remote(MISTAKES[mistake])
    outcome = search(State(), model.successors, sought, states_max=STATES_MAX)
    sys.stdout.write(f"{outcome}\n")
    assert outcome.trace is not None, mistake
    assert outcome.steps <= STEPS_MAX


def test_the_model_makes_progress() -> None:
    """All registrations can complete with writes in both versions; otherwise nothing is proven."""
    model = Remote(Rules())
    outcome = search(
        State(),
        model.successors,
        lambda state: "all" if state.step == NOTIFIED and state.writes == BOTH else None,
        states_max=STATES_MAX,
    )
    assert outcome.trace is not None
    assert outcome.trace[-1].state.registration == REGISTRATIONS_MAX
