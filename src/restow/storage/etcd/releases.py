"""Which releases of etcd can be used, and which of those are known to be faulty.

A release that lacks what the driver needs is refused. One with a known fault is used, and told of:
whoever runs it may have no other, and a cluster that does not start helps nobody.
"""

from __future__ import annotations

from typing import Final

VERSION_MIN: Final = (3, 4)
"""The first that splits large watch answers."""

MENDED: Final = ((3, 4, 42), (3, 5, 28), (3, 6, 9))
"""The first of each line that does not answer with old data after a pause; later lines are well."""
LOST_WRITES: Final = ((3, 5, 0), (3, 5, 3))
"""From the first, up to before the second: a crash can take back what was confirmed."""


def version_of(text: str) -> tuple[int, ...]:
    """`3.5.1` or `3.6.0-rc.1`, as numbers; what is no number counts as 0."""
    parts = text.partition("-")[0].split(".")[:3]
    return tuple(int(part) if part.isdecimal() else 0 for part in (*parts, "0", "0", "0")[:3])


def is_too_old(text: str) -> bool:
    return version_of(text)[:2] < VERSION_MIN


def known_fault(text: str) -> str:
    """What is wrong with a release, and what to use instead; empty: nothing is known."""
    version = version_of(text)
    mended = next((each for each in MENDED if each[:2] == version[:2]), None)
    if mended is None or version >= mended:
        return ""
    fault = "can answer with old data after a pause"
    if LOST_WRITES[0] <= version < LOST_WRITES[1]:
        fault = "can lose writes that it has confirmed when a member crashes"
    return f"etcd {text} {fault}; use {'.'.join(map(str, mended))} or newer"
