"""What the triggering controller does next about one resource: values in, values out.

One function, by what is known of the servers:

- *storageversion*: StorageVersions (KEP-2339), `by_storage_version`. The safest.
- *discovery*: the hash that one server shows (KEP-2343), `by_discovery`.
- *discovery-ha*: the hash of each server, reported by a controller beside it or by the leader,
  `by_reports`.

What holds for all three, for any number of controllers that act on old readings:

- hashes are added to the state in one conditional update, with the current hash and the heartbeat;
- the state is narrowed only to the target of a request that has succeeded, whose record is what
  would be recorded now, in an update conditional on the state that this was compared with;
- what a controller remembers makes it faster or more careful, and never bolder.

Not here: reading, writing, sleeping. A shell reads the view, calls `decide`, does what it says.
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
    """What to do now, and what to remember. No memory: this controller sees it the first time."""
    match view.reading:
        case StorageVersionReading() as reading:
            return decide_by_storage_version(view, reading, memory, now=now, settings=settings)
        case DiscoveryReading() as reading:
            return decide_by_discovery(view, reading, memory, now=now, settings=settings)
        case LocalReading() | ServersReading() as reading:
            return decide_by_reports(view, reading, memory, now=now, settings=settings)
        case other:
            assert_never(other)
