"""restow's protocol violates no invariant in any order of events; each known mistake violates one.

`pytest tests/model -rP` shows the shortest trace of every mistake.
"""

import sys
from dataclasses import dataclass
from typing import Final

import pytest

from tests.model.actions import Model
from tests.model.invariants import ALL, Invariant, violation_among
from tests.model.protocol import Collection, Compared, Fence, Protocol, World
from tests.model.search import Outcome, itself, search
from tests.model.state import COMPLETE, REGISTERED, RUNNING, V1, V2, State
from tests.sizes import LONG, SIZES

STATES_MAX: Final = 2_000_000 if SIZES is LONG else 250_000
STEPS_MAX: Final = 16

REPORT: Final = Protocol()
VOTE: Final = Protocol(voting=True, fence=Fence.SELECTED)

UPGRADE: Final = World()
CALM: Final = World(pauses=False, delays=False)
PAUSES: Final = World(delays=False)
DELAYS: Final = World(pauses=False)
ALONE: Final = World(slots=((V1,),), pauses=False, delays=False)

SAFE_ALWAYS: Final = {
    "report, upgrade": (REPORT, UPGRADE),
    "report, upgrade and downgrade": (REPORT, World(slots=((V1, V2, V1), (V2,)))),
    "report, three processes": (REPORT, World(slots=((V1,), (V2,), (V2,)))),
    "report, two objects": (REPORT, World(slots=((V1, V2), (V2,)), objects=2)),
    "report, versions that switch": (REPORT, World(slots=((V1,), (V2,)), switches=True)),
    "report, comparing revisions": (
        Protocol(compared=Compared.REVISION),
        World(slots=((V1, V2), (V2,))),
    ),
    "vote, upgrade": (VOTE, UPGRADE),
    "vote, three processes": (VOTE, World(slots=((V1,), (V2,), (V2,)))),
    "vote, two objects": (VOTE, World(slots=((V1,), (V2,)), objects=2)),
}
SAFE_LONG: Final = {
    "report, five lives": (REPORT, World(slots=((V1, V2, V1), (V1, V2)))),
    "report, upgrade, two objects": (REPORT, World(objects=2)),
    "report, upgrade and switches": (REPORT, World(slots=((V1, V2), (V2,)), switches=True)),
    "vote, upgrade and downgrade": (VOTE, World(slots=((V1, V2, V1), (V2,)))),
    "vote, upgrade, two objects": (VOTE, World(objects=2)),
}
SAFE: Final = SAFE_ALWAYS | SAFE_LONG if SIZES is LONG else SAFE_ALWAYS


@dataclass(frozen=True, slots=True)
class Mistake:
    """A wrong protocol, the simplest world that shows it, and the invariant that it violates."""

    protocol: Protocol
    world: World
    breaks: Invariant


LOOSE: Final = Protocol(fence=Fence.NOTHING)

