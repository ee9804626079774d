"""Mutants of advice: answers of preflight, upgrades and status.

Each of these is detected by a scenario (`tests.support.sim.advice.scenarios`), not by a seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from restow.apis.storage_scan import StoredCount
from restow.localcluster import rolling_upgrade
from restow.migration import migration_objects, overview
from restow.migration.names import PROOF_ANNOTATION
from restow.migration.preflight import Reason, rules, stored_rules
from restow.migration.trigger import observations
from restow.storageversion import changes, coordinator, object_codec
from tests.support.sim.mutants.mutant import Mutant, Patch
from tests.support.sim.mutants.trigger import clients_narrow

# Modules do not re-export their imports; here those are replaced where they are used.
_overview: Any = overview
_wire: Any = object_codec
_coordinator: Any = coordinator
_seeing: Any = observations


def _nothing(*_: Any, **__: Any) -> tuple[Any, ...]:
    return ()


def _without(found: Iterable[Any], reason: Reason) -> Iterator[Any]:
    return (each for each in found if each.reason is not reason)


def _ignores_the_scan(patch: Patch) -> None:
    patch(rules, "stored_findings", _nothing)


def _skips_what_is_no_object(patch: Patch) -> None:
    kept = stored_rules._readable

    def readable(rows: Sequence[StoredCount], *others: Any) -> Iterator[Any]:
        whole = [row for row in rows if row.problem != "NotDecodable"]
        return kept(whole, *others) if whole else iter(())

    patch(stored_rules, "_readable", readable)


def _ignores_what_has_no_owner(patch: Patch) -> None:
    kept = stored_rules._without_owner
    patch(stored_rules, "_without_owner", lambda *args: _without(kept(*args), Reason.UNOWNED))


def _ignores_removed_kinds(patch: Patch) -> None:
    kept = stored_rules._without_owner
    patch(stored_rules, "_without_owner", lambda *args: _without(kept(*args), Reason.VANISHING))


def _ignores_locations(patch: Patch) -> None:
    kept = stored_rules._readable

    def readable(rows: Any, owner: Any, *others: Any) -> Iterator[Any]:
        return kept(rows, replace(owner, is_namespaced=None), *others)

    patch(stored_rules, "_readable", readable)


def _ignores_locations_of_servers(patch: Patch) -> None:
    patch(rules, "_same_locations", _nothing)


def _lets_crds_become_built_in(patch: Patch) -> None:
    patch(rules, "_changed_owner", _nothing)


def _ignores_rollback(patch: Patch) -> None:
    patch(rules, "_rollback", _nothing)


def _forgets_absent_servers(patch: Patch) -> None:
    patch(rolling_upgrade, "_absent", lambda *_: [])


def _ignores_unreported_writers(patch: Patch) -> None:
    patch(rules, "_writers", _nothing)
    patch(rules, "_whole", _nothing)


def _leaves_no_mark(patch: Patch) -> None:
    """A server with the gate off marks no StorageState, and its record is not kept either."""

    async def mark_nothing(*_: Any) -> None:
        return None

    patch(_coordinator, "mark_states", mark_nothing)
    patch(changes, "_text", lambda _item: "")


def _takes_empty_for_known(patch: Patch) -> None:
    patch(_wire, "persisted_hashes", lambda found: tuple(found or ()))


def _verifies_by_annotation(patch: Patch) -> None:
    """The trigger narrows a StorageState for any client that may write migrations."""

    def is_proven(request: Any) -> bool:
        return PROOF_ANNOTATION in migration_objects.marks_of(request)

    patch(migration_objects, "is_proven", is_proven)
    patch(_seeing, "VERIFIED_BY_SERVERS", "")
    clients_narrow(patch)


def _shows_states_alone(patch: Patch) -> None:
    patch(_overview, "with_evidence", lambda resources, *_: list(resources))


MUTANTS: Final = (
    Mutant("scan-ignored", "S1", "preflight answers from StorageStates alone", _ignores_the_scan),
    Mutant("unreadable-is-skipped", "S1", "values that are not objects are not counted", _skips_what_is_no_object),
    Mutant("unowned-ignored", "S1", "values that no resource owns are not named", _ignores_what_has_no_owner),
    Mutant("vanishing-ignored", "S1", "objects of kinds that the target lacks do not count", _ignores_removed_kinds),
    Mutant("location-not-compared", "S1", "a value is looked up by its kind and not by its key", _ignores_locations),
    Mutant("servers-elsewhere-ignored", "S1", "servers may store a kind at other keys than the target", _ignores_locations_of_servers),
    Mutant("crd-hides-built-in", "S1", "a CRD and a built-in kind of one name do not collide", _lets_crds_become_built_in),
    Mutant("way-back-ignored", "S1", "servers need not read what the target writes", _ignores_rollback),
    Mutant("away-server-forgotten", "S1", "a step is judged by the participating servers alone", _forgets_absent_servers),
    Mutant("unreported-writer-ignored", "S1", "servers with the gate off do not count", _ignores_unreported_writers),
    Mutant("off-mode-unmarked", "S2", "a server with the gate off leaves no mark", _leaves_no_mark),
    Mutant("empty-state-as-known", "S2", "an empty list of hashes means that nothing is stored", _takes_empty_for_known),
    Mutant("verification-by-annotation", "S2", "any text in an annotation verifies a migration", _verifies_by_annotation),
    Mutant("status-from-states", "S3", "status does not read raw values", _shows_states_alone),
)  # fmt: skip
CAUGHT_BY: Final = {
    "scan-ignored": "raw-unknown-version",
    "unreadable-is-skipped": "raw-garbage",
    "unowned-ignored": "raw-unknown-prefix",
    "vanishing-ignored": "built-in-kind-vanishes",
    "location-not-compared": "raw-other-location",
    "servers-elsewhere-ignored": "scope-changes-without-objects",
    "crd-hides-built-in": "crd-becomes-built-in",
    "way-back-ignored": "servers-cannot-read-target",
    "away-server-forgotten": "server-away-in-upgrade",
    "unreported-writer-ignored": "gate-off-before-first-write",
    "off-mode-unmarked": "gate-off-and-on",
    "empty-state-as-known": "state-emptied",
    "verification-by-annotation": "verification-forged",
    "status-from-states": "raw-garbage",
}
"""The scenario that detects each mutant."""
