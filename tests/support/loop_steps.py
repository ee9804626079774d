"""Measures the steps of an asyncio event loop: their time, calls, and bytes of JSON.

One step is what the loop runs between two looks at its sockets and timers: one callback. Calls are
counted by the profiler of the loop's thread, so the count does not depend on the machine.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(slots=True)
class LongestStep:
    """The largest values of one step since `reset`."""

    seconds: float = 0.0
    """CPU time of the thread."""
    calls: int = 0
    json_bytes: int = 0
    """Bytes decoded or encoded by one call."""
    callback: str = ""
    """The callback with the most calls."""

    def reset(self) -> None:
        self.seconds, self.calls, self.json_bytes, self.callback = 0.0, 0, 0, ""


@contextmanager
def measured_steps(*, counts_calls: bool) -> Iterator[LongestStep]:
    """Measure all steps of the loops of this thread."""
    longest, thread = LongestStep(), threading.get_ident()
    run, loads, dumps = asyncio.Handle._run, orjson.loads, orjson.dumps
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    def measured(handle: asyncio.Handle) -> None:
        nonlocal calls
        calls = 0
        begin = time.thread_time()
        if counts_calls:
            sys.setprofile(count)
        try:
            run(handle)
        finally:
            if counts_calls:
                sys.setprofile(None)
            longest.seconds = max(longest.seconds, time.thread_time() - begin)
            if calls > longest.calls:
                longest.calls, longest.callback = calls, repr(handle)[:200]

    def note(size: int) -> None:
        if threading.get_ident() == thread:
            longest.json_bytes = max(longest.json_bytes, size)

    def noted_loads(text: Any) -> Any:
        note(len(text))
        return loads(text)

    def noted_dumps(*arguments: Any, **options: Any) -> bytes:
        made = dumps(*arguments, **options)
        note(len(made))
        return made

    asyncio.Handle._run, orjson.loads, orjson.dumps = measured, noted_loads, noted_dumps  # type: ignore[method-assign,assignment]
    try:
        yield longest
    finally:
        asyncio.Handle._run, orjson.loads, orjson.dumps = run, loads, dumps  # type: ignore[method-assign]
