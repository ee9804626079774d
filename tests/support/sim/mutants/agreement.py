"""Mutants of the agreement of servers, and of the persisted versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from restow.storageversion import changes, registrar, registration_planner
from restow.storageversion.changes import MirrorView
from restow.storageversion.encoding_table import EncodingTable, LooseTable
from restow.storageversion.registrar import Registrar
from restow.storageversion.registration_planner import VotePlanner
from tests.support.sim.mutants.mutant import Mutant, Patch
from tests.support.sim.mutants.trigger import trusts_the_target

# Modules do not re-export their imports; here those are replaced where they are used.
_changes: Any = changes


def _epoch_forgets_disagreement(patch: Patch) -> None:
    """The epoch grows when another version is agreed on, and not when agreement is lost."""
    made = _changes.report_after

    def report_after(before: Any, entries: Any, **options: Any) -> Any:
        after = made(before, entries, **options)
        is_same = after.agreement is None or before.agreement is None
        return replace(after, epoch=before.epoch) if is_same else after

    patch(changes, "report_after", report_after)


def _record_only_what_is_new(patch: Patch) -> None:
    """A state that lists the version already is not written."""

    def state_writes(view: Any, state: Any, **options: Any) -> Any:
        if view.state is not None and state is not None:
            options["is_moved"] = False
            if set(state.persisted) <= set(view.state.state.persisted):
                return []
        return kept(view, state, **options)

    kept = changes._state_writes
    patch(changes, "_state_writes", state_writes)
    trusts_the_target(patch)


def _records_nothing(patch: Patch) -> None:
    """Registration does not append to the persisted hashes."""
    kept = _changes.state_after

    def state_after(before: Any, **facts: Any) -> Any:
        return kept(before, **{**facts, "written": () if before is not None else facts["written"]})

    patch(changes, "state_after", state_after)


def _selects_by_a_stale_list(patch: Patch) -> None:
    patch(VotePlanner, "_vote_guards", lambda *_: ())
    patch(VotePlanner, "_gone", lambda *_: ())
    patch(MirrorView, "guards", lambda _self: [])


def _reads_what_it_cannot(patch: Patch) -> None:
    """A server registers despite values, and servers' versions, that it cannot read."""

    async def check_readable(*_: Any) -> None:
        return None

    patch(Registrar, "_check_readable", check_readable)
    patch(Registrar, "_check_understood", lambda *_: None)
    patch(registrar, "undecodable", lambda *_: [])


def _trusts_its_watch_for_ever(patch: Patch) -> None:
    patch(LooseTable, "encoding", EncodingTable.encoding)


def _registers_for_any_definition(patch: Patch) -> None:
    """A custom resource is registered whatever the state of its CRD."""
    patch(registration_planner, "_origin_guards", lambda _resource: ())


MUTANTS: Final = (
    Mutant("epoch-skips-none", "M2", "losing agreement is no change", _epoch_forgets_disagreement),
    Mutant("append-is-noop", "M4 M5", "a listed version is not recorded again", _record_only_what_is_new),
    Mutant("nothing-recorded", "M4", "registration does not append", _records_nothing),
    Mutant("stale-vote", "F6", "selected from a stale list", _selects_by_a_stale_list, "strict"),
    Mutant("blind-reader", "F8", "registers despite unreadable values", _reads_what_it_cannot),
    Mutant("loose-for-ever", "F4", "a silent watch is trusted", _trusts_its_watch_for_ever, "loose"),
    Mutant("definition-unguarded", "R6", "registered for a removed CRD", _registers_for_any_definition),
)  # fmt: skip
