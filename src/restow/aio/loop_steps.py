"""The long steps on the event loop: a histogram by handler, the longest ones with what they worked
on, and a log line for each one that blocks the loop.

A step is what one callback of the loop does before it returns; all clients of the server wait for
it. Event loops offer no hook for all callbacks, so the code that runs them measures:

    begin = monotonic()
    ...                                             the step
    if (end := monotonic()) - begin >= LONG_SECONDS:
        steps.note(KIND, begin, end, subject)

Short steps cost two readings of the clock and a comparison, and are not counted: an update has five
steps, and counting them as well took 2 % of its CPU time. A long step within another one is
subtracted from it: the time of a request is not also that of the task that runs it. The labels
are bounded: handlers are constants of the code, and the sets of labels in one period have a limit.

Not here: the delay that other callbacks see (`apiserver.loop_metrics`).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, NamedTuple

LONG_SECONDS: Final = 0.001
"""A step that takes at least this long is counted."""
BOUNDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper bounds of the buckets in seconds."""
NAMED_SECONDS: Final = 0.01
"""A step that takes at least this long is among the longest steps, with its labels."""
LOGGED_SECONDS: Final = 0.05
"""A step that takes at least this long is logged."""
LOG_INTERVAL_SECONDS: Final = 1.0
"""One line in this time; the next line has the number of steps that were not logged."""
PERIOD_SECONDS: Final = 60.0
"""The longest steps are those of the current period and the one before."""
INNER_MAX: Final = 64
"""Long steps that are kept, to be subtracted from the step around them."""
SERIES_MAX: Final = 200
"""Sets of labels in one period; further ones count as `OTHER`."""
OTHER: Final = "other"

logger = logging.getLogger(__name__)


class StepSubject(NamedTuple):
    """What a long step worked on."""

    resource: str = ""
    """A label: the resource, or the owner of the task; from a bounded set."""
    form: str = ""
    """A label: the representations of the request and the response."""
    text: str = ""
    """For the log: the route of the request, or the name of the task."""


Series = tuple[str, str, str]
"""Handler, resource and form."""


class StepKind:
    """The steps of one handler."""

    __slots__ = ("buckets", "describe", "handler", "sum_seconds")

    def __init__(self, handler: str, describe: Callable[[Any], StepSubject]) -> None:
        self.handler: Final = handler
        self.describe: Final = describe
        """Describes the subject of a step. It must not raise."""
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.sum_seconds = 0.0

    def cumulative(self) -> list[tuple[str, float]]:
        total = 0
        pairs: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.buckets, strict=True):
            total += count
            pairs.append((bound, total))
        return pairs


class LoopSteps:
    """The steps of one event loop."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic: Final = monotonic
        """The clock of the measurements."""
        self._inner: deque[tuple[float, float]] = deque(maxlen=INNER_MAX)
        """The begin and the whole duration of the last long steps, none within another of them."""
        self._kinds: dict[str, StepKind] = {}
        self.task_kind: Final = self.kind("task", _describe_task)
        """The steps of all tasks."""
        self._period_ends = monotonic() + PERIOD_SECONDS
        self._longest: dict[Series, float] = {}
        self._longest_before: dict[Series, float] = {}
        self._logs_from = monotonic()
        self._unlogged = 0

    def kind(self, handler: str, describe: Callable[[Any], StepSubject]) -> StepKind:
        """The kind of a handler, which the caller keeps. `handler` is a constant of the code."""
        found = self._kinds.get(handler)
        if found is None:
            found = self._kinds[handler] = StepKind(handler, describe)
        return found

    def note(self, kind: StepKind, begin: float, end: float, subject: object = None) -> None:
        """Note a long step, from begin to end."""
        inner, inner_seconds = self._inner, 0.0
        while inner and inner[-1][0] >= begin:
            inner_seconds += inner.pop()[1]
        inner.append((begin, end - begin))
        seconds = end - begin - inner_seconds
        if seconds < LONG_SECONDS:
            return
        kind.buckets[bisect_left(BOUNDS, seconds)] += 1
        kind.sum_seconds += seconds
        if seconds < NAMED_SECONDS:
            return
        found = kind.describe(subject)
        self._turn_period()
        series = kind.handler, found.resource, found.form
        if series not in self._longest and len(self._longest) >= SERIES_MAX:
            series = OTHER, "", ""
        self._longest[series] = max(seconds, self._longest.get(series, 0.0))
        if seconds >= LOGGED_SECONDS:
            self._log(kind, seconds, found)

    def _log(self, kind: StepKind, seconds: float, found: StepSubject) -> None:
        now = self.monotonic()
        if now < self._logs_from:
            self._unlogged += 1
            return
        self._logs_from = now + LOG_INTERVAL_SECONDS
        more = f" ({self._unlogged} more long steps were not logged)" if self._unlogged else ""
        self._unlogged = 0
        what = f"{kind.handler} {found.text}".rstrip()
        logger.warning("the event loop was blocked for %.0f ms by %s%s", seconds * 1000, what, more)

    def _turn_period(self) -> None:
        late_seconds = self.monotonic() - self._period_ends
        if late_seconds >= 0:
            self._longest_before = {} if late_seconds >= PERIOD_SECONDS else self._longest
            self._longest = {}
            self._period_ends += (late_seconds // PERIOD_SECONDS + 1) * PERIOD_SECONDS

    # For metrics.

    def histogram(self) -> Iterator[tuple[tuple[str, ...], list[tuple[str, float]], float]]:
        """The durations of the steps of each handler."""
        for handler, kind in list(self._kinds.items()):
            yield (handler,), kind.cumulative(), kind.sum_seconds

    def longest(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """The longest step of each set of labels in the last one to two periods."""
        self._turn_period()
        found = dict(self._longest_before)
        for series, seconds in self._longest.items():
            found[series] = max(seconds, found.get(series, 0.0))
        yield from found.items()

    # Tasks.

    def measure_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure each step of all tasks that this loop creates from now on."""

        def make(
            loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
        ) -> asyncio.Task[Any]:
            return asyncio.Task(_MeasuredCoroutine(self, coroutine), loop=loop, **options)

        loop.set_task_factory(make)  # type: ignore[arg-type]


class _MeasuredCoroutine(Coroutine[Any, Any, Any]):
    """Measures each step of the coroutine of a task."""

    __slots__ = ("_coroutine", "_monotonic", "_steps")

    def __init__(self, steps: LoopSteps, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._steps = steps
        self._monotonic = steps.monotonic
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        begin = self._monotonic()
        try:
            return self._coroutine.send(value)
        finally:
            end = self._monotonic()
            if end - begin >= LONG_SECONDS:
                self._steps.note(self._steps.task_kind, begin, end)

    def throw(self, *error: Any) -> Any:
        begin = self._monotonic()
        try:
            return self._coroutine.throw(*error)
        finally:
            end = self._monotonic()
            if end - begin >= LONG_SECONDS:
                self._steps.note(self._steps.task_kind, begin, end)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        raise TypeError("the coroutine of a task is run by its task")

    def __getattr__(self, name: str) -> Any:
        # Python shows the frames of a task by the attributes of its coroutine.
        return getattr(self._coroutine, name)


def _describe_task(_subject: object) -> StepSubject:
    task = asyncio.current_task()
    name = "" if task is None else task.get_name()
    owner, slash, _ = name.partition("/")
    return StepSubject(owner if slash else OTHER, "", name)