MISTAKES: Final = {
    # No fence.
    "loose: a transaction is delayed beyond the exit of its process": Mistake(
        LOOSE, DELAYS, Invariant.M1
    ),
    "loose: a process is paused beyond its expiry": Mistake(LOOSE, PAUSES, Invariant.M1),
    "loose: atomic collection, and renewal registers again": Mistake(
        Protocol(fence=Fence.NOTHING, collection=Collection.ATOMIC, renewal_registers=True),
        PAUSES,
        Invariant.M1,
    ),
    "loose: a server writes after it was collected": Mistake(LOOSE, PAUSES, Invariant.R1),
    "loose: the selection moves under a write": Mistake(
        Protocol(voting=True, fence=Fence.NOTHING), CALM, Invariant.F1
    ),
    "no barrier": Mistake(Protocol(fence=Fence.NOTHING, barrier=False), ALONE, Invariant.R1),
    # Half a fence.
    "fence on the presence of the own encoder key, not on its value": Mistake(
        Protocol(fence=Fence.OWN_PRESENT),
        World(slots=((V1,),), pauses=False, delays=False, switches=True),
        Invariant.R1,
    ),
    "fence on the selected version, without the own encoder key": Mistake(
        Protocol(voting=True, fence=Fence.SELECTED_ALONE), UPGRADE, Invariant.R1
    ),
    "the selection moves, the entries do not": Mistake(
        Protocol(voting=True, fence=Fence.SELECTED, selection_moves_entries=False),
        CALM,
        Invariant.R1,
    ),
    "an entry is pruned, its encoder key is left": Mistake(
        Protocol(removal_takes_encoder=False), UPGRADE, Invariant.E1
    ),
    "an entry is pruned, and the encoder key that is left lets a write pass": Mistake(
        Protocol(removal_takes_encoder=False), UPGRADE, Invariant.R1
    ),
    "an entry is pruned, and the write that passes pollutes a migration": Mistake(
        Protocol(removal_takes_encoder=False), UPGRADE, Invariant.M1
    ),
    # Collection and membership.
    "collection lists the servers before it reads the object": Mistake(
        Protocol(collection=Collection.SERVERS_FIRST), CALM, Invariant.G2
    ),
    "collection writes without precondition": Mistake(
        Protocol(collection=Collection.NO_PRECONDITION), CALM, Invariant.G2
    ),
    "collection in the right order, but a server is renewed in between": Mistake(
        Protocol(collection=Collection.OBJECT_FIRST), PAUSES, Invariant.G2
    ),
    "collection deletes a server key by another's clock, whatever its revision": Mistake(
        Protocol(collection=Collection.UNGUARDED_DELETE), PAUSES, Invariant.G2
    ),
    "collection takes a failed read for absence": Mistake(
        Protocol(collection=Collection.READ_ERROR), CALM, Invariant.G2
    ),
    "registration before the server key": Mistake(Protocol(key_first=False), ALONE, Invariant.G2),
    "registration before the server key, collection by snapshot": Mistake(
        Protocol(key_first=False, collection=Collection.OBJECT_FIRST), ALONE, Invariant.G2
    ),
    "renewal creates the server key again": Mistake(
        Protocol(renewal_creates=True), UPGRADE, Invariant.G2
    ),
    # Migration.
    "a migration compares nothing at its end": Mistake(
        Protocol(compared=Compared.NOTHING), CALM, Invariant.M1
    ),
    "a migration resumes in another epoch": Mistake(
        Protocol(resume_compares=False), CALM, Invariant.M1
    ),
    "a rewrite of an equal object is not a write": Mistake(
        Protocol(rewrite_writes=False), CALM, Invariant.M1
    ),
    "a migration skips what an old read shows in the target version": Mistake(
        Protocol(skips_by_cache=True), CALM, Invariant.M1
    ),
    # Persisted hashes.
    "registration appends nothing": Mistake(
        Protocol(registration_appends=False), CALM, Invariant.M4
    ),
    "a StorageState begins without Unknown": Mistake(
        Protocol(state_begins_unknown=False), CALM, Invariant.M4
    ),
    "appending a listed hash writes nothing: narrowing races with a rollback": Mistake(
        Protocol(state_always_written=False), CALM, Invariant.M5
    ),
    "appending a listed hash writes nothing: what the rollback stores is not persisted": Mistake(
        Protocol(state_always_written=False), CALM, Invariant.M4
    ),
    "narrowing compares nothing": Mistake(Protocol(narrowing_compares=False), CALM, Invariant.M4),
}


def explore(protocol: Protocol, world: World, wanted: frozenset[Invariant] = ALL) -> Outcome[State]:
    model = Model(protocol, world, wanted)
    return search(
        model.initial(),
        model.successors,
        violation_among(wanted),
        canonical=model.canonical if model.symmetric else itself,
        states_max=STATES_MAX,
    )


def show(outcome: Outcome[State]) -> None:
    sys.stdout.write(f"{outcome}\n")


