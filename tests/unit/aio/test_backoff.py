"""Limits of backoff delays, and the retry loop."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import Backoff, SeededRandomness, SimulatedClock, retry

BACKOFFS = st.builds(
    lambda initial, growth, factor, jitter: Backoff(
        initial_seconds=initial, factor=factor, max_seconds=initial * growth, jitter=jitter
    ),
    st.floats(1e-6, 1e3),
    st.floats(1, 1e6),
    st.floats(1, 1e3),
    st.floats(0, 1),
)
PLAIN = Backoff(initial_seconds=1, factor=2, max_seconds=5, jitter=0)


@given(BACKOFFS, st.integers(0, 10_000), st.integers())
def test_delays_are_bounded(backoff: Backoff, failures: int, seed: int) -> None:
    """For any number of failures the delay is at most the limit, and at least its fixed share."""
    ceiling = backoff.ceiling_seconds(failures)
    delay = backoff.delay_seconds(failures, SeededRandomness(seed))
    assert backoff.initial_seconds <= ceiling <= backoff.max_seconds
    assert ceiling <= backoff.ceiling_seconds(failures + 1)
    assert ceiling * (1 - backoff.jitter) * (1 - 1e-9) <= delay + 1e-12
    assert 0 <= delay <= ceiling


def test_delays_without_jitter() -> None:
    """Without jitter the delays double up to the limit and stay there."""
    delays = PLAIN.delays(SeededRandomness(1))
    assert list(itertools.islice(delays, 5)) == [1, 2, 4, 5, 5]


def test_jitter_spreads() -> None:
    """With full jitter two sources of randomness have different delays."""
    backoff = Backoff(initial_seconds=1, factor=1, max_seconds=1, jitter=1)
    first = list(itertools.islice(backoff.delays(SeededRandomness(1)), 5))
    second = list(itertools.islice(backoff.delays(SeededRandomness(2)), 5))
    assert first != second


@pytest.mark.parametrize(
    ("initial_seconds", "factor", "max_seconds", "jitter"),
    [(0, 2, 1, 0), (2, 2, 1, 0), (1, 0.5, 2, 0), (1, 2, 2, 1.5), (1, 2, float("inf"), 0)],
)
def test_invalid_parameters_are_rejected(
    *, initial_seconds: float, factor: float, max_seconds: float, jitter: float
) -> None:
    """Parameters without a delay, an increase or an end are rejected."""
    with pytest.raises(ValueError, match=r"must be|is required"):
        Backoff(
            initial_seconds=initial_seconds,
            factor=factor,
            max_seconds=max_seconds,
            jitter=jitter,
        )


class Flaky:
    """An operation that raises the given errors in order and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def run_retry(
    operation: Flaky, clock: SimulatedClock, *, attempts_max: int, log: list[float] | None = None
) -> str:
    delays = [] if log is None else log
    return await clock.run_until_done(
        retry(
            operation,
            retry_on=ConnectionError,
            attempts_max=attempts_max,
            backoff=PLAIN,
            clock=clock,
            randomness=SeededRandomness(1),
            on_retry=lambda _error, delay_seconds: delays.append(delay_seconds),
        )
    )


async def test_retry_until_success() -> None:
    """Listed errors are retried and reported, and the result is returned."""
    clock, log = SimulatedClock(), list[float]()
    operation = Flaky(ConnectionError(), ConnectionResetError())
    assert await run_retry(operation, clock, attempts_max=5, log=log) == "done"
    assert (operation.calls, clock.monotonic(), log) == (3, 3, [1, 2])


async def test_retry_gives_up() -> None:
    """The last attempt raises its own error, with a note, and without a further delay."""
    clock = SimulatedClock()
    last = ConnectionError("third")
    operation = Flaky(ConnectionError("first"), ConnectionError("second"), last)
    with pytest.raises(ConnectionError, match="third") as caught:
        await run_retry(operation, clock, attempts_max=3)
    assert caught.value is last
    assert last.__notes__ == ["gave up after 3 attempts"]
    assert (operation.calls, clock.monotonic()) == (3, 3)


async def test_other_errors_pass_at_once() -> None:
    """An error that is not listed is not retried."""
    clock = SimulatedClock()
    operation = Flaky(LookupError())
    with pytest.raises(LookupError):
        await run_retry(operation, clock, attempts_max=3)
    assert (operation.calls, clock.monotonic()) == (1, 0)


async def test_no_attempts_is_rejected() -> None:
    """Fewer than one attempt is rejected."""
    with pytest.raises(ValueError, match="at least 1"):
        await run_retry(Flaky(), SimulatedClock(), attempts_max=0)
