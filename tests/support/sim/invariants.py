"""All invariants, and where each is checked.

A row is evaluated in every simulated world (`is_simulated`), in every world with advice
(`is_advised`), or covered by the tests that it names, or by several of these. A test keeps this
table complete: every row exists, every test exists, and a campaign in which a simulated row was
never evaluated is void.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Row:
    """One invariant."""

    id: str
    text: str
    is_simulated: bool = False
    tests: tuple[str, ...] = ()
    is_advised: bool = False


_SIM: Final = True
_COORDINATION: Final = "tests/unit/storageversion"
_RANDOM_WORLDS: Final = (
    "tests/unit/migration/trigger/test_random_worlds.py::test_promises_hold_whatever_happens"
)
_BARRIER: Final = "tests/unit/endpoints/test_barrier.py"
_FAULTS: Final = "tests/e2e/migration/test_faults.py"
_ENGINE: Final = "tests/unit/migration/migrator/test_engine.py"
_ADVICE: Final = ("tests/simulation/test_advice.py::test_a_scenario_violates_no_invariant",)
_RULES: Final = "tests/unit/migration/trigger/test_rules.py"

ROWS: Final = (
    # Registration and barrier.
    Row("R1", "a server has reported a version before it commits a write in it", _SIM),
    Row("R2", "before registration, only writes on the allow list succeed", tests=(
        f"{_BARRIER}::test_every_verb_and_subresource", f"{_BARRIER}::test_every_path_and_method")),
    Row("R3", "only servers write their reports", _SIM, (
        "tests/e2e/storageversion/test_ownership.py::test_clients_cannot_write_server_owned_records",)),
    Row("R4", "an identity belongs to one process", _SIM),
    Row("R5", "a report without entries agrees on nothing", _SIM, (
        f"{_COORDINATION}/test_rules.py::test_agreement_requires_equal_versions_and_keys",)),
    Row("R6", "a custom resource is written as reported, also by writes in flight", _SIM, (
        "tests/e2e/custom/test_webhook_switch.py::test_writes_under_way",)),
    Row("R7", "the barrier has no other exceptions", tests=(
        f"{_BARRIER}::test_no_other_exceptions",)),
    # Strict and loose.
    Row("F1", "with a strict vote, objects are stored in the selected version", _SIM),
    Row("F2", "a failed fence is never returned as a conflict", _SIM),
    Row("F3", "a write rejected by the fence gets an error in the end, without partial effects", _SIM),
    Row("F4", "with a loose vote, a server that cannot read the vote stops writing", _SIM),
    Row("F5", "with a loose vote, a migration waits for the slowest write", tests=(
        "tests/scenarios/trigger/test_trigger_scenarios.py::test_a_scenario_matches_its_expectations",
        f"{_RULES}::test_servers_report_the_loose_mode")),
    Row("F6", "another version is selected only when all voters accept it", _SIM),
    Row("F7", "a server that cannot write the selected version does not write", tests=(
        "tests/e2e/storageversion/test_upgrades.py::test_release_that_cannot_read_stored_versions",
        "tests/scenarios/test_scenarios.py::test_a_scenario_matches_its_expectations")),
    Row("F8", "a participating server can read all stored objects", _SIM),
    Row("F9", "a lost reply is resolved, and no write is refused because of itself", _SIM),
    # Agreement, membership, collection.
    Row("G1", "a common version is that of all entries", _SIM),
    Row("G2", "no server is removed that has renewed its lease in time", _SIM),
    Row("G3", "an error is never taken for an expired lease", tests=(
        f"{_COORDINATION}/test_garbage_collector.py::test_an_error_is_never_taken_for_an_expired_lease",)),
    Row("G4", "no report is deleted in which a participating server has an entry", _SIM),
    Row("G5", "a server whose lease has expired writes nothing more", _SIM, (
        "tests/e2e/storageversion/test_pauses.py::test_paused_server",)),
    Row("G6", "a reporting server is a member, and no membership key returns", _SIM),
    Row("G7", "entries of expired servers are removed in time", _SIM, (
        "tests/e2e/storageversion/test_server_exit.py::test_entries_of_a_killed_server_are_removed",)),
    Row("G8", "resources that share a store have one report", tests=(
        f"{_BARRIER}::test_aliases_open_together",
        f"{_RULES}::test_objects_served_by_two_groups_are_migrated_once")),
    Row("G9", "a server that writes a version can read it", _SIM),
    Row("G10", "servers that start together lose no entry", tests=(
        f"{_COORDINATION}/test_agreement.py::test_five_servers_start_together_and_lose_no_entry",
        "tests/e2e/storageversion/test_start.py::test_many_servers_start_together")),
    Row("G11", "conditions change when their content does", tests=(
        f"{_COORDINATION}/test_rules.py::test_conditions_have_the_status_and_its_time",)),
    Row("G12", "a server that has not renewed its lease in time sends no write", _SIM, (
        f"{_COORDINATION}/test_write_lease.py::test_a_server_with_a_blocked_loop_refuses_writes",
        "tests/e2e/storageversion/test_late_renewals.py::test_a_paused_server_refuses_its_queue")),
    # Migration and state.
    Row("M1", "a verified migration is correct, while its agreement lasts", _SIM),
    Row("M2", "a proof is for one agreement, which was never interrupted", _SIM, (
        f"{_COORDINATION}/test_rules.py::test_an_unchanged_epoch_means_an_unchanged_agreement",)),
    Row("M3", "without agreement nothing is rewritten for long", _SIM),
    Row("M4", "versions that are stored, or may be written, are listed", _SIM),
    Row("M5", "the list is reduced only by a proof for the current agreement", _SIM, (
        f"{_RULES}::test_a_late_migration_of_a_paused_controller_never_counts",)),
    Row("M6", "heartbeat, current version and list are one write", tests=(_RANDOM_WORLDS,)),
    Row("M7", "a state that was not observed for too long is unknown", _SIM, (
        _RANDOM_WORLDS, f"{_RULES}::test_a_controller_starts_only_after_a_stale_state_is_reset")),
    Row("M8", "a rewrite writes, unless the stored bytes are current", tests=(
        f"{_COORDINATION}/test_rewrite.py::test_a_pass_leaves_nothing_in_another_version",)),
    Row("M9", "a rewrite undoes no update and restores no deleted object", _SIM, (
        f"{_COORDINATION}/test_rewrite_mutants.py::test_every_guard_is_needed",)),
    Row("M10", "a changed object is not assumed to be migrated", tests=(
        f"{_COORDINATION}/test_rewrite_mutants.py::test_mutants_are_found",)),
    Row("M11", "every object is visited, despite interruptions", tests=(
        f"{_ENGINE}::test_killed_at_every_write",
        f"{_ENGINE}::test_a_position_of_another_target_is_not_used")),
    Row("M12", "two migrators or triggers at once do no harm", _SIM, (
        f"{_FAULTS}::test_two_processes_at_once", f"{_FAULTS}::test_leader_is_paused")),
    Row("M13", "an unreadable object fails by name", tests=(
        f"{_FAULTS}::test_object_that_cannot_be_read",
        f"{_COORDINATION}/test_rewrite.py::test_an_unreadable_object_fails_by_name")),
    Row("M14", "a change back and forth between two reads is detected", _SIM, (_RANDOM_WORLDS,)),
    Row("M15", "a rollback in the middle ends with a second whole pass", tests=(
        "tests/scenarios/trigger/test_trigger_scenarios.py::test_a_scenario_matches_its_expectations",
        f"{_FAULTS}::test_server_is_rolled_back")),
    Row("M16", "a deleted migration stops at its next page", _SIM, (
        f"{_FAULTS}::test_the_migration_is_deleted_in_the_middle",)),
    Row("M17", "a changed key is handled like a changed version", tests=(
        "tests/scenarios/test_chaos.py::test_keys_change_whatever_happens",
        "tests/scenarios/test_key_mutants.py::test_a_cluster_without_the_rule_violates_an_invariant")),
    # Discovery.
    Row("D1", "the hash in discovery is that of the written version", _SIM),
    Row("D2", "one version has one hash, everywhere and always", tests=(
        "tests/unit/apimachinery/test_version_hash.py::test_known_hashes",)),
    Row("D3", "stored resources have a hash, subresources have none", tests=(
        "tests/conformance/api/test_discovery.py::test_hashes",)),
    Row("D4", "another hash leads to a migration", _SIM),
    # Store and API.
    Row("A1", "an update is based on what its writer has read", _SIM, (
        "tests/conformance/storage/test_state_machine.py::*",)),
    Row("A2", "acknowledged writes are stored, as they were acknowledged", _SIM, (
        "tests/unit/storage/sqlite/test_power_cut.py::test_nothing_acknowledged_is_lost",
        "tests/unit/storage/sqlite/test_crash.py::test_killed_writers_lose_nothing")),
    Row("A3", "a watch omits nothing, repeats nothing, and is in order", _SIM),
    Row("A4", "a list is the stored state at its revision", _SIM),
    Row("A5", "a client never reads an older state than before", _SIM),
    Row("A6", "a full disk loses nothing, and writes work again when there is space", tests=(
        "tests/unit/storage/sqlite/test_full_disk.py::test_a_file_system_that_is_full",)),
    Row("A7", "a failed sync ends the handle", tests=(
        "tests/unit/storage/sqlite/test_faults.py::test_a_failed_sync_ends_the_handle",)),
    Row("A8", "unreadable objects are reported, not hidden", tests=(
        f"{_ENGINE}::test_an_undecodable_object_is_named",)),
    # When all faults have ended.
    Row("L1", "every server is registered and ready", _SIM),
    Row("L2", "the common version is right", _SIM),
    Row("L3", "all objects are stored in it, and verified", _SIM),
    Row("L4", "migrations complete while clients keep writing", _SIM, (
        f"{_FAULTS}::test_ends_under_writes",)),
    Row("L5", "registered servers keep writing while another cannot", _SIM),
    Row("L6", "servers that block each other all register in the end", _SIM, (
        f"{_COORDINATION}/test_agreement.py::test_five_servers_start_together_and_lose_no_entry",)),
    Row("L7", "entries of expired servers are removed", _SIM),
    Row("L8", "while reports cannot be written, registered servers keep writing", _SIM),
    # Advice, compared with the raw store.
    Row("S1", "a release that is called safe reads every raw value, also those written afterwards",
        tests=_ADVICE, is_advised=True),
    Row("S2", "a StorageState lists the version of every raw value, or Unknown",
        tests=_ADVICE, is_advised=True),
    Row("S3", "what status calls ok is stored as it is written, and can be read",
        tests=_ADVICE, is_advised=True),
    Row("S4", "a healthy cluster gets safe for the release that it runs, within two minutes",
        tests=_ADVICE, is_advised=True),
    Row("S5", "preflight answers the same on every server", tests=_ADVICE, is_advised=True),
    Row("S6", "a rollback that nothing in the store blocks is possible",
        tests=_ADVICE, is_advised=True),
    Row("S7", "a store that was replaced is neither read nor written until it is accepted",
        tests=_ADVICE, is_advised=True),
    Row("S8", "a watch from a revision of a store that was replaced ends with 410",
        tests=_ADVICE, is_advised=True),
    Row("S9", "an encryption key that may be removed encrypts nothing, also afterwards",
        tests=_ADVICE, is_advised=True),
    Row("S10", "every server that has registered a kind can decrypt all its values",
        tests=_ADVICE, is_advised=True),
)  # fmt: skip
BY_ID: Final = {row.id: row for row in ROWS}
ADVISED: Final = tuple(row.id for row in ROWS if row.is_advised)
"""Rows that every campaign of worlds with advice must have evaluated."""
SIMULATED: Final = tuple(row.id for row in ROWS if row.is_simulated)
"""Rows that every campaign must have evaluated."""
