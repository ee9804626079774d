"""Mutants of the trigger: which migrations count, when a state is narrowed."""

from __future__ import annotations

from typing import Any, Final

from restow.apis.resources import STATES
from restow.client import ApiClient, PatchType
from restow.migration.migration_values import MigrationRecord
from restow.migration.trigger import by_discovery, by_reports, executor, hashes
from restow.migration.trigger import migration_rules as trigger_requests
from restow.migration.trigger.reconciler import Reconciler
from restow.migration.trigger.values import Memory
from restow.registry import ownership
from restow.storageversion import rewrite
from tests.support.sim.mutants.mutant import Mutant, Patch

# Modules do not re-export their imports; here those are replaced where they are used.
_acting: Any = executor
_rewrite: Any = rewrite


def clients_narrow(patch: Patch) -> None:
    """Servers let a client remove hashes, based on the status of a migration."""
    patch(ownership, "_narrows", lambda *_: False)


def trusts_the_target(patch: Patch) -> None:
    """The record of a migration is compared by its target alone."""

    def same(one: MigrationRecord, other: object) -> bool:
        return isinstance(other, MigrationRecord) and one.target == other.target

    patch(MigrationRecord, "__eq__", same)
    patch(MigrationRecord, "__ne__", lambda one, other: not same(one, other))


def _any_success_counts(patch: Patch) -> None:
    """A migration has no record: any one that succeeded counts."""

    def same(_one: MigrationRecord, other: object) -> bool:
        return isinstance(other, MigrationRecord)

    patch(MigrationRecord, "__eq__", same)
    patch(MigrationRecord, "__ne__", lambda one, other: not same(one, other))
    patch(trigger_requests, "name_of", lambda resource, _record: f"{resource}-one-for-all")
    clients_narrow(patch)


def does_not_cancel(patch: Patch) -> None:
    """Migrations continue whatever servers agree on now."""

    async def delete(*_: Any, **__: Any) -> bool:
        return False

    patch(executor.Executor, "_delete_migration", delete)


def narrows_blindly(patch: Patch) -> None:
    """The trigger narrows instead of the servers, whatever the current state is."""

    async def record_nothing(*_: Any) -> bool:
        return False

    async def put_status(self: Any, base: Any, found: Any) -> Any:
        body = {"status": _acting.status_body(found)}
        client: ApiClient = self._client
        return await client.patch(
            STATES,
            base["metadata"]["name"],
            body,
            patch_type=PatchType.MERGE,
            subresource="status",
        )

    patch(executor.Executor, "_put_status", put_status)
    patch(_rewrite, "record_clean_pass", record_nothing)
    clients_narrow(patch)


def _forgets_what_definitions_list(patch: Patch) -> None:
    """A version that was withdrawn before any server wrote it stays in storedVersions."""

    async def lists_more(*_: Any) -> bool:
        return False

    patch(Reconciler, "_lists_more", lists_more)


def _trusts_two_periods(patch: Patch) -> None:
    """A new trigger accepts a heartbeat for as long as a running one, as the reference does."""

    def is_stale(heartbeat: Any, _memory: Any, **options: Any) -> bool:
        return hashes.is_stale(heartbeat, Memory(), **options)

    patch(by_discovery, "is_stale", is_stale)
    patch(by_reports, "is_stale", is_stale)


MUTANTS: Final = (
    Mutant("any-success-counts", "M5", "migrations have no target", _any_success_counts),
    Mutant("clients-narrow", "M5", "a client removes hashes from a state", clients_narrow),
    Mutant("narrows-blindly", "M5", "narrowed without a precondition", narrows_blindly),
    Mutant("listed-for-ever", "L3", "storedVersions of CRDs is not read", _forgets_what_definitions_list),
    Mutant("trusts-two-periods", "M7", "old states are accepted at the start", _trusts_two_periods),
)  # fmt: skip
