"""Rules on the persisted hashes, the persisted keys and the heartbeat of a state.

Not here: when they are applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from restow.migration.trigger.values import UNKNOWN, Memory, Now, Settings


def uncovered(persisted: tuple[str, ...], hashes: Iterable[str]) -> frozenset[str]:
    """Return the hashes that the persisted ones do not include. "Unknown" includes all."""
    if UNKNOWN in persisted:
        return frozenset()
    return frozenset(hashes).difference(persisted)


def appended(persisted: tuple[str, ...], hashes: Iterable[str]) -> tuple[str, ...]:
    """Return the persisted hashes and these, each once; an empty list becomes "Unknown"."""
    return tuple(dict.fromkeys((*(persisted or (UNKNOWN,)), *sorted(hashes))))


def keys_appended(persisted: tuple[str, ...], keys: Iterable[str]) -> tuple[str, ...]:
    """Return the persisted encryption keys and these, each once."""
    return tuple(dict.fromkeys((*persisted, *sorted(keys))))


def age_seconds(heartbeat: datetime, now: Now) -> float:
    return (now.wall - heartbeat).total_seconds()


def is_stale(
    heartbeat: datetime | None, memory: Memory | None, *, now: Now, settings: Settings
) -> bool:
    """Whether changes may have been missed since the heartbeat.

    A new controller accepts a heartbeat for one polling period. One that runs has its own polls,
    which may be late. A heartbeat in the future is the result of a wrong clock, here or there.
    """
    if heartbeat is None:
        return True
    age = age_seconds(heartbeat, now)
    # KEP-2343 4.17: a new controller accepts a heartbeat for one period
    limit = settings.poll_seconds if memory is None else settings.gap_seconds_max
    return age > limit or age < -settings.skew_seconds


def is_due(heartbeat: datetime | None, *, now: Now, settings: Settings) -> bool:
    """Whether a heartbeat is due: after half a period, because a late one is taken for a gap."""
    if heartbeat is None:
        return True
    return not 0 <= age_seconds(heartbeat, now) < settings.poll_seconds / 2
