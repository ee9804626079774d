"""The state of the store and the processes, as tuples of small numbers.

Numbers that only grow (revisions, epochs) are not part of it. A remembered number is only compared
for equality later, so the state has whether it is *still the same*. That loses nothing, and makes
the
space finite without a bound on revisions.

Two more things are omitted because the order of events contains them:

- A process that takes no step is paused. The effect of a pause is that its server is considered
  expired while the process is alive: `pauses` in the world allows that.
- A server that has registered has any number of writes in flight, from that time on, in each
version
  that it has used since. Starting one is not a step; committing one is.
"""

from typing import Final, NamedTuple

# Versions, which are also bits in sets of versions. The hash of a version is its bit.
NONE: Final = 0
V1: Final = 1
V2: Final = 2
UNKNOWN: Final = 4
"""Only among persisted hashes: objects may be stored in any version."""

VERSION_NAMES: Final = {NONE: "-", V1: "v1", V2: "v2"}

# Processes.
UNSTARTED: Final = 0
HOLDING: Final = 1
"""Runs, and has created its server key."""
REGISTERED: Final = 2
"""Runs, and knows that its registration was committed."""
ENDED: Final = 3

# Server keys.
NEVER: Final = 0
PRESENT: Final = 1
DELETED: Final = 2

# What the collector has observed of a server key: nothing relevant, its current revision, or an
# earlier one.
UNSEEN: Final = 0
EXPIRED: Final = 1
RENEWED: Final = 2

# A migration.
IDLE: Final = 0
RUNNING: Final = 1
COMPLETE: Final = 2

# A collector that processes a snapshot.
WAITING: Final = 0
HALF: Final = 1
"""Has read the object, or the servers, whichever it reads first."""
READY: Final = 2
"""Has read both, and will write."""


class Incarnation(NamedTuple):
    """One incarnation of one process. Its server ID is not used by another incarnation."""

    process: int
    key: int
    sight: int
    entry: int
    """The version in the StorageVersion, or none."""
    encoder: int
    """The version in the encoder key, or none."""
    writes: int
    """The set of versions in which writes may be in flight."""

    def __str__(self) -> str:
        words = [("unstarted", "holding", "registered", "ended")[self.process]]
        words += [
            ("", "key", "")[self.key],
            ("", "seen as expired", "seen before renewal")[self.sight],
        ]
        if self.entry:
            words.append(f"entry {VERSION_NAMES[self.entry]}")
        if self.encoder != self.entry:
            words.append(f"encoder {VERSION_NAMES[self.encoder]}")
        if self.writes:
            words.append(f"writes {versions(self.writes)}")
        return ", ".join(filter(None, words))


class Migration(NamedTuple):
    """A migration from its start to the end of its claim."""

    phase: int
    target: int
    visited: int
    """The set of rewritten objects."""
    epoch_same: bool
    """The epoch is that of the start (after completion: that of the completion)."""
    revision_same: bool
    """The StorageVersion has the revision of the start; tracked only if something reads it."""
    state_same: bool
    """The StorageState has the epoch of the start."""


class Collector(NamedTuple):
    """The state of a collector that processes a snapshot."""

    phase: int
    object_same: bool
    """The StorageVersion has the revision that was read."""
    entries: int
    """The set of incarnations with an entry when it was read."""
    live: int
    """The set of incarnations that were alive when servers were listed."""


class State(NamedTuple):
    """The complete state."""

    incarnations: tuple[Incarnation, ...]
    selected: int
    persisted: int
    """The set of persisted hashes. Before there is a StorageState: unknown."""
    stored: tuple[int, ...]
    """The version in which each object is stored."""
    past: tuple[int, ...]
    """All versions in which each was ever stored, as sets; tracked only if something reads it."""
    migration: Migration
    collector: Collector
    noted: int
    """The set of invariants that the last action violated; see invariants.py."""

    def __str__(self) -> str:
        parts = [
            f"{number}: {incarnation}"
            for number, incarnation in enumerate(self.incarnations)
            if incarnation.process
        ]
        parts.append(f"stored {' '.join(VERSION_NAMES[version] for version in self.stored)}")
        parts.append(f"persisted {versions(self.persisted)}")
        if self.selected:
            parts.append(f"selected {VERSION_NAMES[self.selected]}")
        if self.migration.phase != IDLE:
            phase = ("", "running", "complete")[self.migration.phase]
            same = "" if self.migration.epoch_same else ", epoch has changed"
            parts.append(f"migration to {VERSION_NAMES[self.migration.target]} {phase}{same}")
        return " | ".join(parts)


NOT_STARTED: Final = Incarnation(UNSTARTED, NEVER, UNSEEN, NONE, NONE, NONE)
GONE: Final = Incarnation(ENDED, DELETED, UNSEEN, NONE, NONE, NONE)
NO_MIGRATION: Final = Migration(IDLE, NONE, 0, False, False, False)
NO_COLLECTION: Final = Collector(WAITING, False, 0, 0)


def versions(chosen: int) -> str:
    """Returns a set of versions as text."""
    names = ((UNKNOWN, "Unknown"), (V1, "v1"), (V2, "v2"))
    return "[" + " ".join(name for bit, name in names if chosen & bit) + "]"


def agreement(incarnations: tuple[Incarnation, ...]) -> int:
    """Returns the version of all entries, or none."""
    agreed = NONE
    for incarnation in incarnations:
        entry = incarnation.entry
        if entry and entry != agreed:
            if agreed:
                return NONE
            agreed = entry
    return agreed