@pytest.mark.parametrize("name", SAFE)
def test_no_order_of_events_breaks_the_protocol(name: str) -> None:
    """Both fences keep every invariant in every reachable state."""
    outcome = explore(*SAFE[name])
    show(outcome)
    assert outcome.trace is None, f"\n{outcome}"


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_detected(name: str) -> None:
    """Omitting a rule violates its invariant within a few steps."""
    mistake = MISTAKES[name]
    outcome = explore(mistake.protocol, mistake.world, frozenset({mistake.breaks}))
    show(outcome)
    assert outcome.found == mistake.breaks.name, f"{mistake.breaks.value}: {outcome}"
    assert outcome.steps <= STEPS_MAX


def test_loose_is_safe_without_faults() -> None:
    """Without delay, pause and expiry no fence is needed: these three are its purpose."""
    outcome = explore(LOOSE, CALM)
    show(outcome)
    assert outcome.trace is None, f"\n{outcome}"


@pytest.mark.parametrize("protocol", [REPORT, VOTE], ids=["report", "vote"])
def test_an_upgrade_completes(protocol: Protocol) -> None:
    """The invariants do not hold because nothing happens: an upgrade ends with v2 alone."""
    model = Model(protocol, UPGRADE)

    def ended(state: State) -> str | None:
        running = [
            incarnation.entry
            for incarnation in state.incarnations
            if incarnation.process == REGISTERED
        ]
        return "the upgrade has ended" if running == [V2, V2] and state.persisted == V2 else None

    outcome = search(model.initial(), model.successors, ended, states_max=STATES_MAX)
    show(outcome)
    assert outcome.trace is not None
    assert all(version == V2 for version in outcome.trace[-1].state.stored)


FLAPPING: Final = World(slots=((V2,), (V1, V2)), follows_revision=True)


def completes(model: Model, state: State) -> bool:
    """Returns whether the running migration can end without a restart, if all else stays the
    same."""
    waiting = [state]
    while waiting:
        for _, after in model.finish(waiting.pop()):
            if after.migration.phase == COMPLETE:
                return True
            waiting.append(after)
    return False


def agreed_and_running(state: State) -> bool:
    """A migration runs, the agreement is unchanged, and a server is available to rewrite."""
    migration = state.migration
    return (
        migration.phase == RUNNING
        and migration.epoch_same
        and any(
            incarnation.process == REGISTERED and incarnation.encoder == migration.target
            for incarnation in state.incarnations
        )
    )


def find_refused(protocol: Protocol) -> Outcome[State]:
    model = Model(protocol, FLAPPING)

    def refused(state: State) -> str | None:
        if agreed_and_running(state) and not completes(model, state):
            return "agreement holds, and the migration cannot complete"
        return None

    return search(model.initial(), model.successors, refused, states_max=STATES_MAX)


def test_comparing_revisions_restarts_migrations() -> None:
    """A server that starts or stops in agreement restarts a migration that compares revisions."""
    outcome = find_refused(Protocol(compared=Compared.REVISION))
    show(outcome)
    assert outcome.trace is not None
    assert not outcome.trace[-1].state.migration.revision_same


@pytest.mark.parametrize("protocol", [REPORT, VOTE], ids=["report", "vote"])
def test_comparing_epochs_restarts_none(protocol: Protocol) -> None:
    """While the agreement holds, a migration that compares epochs can always complete."""
    outcome = find_refused(protocol)
    show(outcome)
    assert outcome.trace is None, f"\n{outcome}"


def test_an_agreeing_server_flaps_and_the_migration_completes() -> None:
    """A server that agrees registers after the start, and the migration still completes."""
    model = Model(REPORT, FLAPPING)

    def undisturbed(state: State) -> str | None:
        flapped = not state.migration.revision_same
        if agreed_and_running(state) and flapped and completes(model, state):
            return "completes beside a server that came or went"
        return None

    outcome = search(model.initial(), model.successors, undisturbed, states_max=STATES_MAX)
    show(outcome)
    assert outcome.found
