"""Progress: counts, rate, time remaining, and the text."""

from __future__ import annotations

from restow.migration.migrator.passes import PageDone
from restow.migration.migrator.position import Position
from restow.migration.migrator.progress import Progress, duration_text


def page(scanned: int, *, token: str = "t", remaining: int | None = None) -> PageDone:
    return PageDone(
        token=token, scanned=scanned, rewritten=scanned, unchanged=0, remaining=remaining
    )


def advance(progress: Progress, done: PageDone, now_seconds: float) -> None:
    progress.note(done, progress.position.behind(done), now_seconds=now_seconds)


def test_by_the_servers_count() -> None:
    """The total follows from the server's count of remaining objects."""
    progress = Progress(now_seconds=0.0)
    assert progress.text() == "0 objects"
    advance(progress, page(8200, remaining=11800), 2.0)
    assert progress.text() == "8,200 of about 20,000 objects, 4,100/s, 3 s left"
    assert progress.to_status() == {
        "pass": 1,
        "scanned": 8200,
        "rewritten": 8200,
        "unchanged": 0,
        "failed": 0,
        "remaining": 11800,
        "objectsPerSecond": 4100,
        "secondsLeft": 3,
    }


def test_by_the_pass_before() -> None:
    """A second pass has about as many objects as the pass before it."""
    progress = Progress(now_seconds=0.0)
    advance(progress, page(100, token=""), 1.0)
    assert progress.remaining == 0
    progress.begin(progress.position.next_pass())
    assert (progress.total, progress.remaining) == (100, 100)
    advance(progress, page(40), 2.0)
    assert progress.text() == "proving: 40 of about 100 objects, 70/s, 1 s left"
    assert progress.rewritten == 140


def test_without_a_total() -> None:
    """Without a total there is no time remaining."""
    progress = Progress(now_seconds=0.0)
    advance(progress, page(10), 1.0)
    assert (progress.remaining, progress.seconds_left) == (None, None)
    assert progress.text() == "10 objects, 10/s"


def test_the_rate_covers_the_last_seconds() -> None:
    """Older pages do not count for the rate, and neither does the time of a pause."""
    progress = Progress(now_seconds=0.0)
    advance(progress, page(1), 60.0)
    for second in range(61, 81):
        advance(progress, page(100), float(second))
    assert round(progress.per_second) == 100
    progress.skip_pause(1000.0)
    assert progress.per_second == 0
    advance(progress, page(50), 1001.0)
    assert progress.per_second == 50


def test_resumed() -> None:
    """The position of an earlier run counts for the progress, but not for the rate."""
    begun = Position(token="t", objects=500).behind(page(200))
    progress = Progress(begun, now_seconds=5.0)
    assert (progress.remaining, progress.per_second, progress.seconds_left) == (300, 0, None)


def test_failures_are_shown() -> None:
    """The text has the number of failed objects."""
    progress = Progress(now_seconds=0.0)
    done = PageDone(token="t", scanned=2, rewritten=1, unchanged=0, failed=1)
    advance(progress, done, 1.0)
    assert progress.text() == "2 objects, 2/s, 1 failed"


def test_durations() -> None:
    """Durations have at most two units."""
    assert [duration_text(each) for each in (0, 59, 200, 18060)] == [
        "0 s",
        "59 s",
        "3 min 20 s",
        "5 h 1 min",
    ]
