"""Mutants of writes: the fence that each carries, and the barrier before the first."""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import status
from restow.endpoints.barrier import WriteBarrier
from restow.registry import committer
from restow.registry.committer import ObjectCommitter
from restow.registry.encoding import Encoding
from restow.registry.write_plans import CreatePlan
from restow.storage.checks import holds
from restow.storage.interface import (
    Transaction,
)
from restow.storageversion.encoding_table import EncodingTable
from restow.storageversion.registration_planner import ReportPlanner
from tests.support.sim.mutants.mutant import Mutant, Patch


def no_fence(patch: Patch) -> None:
    def transaction(plan: Any, _encoding: Any, write: Any, *, in_background: bool = False) -> Any:
        return Transaction((plan.guard,), (write,), in_background)

    patch(committer, "_transaction", transaction)


def _fence_on_updates(patch: Patch) -> None:
    fenced = committer._transaction

    def transaction(plan: Any, encoding: Any, write: Any, *, in_background: bool = False) -> Any:
        if isinstance(plan, CreatePlan):
            return Transaction((plan.guard,), (write,), in_background)
        return fenced(plan, encoding, write, in_background=in_background)

    patch(committer, "_transaction", transaction)


def _checks_before_it_writes(patch: Patch) -> None:
    """The server checks first, and then writes without a guard."""
    fenced = committer._transaction
    transact = ObjectCommitter._transact

    async def check_and_transact(self: ObjectCommitter, plan: Any, runner: Any) -> Any:
        encoding = self._encoding(plan.resource)
        for guard in encoding.guards:
            item = await self._storage.get(guard.key)
            if not holds(guard, item):
                await self._policy.refresh(plan.resource)
        return await transact(self, plan, runner)

    def transaction(plan: Any, encoding: Any, write: Any, *, in_background: bool = False) -> Any:
        whole = fenced(plan, encoding, write, in_background=in_background)
        return Transaction(whole.guards[:1], whole.writes, in_background)

    patch(ObjectCommitter, "_transact", check_and_transact)
    patch(committer, "_transaction", transaction)


def _no_barrier(patch: Patch) -> None:
    """Writes are accepted from the start."""

    def encoding(self: EncodingTable, resource: Any) -> Encoding:
        found = self.find(resource)
        return found or Encoding(resource.storage_api_version, ())

    patch(WriteBarrier, "__call__", lambda *_: None)
    patch(EncodingTable, "encoding", encoding)


def _fence_failure_is_a_conflict(patch: Patch) -> None:
    async def refresh(self: EncodingTable, resource: Any) -> None:
        if self._on_stale is not None:
            await self._on_stale(resource)
        raise status.conflict(resource.kind.group_resource, "it")

    patch(EncodingTable, "refresh", refresh)


def _no_fence_for_custom_resources(patch: Patch) -> None:
    guarded = ReportPlanner._guards

    def guards(self: ReportPlanner, resource: Any, entry: Any) -> Any:
        return () if resource.origin is not None else guarded(self, resource, entry)

    patch(ReportPlanner, "_guards", guards)


MUTANTS: Final = (
    Mutant("no-fence", "R1 G5 M1", "writes carry no fence", no_fence),
    Mutant("fence-on-updates", "R1 F1", "creates carry no fence", _fence_on_updates),
    Mutant("check-then-write", "R1 F1", "the fence is checked before the write", _checks_before_it_writes),
    Mutant("no-barrier", "R1 R2", "written before it is reported", _no_barrier),
    Mutant("fence-is-conflict", "F2", "a failed fence is a 409", _fence_failure_is_a_conflict),
    Mutant("custom-unfenced", "R6", "custom resources carry no fence", _no_fence_for_custom_resources),
)  # fmt: skip
