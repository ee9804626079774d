"""Which releases of etcd are supported, and which of those have known bugs.

A release that lacks a required feature is rejected. One with a known bug is used, with a warning:
there may be no other release to use, and a cluster that does not start is worse.
"""

from __future__ import annotations

from typing import Final

VERSION_MIN: Final = (3, 4)
"""The first release that splits large watch responses."""

FIXED: Final = ((3, 4, 42), (3, 5, 28), (3, 6, 9))
"""The first release of each minor version without stale reads after a pause; later ones too."""
LOST_WRITES: Final = ((3, 5, 0), (3, 5, 3))
"""From the first, and before the second, a crash can lose acknowledged writes."""


def version_of(text: str) -> tuple[int, ...]:
    """`3.5.1` or `3.6.0-rc.1`, as numbers; a part that is not a number counts as 0."""
    parts = text.partition("-")[0].split(".")[:3]
    return tuple(int(part) if part.isdecimal() else 0 for part in (*parts, "0", "0", "0")[:3])


def is_too_old(text: str) -> bool:
    return version_of(text)[:2] < VERSION_MIN


def known_fault(text: str) -> str:
    """The fault of a release, and the release to use instead; empty: none known."""
    version = version_of(text)
    fixed = next((each for each in FIXED if each[:2] == version[:2]), None)
    if fixed is None or version >= fixed:
        return ""
    fault = "can return stale data after a pause"
    if LOST_WRITES[0] <= version < LOST_WRITES[1]:
        fault = "can lose acknowledged writes when a member crashes"
    return f"etcd {text} {fault}; use {'.'.join(map(str, fixed))} or newer"
