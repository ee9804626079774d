"""Moments as objects of the API have them.

Not here: a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime


def read_time(value: object) -> datetime | None:
    """A moment; None for what is none, or might be in any zone."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def time_text(moment: datetime) -> str:
    """As it is written: in whole seconds, cut and never rounded up."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
