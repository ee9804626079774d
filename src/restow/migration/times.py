"""Parses and formats the timestamps of API objects.

Not here: a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime


def read_time(value: object) -> datetime | None:
    """Parse a timestamp; None if it is invalid or has no time zone."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def time_text(moment: datetime) -> str:
    """Format a timestamp: in whole seconds, truncated and never rounded up."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
