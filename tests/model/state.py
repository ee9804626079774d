"""What the store and the processes hold, as tuples of small numbers.

Numbers that only grow (revisions, epochs) are not in it. Whoever remembers one compares it for
equality later and does nothing else with it, so what is kept is whether it is *still the same*.
That loses nothing, and makes the space finite without a bound on revisions.

Two more things are left out because the order of events already contains them:

- A process that takes no step is paused. What a pause adds is that its server is seen as expired
  while the process lives on: `pauses` in the world allows that.
- A server that has registered has writes in flight, any number of them, from that moment on, in
  each version it has been told to use since. Beginning one is not a step; committing one is.
"""

from typing import Final, NamedTuple

# Versions, which are also bits in sets of versions. The hash of a version is its bit.
NONE: Final = 0
V1: Final = 1
V2: Final = 2
UNKNOWN: Final = 4
"""Among persisted hashes only: objects may be stored in any version."""

VERSION_NAMES: Final = {NONE: "-", V1: "v1", V2: "v2"}

# Processes.
UNSTARTED: Final = 0
HOLDING: Final = 1
"""Runs, and has created its server key."""
REGISTERED: Final = 2
"""Runs, and knows that its registration was committed."""
DEAD: Final = 3

# Server keys.
NEVER: Final = 0
PRESENT: Final = 1
DELETED: Final = 2

# What the collector saw of a server key: nothing that matters, the revision it still has,
# or one that has been renewed since.
UNSEEN: Final = 0
EXPIRED: Final = 1
RENEWED: Final = 2

# A migration.
IDLE: Final = 0
RUNNING: Final = 1
COMPLETE: Final = 2

# A collector that works through a snapshot.
WAITING: Final = 0
HALF: Final = 1
"""Has read the object, or the servers, whichever it reads first."""
READY: Final = 2
"""Has read both, and will write."""


class Life(NamedTuple):
    """One life of one process. Its server id is used by no other life."""

    process: int
    key: int
    sight: int
    entry: int
    """The version in the StorageVersion, or none."""
    encoder: int
    """The version in the encoder key, or none."""
    writes: int
    """The versions in which writes may be in flight, a set."""

    def __str__(self) -> str:
        words = [("unstarted", "holding", "registered", "dead")[self.process]]
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
    """A migration from its start to the end of what its completion claims."""

    phase: int
    target: int
    visited: int
    """The objects that were rewritten, a set."""
    epoch_same: bool
    """The epoch is that of the start (once complete: that of the completion)."""
    revision_same: bool
    """The StorageVersion has the revision of the start; followed only where something reads it."""
    state_same: bool
    """The StorageState has the epoch of the start."""


class Collector(NamedTuple):
    """What a collector holds that works through a snapshot."""

    phase: int
    object_same: bool
    """The StorageVersion has the revision that was read."""
    entries: int
    """The lives that had an entry when it was read, a set."""
    live: int
    """The lives that were alive when servers were listed, a set."""


class State(NamedTuple):
    """The whole world."""

    lives: tuple[Life, ...]
    selected: int
    persisted: int
    """The persisted hashes, a set. Before there is a StorageState: unknown."""
    stored: tuple[int, ...]
    """The version in which each object is stored."""
    past: tuple[int, ...]
    """All versions in which each was ever stored, sets; followed only where something reads it."""
    migration: Migration
    collector: Collector
    noted: int
    """Invariants that the last action broke, a set; see invariants.py."""

    def __str__(self) -> str:
        parts = [f"{number}: {life}" for number, life in enumerate(self.lives) if life.process]
        parts.append(f"stored {' '.join(VERSION_NAMES[version] for version in self.stored)}")
        parts.append(f"persisted {versions(self.persisted)}")
        if self.selected:
            parts.append(f"selected {VERSION_NAMES[self.selected]}")
        if self.migration.phase != IDLE:
            phase = ("", "running", "complete")[self.migration.phase]
            same = "" if self.migration.epoch_same else ", epoch has changed"
            parts.append(f"migration to {VERSION_NAMES[self.migration.target]} {phase}{same}")
        return " | ".join(parts)


NOT_STARTED: Final = Life(UNSTARTED, NEVER, UNSEEN, NONE, NONE, NONE)
GONE: Final = Life(DEAD, DELETED, UNSEEN, NONE, NONE, NONE)
NO_MIGRATION: Final = Migration(IDLE, NONE, 0, False, False, False)
NO_COLLECTION: Final = Collector(WAITING, False, 0, 0)


def versions(chosen: int) -> str:
    """A set of versions in words."""
    names = ((UNKNOWN, "Unknown"), (V1, "v1"), (V2, "v2"))
    return "[" + " ".join(name for bit, name in names if chosen & bit) + "]"


def agreement(lives: tuple[Life, ...]) -> int:
    """The version that all entries say, or none."""
    agreed = NONE
    for life in lives:
        entry = life.entry
        if entry and entry != agreed:
            if agreed:
                return NONE
            agreed = entry
    return agreed
