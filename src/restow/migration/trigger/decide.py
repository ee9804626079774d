"""Decides what the trigger does next about one resource: values in, values out.

One function for each source of storage versions:

- *storageversion*: StorageVersions (KEP-2339), `by_storage_version`. The safest.
- *discovery*: the hash that one server shows (KEP-2343), `by_discovery`.
- *discovery-ha*: the hash of each server, reported by a controller next to it or by the leader,
  `by_reports`.

Invariants of all three, for any number of controllers that act on stale reads:

- hashes are added to the state in one conditional update, with the current hash and the heartbeat;
- the state is narrowed only to the target of a successful migration whose record equals the current
  one, in an update conditional on the state that it was compared with;
- the memory of a controller makes it faster or more careful; it never allows more.

Not here: reading, writing, waiting. The reconciler reads the view, calls `decide`, and acts.
"""

from __future__ import annotations

from typing import assert_never

from restow.migration.trigger.actions import TriggerDecision
from restow.migration.trigger.by_discovery import decide_by_discovery
from restow.migration.trigger.by_reports import decide_by_reports
from restow.migration.trigger.by_storage_version import decide_by_storage_version
from restow.migration.trigger.values import (
    DiscoveryReading,
    LocalReading,
    Memory,
    Now,
    ServersReading,
    Settings,
    StorageVersionReading,
    TriggerView,
)


def decide(
    view: TriggerView, memory: Memory | None, *, now: Now, settings: Settings
) -> TriggerDecision:
    """Return the actions and the new memory. Memory None: this controller is new."""
    match view.reading:
        case StorageVersionReading() as reading:
            return decide_by_storage_version(view, reading, memory, now=now, settings=settings)
        # KEP-2343 4.20, 4.21, 4.22, 4.23: the lifecycle of a state by discovery
        case DiscoveryReading() as reading:
            return decide_by_discovery(view, reading, memory, now=now, settings=settings)
        case LocalReading() | ServersReading() as reading:
            return decide_by_reports(view, reading, memory, now=now, settings=settings)
        case other:
            assert_never(other)
