"""The invariants of every state."""

from collections.abc import Callable
from enum import Enum
from typing import Final

from tests.model.state import COMPLETE, EXPIRED, PRESENT, REGISTERED, UNKNOWN, State

# Violated by an action rather than by a state: recorded by the action in its successor state.
UNREGISTERED_WRITE: Final = 1
UNSELECTED_WRITE: Final = 2
LIVE_COLLECTED: Final = 4


class Invariant(Enum):
    """The invariants by name, with their descriptions."""

    R1 = "a write commits only if its server's entry says that version at that moment"
    E1 = "an entry exists if and only if its encoder key does, with the same version"
    F1 = "strict voting: a write commits only in the version selected at that moment"
    G2 = "no live server is collected, and one that registered keeps its entry"
    M1 = "complete for (target, epoch), and that epoch still: all is stored in the target"
    M4 = "the hash of every stored version is persisted, or Unknown is"
    M5 = "narrowing leaves the hash of every version that some server may still write"


ALL: Final = frozenset(Invariant)

NOTES: Final = {
    Invariant.R1: UNREGISTERED_WRITE,
    Invariant.F1: UNSELECTED_WRITE,
    Invariant.G2: LIVE_COLLECTED,
}


def entries_match_encoders(state: State) -> bool:
    return all(incarnation.entry == incarnation.encoder for incarnation in state.incarnations)


def live_keep_entries(state: State) -> bool:
    """Live: the key is present, and newer than the value that the collector considers expired."""
    for incarnation in state.incarnations:
        live = (
            incarnation.process == REGISTERED
            and incarnation.key == PRESENT
            and incarnation.sight != EXPIRED
        )
        if live and not incarnation.entry:
            return False
    return True


def completion_holds(state: State) -> bool:
    migration = state.migration
    if migration.phase != COMPLETE or not migration.epoch_same:
        return True
    return all(version == migration.target for version in state.stored)


def stored_is_persisted(state: State) -> bool:
    if state.persisted & UNKNOWN:
        return True
    return all(version & state.persisted for version in state.stored)


def writable_is_persisted(state: State) -> bool:
    persisted = state.persisted
    return all(
        not incarnation.encoder or incarnation.encoder & persisted
        for incarnation in state.incarnations
    )


HOLDS: Final[dict[Invariant, Callable[[State], bool]]] = {
    Invariant.E1: entries_match_encoders,
    Invariant.G2: live_keep_entries,
    Invariant.M1: completion_holds,
    Invariant.M4: stored_is_persisted,
    Invariant.M5: writable_is_persisted,
}


def notes_of(wanted: frozenset[Invariant]) -> int:
    """Returns the notes that must be recorded to check only these invariants."""
    return sum(NOTES.get(invariant, 0) for invariant in wanted)


def violation_among(wanted: frozenset[Invariant]) -> Callable[[State], str | None]:
    """Returns a function that names the first of these invariants that a state violates."""
    order = [invariant for invariant in Invariant if invariant in wanted]
    checks = [(invariant.name, HOLDS[invariant]) for invariant in order if invariant in HOLDS]
    notes = [(invariant.name, NOTES[invariant]) for invariant in order if invariant in NOTES]

    def violation(state: State) -> str | None:
        if state.noted:
            for name, note in notes:
                if state.noted & note:
                    return name
        for name, holds in checks:
            if not holds(state):
                return name
        return None

    return violation
