"""Stored values in memory take the size of their text, not of the buffer they were encoded
in."""

from __future__ import annotations

import tracemalloc

from restow.registry.stored_bytes import to_keep

COUNT = 200


def test_values_take_no_more_than_they_must() -> None:
    """Each of many small values takes less than half a kilobyte."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [to_keep({"holder": "a", "beat": number}) for number in range(COUNT)]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(kept) == COUNT
    assert taken < COUNT * 512
