"""What would go wrong if a rule were left out: switches of the simulator's build.

Each mutant is the production code with one rule of it broken, as a naive build would have it: those
that a search has found in the proposals, the departures of the reference code from them, and the
variants that our own design rejects. A world in which nothing breaks is a blind spot of the
workload, so each must be caught.

Nothing of this is in the production code: attributes are replaced while a world is played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from restow.api.resources import STATES
from restow.apiserver import assembly
from restow.client import ApiClient, PatchType
from restow.controllers.migrator import agreement as migrator_agreement
from restow.controllers.migrator import engine, stored_versions
from restow.controllers.migrator.following import Followed
from restow.controllers.trigger import acting
from restow.controllers.trigger import following as trigger_following
from restow.controllers.trigger import requests as trigger_requests
from restow.controllers.trigger.looking import Looker
from restow.controllers.trigger.values import Record
from restow.coordination import changes, membership, planning, registrar
from restow.coordination.changes import View
from restow.coordination.collector import Collector
from restow.coordination.coordinator import Coordinator
from restow.coordination.encoding_table import EncodingTable, LooseTable
from restow.coordination.identity import SERVERS_PREFIX, server_key, server_of
from restow.coordination.membership import Membership
from restow.coordination.planning import ReportPlanner, VotePlanner
from restow.coordination.registrar import Registrar
from restow.coordination.rewrite import Rewriter, Standing
from restow.coordination.rewrite_page import PageWork
from restow.coordination.rewrite_plan import Aborted, RewritePlan
from restow.coordination.roster import Roster
from restow.coordination.wire import lease_key
from restow.machinery import status
from restow.resources import committing, ownership
from restow.resources.caches import Caches
from restow.resources.committing import Committer
from restow.resources.encoding import Encoding
from restow.resources.plans import CreatePlan
from restow.serving.barrier import WriteBarrier
from restow.serving.handlers import rewriting
from restow.storage.checks import holds
from restow.storage.errors import StorageError
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Key,
    Outcome,
    Present,
    Storage,
    Transaction,
    Unknown,
)
from restow.testing.sim.plan import make_plan

# What they import is not theirs to give away; here it is replaced where it is used.
_acting: Any = acting
_changes: Any = changes
_engine: Any = engine
_membership: Any = membership
_stored_versions: Any = stored_versions
_trigger_following: Any = trigger_following

LIST_IS_GOOD_FOR: Final = 50
"""Questions."""
Patch = Callable[[Any, str, Any], None]
"""Replaces an attribute for as long as the mutant lives."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule that is left out."""

    name: str
    rows: str
    """The promises that it breaks, or one of them."""
    what: str
    apply: Callable[[Patch], None]
    mode: str = ""
    """The only way to coordinate in which it makes a difference; empty: any."""


# The fence.


def _no_fence(patch: Patch) -> None:
    def transaction(plan: Any, _encoding: Any, write: Any, *, in_background: bool = False) -> Any:
        return Transaction((plan.guard,), (write,), in_background)

    patch(committing, "_transaction", transaction)


def _fence_on_updates(patch: Patch) -> None:
    fenced = committing._transaction

    def transaction(plan: Any, encoding: Any, write: Any, *, in_background: bool = False) -> Any:
        if isinstance(plan, CreatePlan):
            return Transaction((plan.guard,), (write,), in_background)
        return fenced(plan, encoding, write, in_background=in_background)

    patch(committing, "_transaction", transaction)


def _checks_before_it_writes(patch: Patch) -> None:
    """The server looks whether it may, and then writes."""
    fenced = committing._transaction
    commit = Committer.carry_out

    async def carry_out(self: Committer, plan: Any, *, is_rewrite: bool = False) -> Any:
        encoding = self._encoding(plan.resource)
        for guard in encoding.guards:
            item = await self._storage.get(guard.key)
            if not holds(guard, item):
                await self._policy.refresh(plan.resource)
        return await commit(self, plan, is_rewrite=is_rewrite)

    def transaction(plan: Any, encoding: Any, write: Any, *, in_background: bool = False) -> Any:
        whole = fenced(plan, encoding, write, in_background=in_background)
        return Transaction(whole.guards[:1], whole.writes, in_background)

    patch(Committer, "carry_out", carry_out)
    patch(committing, "_transaction", transaction)


def _no_barrier(patch: Patch) -> None:
    """Writes are taken from the first moment on."""

    def encoding(self: EncodingTable, resource: Any) -> Encoding:
        found = self.find(resource)
        return found or Encoding(resource.storage_api_version, ())

    patch(WriteBarrier, "__call__", lambda *_: None)
    patch(EncodingTable, "encoding", encoding)


def _fence_failure_is_a_conflict(patch: Patch) -> None:
    async def refresh(self: EncodingTable, resource: Any) -> None:
        if self.on_stale is not None:
            await self.on_stale(resource)
        raise status.conflict(resource.kind.group_resource, "it")

    patch(EncodingTable, "refresh", refresh)


def _no_fence_for_custom_resources(patch: Patch) -> None:
    guarded = ReportPlanner._guards

    def guards(self: ReportPlanner, resource: Any, entry: Any) -> Any:
        return () if resource.origin is not None else guarded(self, resource, entry)

    patch(ReportPlanner, "_guards", guards)


# Membership and collection.


def _registers_without_membership(patch: Patch) -> None:
    patch(ReportPlanner, "_own_guard", lambda _self: Absent(Key("/restow/nothing")))


def _collects_by_a_list(patch: Patch) -> None:
    """Who lives is taken from a list that was read before, and not asked when an entry goes."""
    changed = changes._encoder_changes
    lists: dict[int, tuple[int, set[str]]] = {}

    def has(self: Roster, server_id: Any) -> bool:
        asked, known = lists.get(id(self), (0, set()))
        if asked % LIST_IS_GOOD_FOR == 0:
            known = {str(each) for each in self.servers()}
        lists[id(self)] = asked + 1, known
        return server_id in known

    patch(Roster, "has", has)

    def encoder_changes(*args: Any, **options: Any) -> Any:
        _, found = changed(*args, **options)
        return [], found

    patch(changes, "_encoder_changes", encoder_changes)


def _changes_without_precondition(patch: Patch) -> None:
    patch(View, "guards", lambda _self: [])


def _removes_reports_without_precondition(patch: Patch) -> None:
    made = changes.change

    def change(view: Any, entries: Any, **options: Any) -> Any:
        found = made(view, entries, **options)
        if entries or not found.transaction.writes:
            return found
        return replace(found, transaction=Transaction((), found.transaction.writes))

    patch(planning, "change", change)


def _ends_a_server_without_looking(patch: Patch) -> None:
    """A server that was silent for long is removed, even if it has shown itself just now."""

    async def end(self: Collector, server_id: Any, _revision: Any) -> None:
        writes = (Delete(server_key(server_id)), Delete(lease_key(server_id)))
        outcome = await self._storage.commit(Transaction((), writes))
        if isinstance(outcome, Done):
            await self._mirror.reach(outcome.revision, seconds=2.0)

    patch(Collector, "_end", end)


def _error_is_absence(patch: Patch) -> None:
    """A server whose key cannot be read is gone."""
    step = Collector.step

    async def looking(self: Collector) -> float:
        for item in list(self._mirror.under(SERVERS_PREFIX)):
            if server_of(item.key) == self._membership.id:
                continue
            try:
                found = await self._storage.get(item.key)
            except StorageError:
                found = None
            if found is None:
                lease = lease_key(server_of(item.key))
                await self._storage.commit(Transaction((), (Delete(item.key), Delete(lease))))
        return await step(self)

    patch(Collector, "step", looking)


def _expiry_by_the_time_of_day(patch: Patch) -> None:
    def expired(self: Collector) -> Any:
        found = []
        for key, (revision, _) in self._seen.items():
            item = self._mirror.get(lease_key(server_of(key)))
            if item is None or server_of(key) == self._membership.id:
                continue
            spec = orjson.loads(item.value)["spec"]
            renewed = datetime.fromisoformat(spec["renewTime"])
            if self._clock.wall() - renewed > timedelta(seconds=spec["leaseDurationSeconds"]):
                found.append((server_of(key), revision))
        return found

    patch(Collector, "_expired", expired)


def _dead_entries_stay(patch: Patch) -> None:
    patch(Roster, "is_garbage", lambda *_: False)


def _leases_of_an_hour(patch: Patch) -> None:
    patch(Collector, "_lease_seconds", lambda *_: 3600.0)


def _one_identity_for_a_host(patch: Patch) -> None:
    made = _membership.make_server_id
    patch(
        membership,
        "make_server_id",
        lambda host, component, _nonce: made(host, component, "the same"),
    )


def _renewal_makes_the_key_anew(patch: Patch) -> None:
    touch = Membership._touch

    async def touching(self: Membership, guard: Any, extra: Any = ()) -> bool:
        if isinstance(guard, Absent):
            return await touch(self, guard, extra)
        return await touch(self, Absent(Key("/restow/nothing")), extra)

    patch(Membership, "_touch", touching)


def _never_registers_again(patch: Patch) -> None:
    """A server that has lost its identity goes on without one."""
    settle = Coordinator._try_to_settle

    async def try_to_settle(self: Coordinator) -> bool:
        if self._has_begun and not self.membership.is_member:
            return True
        return await settle(self)

    patch(Coordinator, "_try_to_settle", try_to_settle)


def _leaves_encoder_keys(patch: Patch) -> None:
    changed = changes._encoder_changes

    def encoder_changes(*args: Any, **options: Any) -> Any:
        guards, found = changed(*args, **options)
        return guards, [each for each in found if not isinstance(each, Delete)]

    patch(changes, "_encoder_changes", encoder_changes)


def _anybody_writes_reports(patch: Patch) -> None:
    for name in ("check_create", "check_update", "check_delete"):
        patch(ownership, name, lambda *_: None)


# Agreement and the record of what is stored.


def _epoch_forgets_disagreement(patch: Patch) -> None:
    """The epoch grows when another version is agreed on, and not when agreement is lost."""
    made = _changes.report_after

    def report_after(before: Any, entries: Any, **options: Any) -> Any:
        after = made(before, entries, **options)
        is_same = after.agreement is None or before.agreement is None
        return replace(after, epoch=before.epoch) if is_same else after

    patch(changes, "report_after", report_after)


def _record_only_what_is_new(patch: Patch) -> None:
    """A state that lists the version already is not touched."""

    def state_writes(view: Any, state: Any, **options: Any) -> Any:
        if view.state is not None and state is not None:
            options["is_moved"] = False
            if set(state.persisted) <= set(view.state.state.persisted):
                return []
        return kept(view, state, **options)

    kept = changes._state_writes
    patch(changes, "_state_writes", state_writes)
    _trusts_the_target(patch)


def _records_nothing(patch: Patch) -> None:
    """Registration does not append to the persisted hashes."""
    kept = _changes.state_after

    def state_after(before: Any, **facts: Any) -> Any:
        return kept(before, **{**facts, "written": () if before is not None else facts["written"]})

    patch(changes, "state_after", state_after)


def _selects_by_a_stale_list(patch: Patch) -> None:
    patch(VotePlanner, "_vote_guards", lambda *_: ())
    patch(VotePlanner, "_gone", lambda *_: ())
    patch(View, "guards", lambda _self: [])


def _reads_what_it_cannot(patch: Patch) -> None:
    """A server registers over values, and beside servers, that it cannot read."""

    async def check_readable(*_: Any) -> None:
        return None

    patch(Registrar, "_check_readable", check_readable)
    patch(Registrar, "_check_understood", lambda *_: None)
    patch(registrar, "undecodable", lambda *_: [])


def _trusts_its_watch_for_ever(patch: Patch) -> None:
    patch(LooseTable, "encoding", EncodingTable.encoding)


# Migration.


def _trusts_the_target(patch: Patch) -> None:
    """What a request was made for is compared by its target alone."""

    def same(one: Record, other: object) -> bool:
        return isinstance(other, Record) and one.target == other.target

    patch(Record, "__eq__", same)
    patch(Record, "__ne__", lambda one, other: not same(one, other))


def _any_success_counts(patch: Patch) -> None:
    """A request does not say what it was made for: whichever has succeeded is believed."""

    def same(_one: Record, other: object) -> bool:
        return isinstance(other, Record)

    patch(Record, "__eq__", same)
    patch(Record, "__ne__", lambda one, other: not same(one, other))
    patch(trigger_requests, "name_of", lambda resource, _record: f"{resource}-one-for-all")


def _no_epoch(patch: Patch) -> None:
    """Nobody compares what the migration was begun for with what is agreed on now."""

    async def standing(_self: Rewriter, _resource: Any) -> Standing:
        return Standing(0, None, "")

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    async def for_ever(self: Any) -> None:
        await self._client.runtime.clock.sleep(1e9)

    page = engine._Run._do_page

    async def do_page(self: Any) -> Any:
        self._moment = ""
        return await page(self)

    def check(self: Rewriter, resource: Any, target: Any, _standing: Any, _epoch: Any) -> None:
        if self.target(resource) != target.version:
            raise Aborted(f"this server does not write {target.version}")

    read = rewriting.read_wish
    patch(rewriting, "read_wish", lambda context: replace(read(context), epoch=None))
    patch(engine._Run, "_do_page", do_page)
    patch(Rewriter, "_check", check)
    patch(Rewriter, "_read_standing", standing)
    patch(Rewriter, "_confirm", nothing)
    patch(migrator_agreement.Reported, "confirm", nothing)
    patch(migrator_agreement.Reported, "follow", for_ever)
    patch(migrator_agreement, "_is_moved", lambda *_: False)
    _trusts_the_target(patch)
    _narrows_blindly(patch)
    _does_not_cancel(patch)


def _does_not_cancel(patch: Patch) -> None:
    """Requests go on whatever servers agree on by now."""

    async def delete(*_: Any, **__: Any) -> bool:
        return False

    patch(acting.Actor, "_delete_migration", delete)


def _narrows_blindly(patch: Patch) -> None:
    """The state is written as was decided, whatever it has become meanwhile."""

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

    patch(acting.Actor, "_put_status", put_status)


def _skips_what_reads_the_same(patch: Patch) -> None:
    """An object that would not change is not written."""

    async def plan(*_: Any) -> None:
        return None

    patch(PageWork, "_plan", plan)


def _rewrites_without_revision(patch: Patch) -> None:
    made = RewritePlan.__init__

    def init(self: RewritePlan, resource: Any, item: Any, target: Any, value: bytes) -> None:
        made(self, resource, item, target, value)
        self.guard = Present(item.key)  # type: ignore[assignment]

    patch(RewritePlan, "__init__", init)


def _rewrites_the_deleted(patch: Patch) -> None:
    made = RewritePlan.__init__

    def init(self: RewritePlan, resource: Any, item: Any, target: Any, value: bytes) -> None:
        made(self, resource, item, target, value)
        self.guard = Absent(Key("/restow/nothing"))  # type: ignore[assignment]

    patch(RewritePlan, "__init__", init)


def _conflict_is_success(patch: Patch) -> None:
    """Whatever has changed meanwhile counts as migrated, and writes are not fenced."""

    async def current(*_: Any) -> None:
        return None

    patch(PageWork, "_current", current)
    _no_fence(patch)


def _ignores_agreement(patch: Patch) -> None:
    """A migration is begun whatever servers agree on: to what one of them writes."""
    read = _trigger_following.reading_of

    def reading_of(*args: Any, **options: Any) -> Any:
        found = read(*args, **options)
        if found.common or not found.written:
            return found
        return replace(found, common=min(found.written))

    patch(trigger_following, "reading_of", reading_of)
    patch(migrator_agreement, "reading_of", reading_of)
    _no_epoch(patch)


def _deletion_does_not_stop(patch: Patch) -> None:
    """That a request is gone is noticed by nobody."""
    found: dict[str, Any] = {}
    find = rewriting._find_migration
    read = Followed.read

    async def find_migration(server: Any, context: Any) -> Any:
        name = context.info.name
        try:
            found[name] = await find(server, context)
        except status.NotFound:
            if name not in found:
                raise
        return found[name]

    async def reading(self: Followed) -> Any:
        try:
            return await read(self)
        except Exception as error:
            if type(error).__name__ != "RequestGone":
                raise
            return self.latest

    async def follow(self: Followed) -> None:
        await self._client.runtime.clock.sleep(1e9)

    async def write(*_: Any, **__: Any) -> None:
        return None

    patch(rewriting, "_find_migration", find_migration)
    patch(Followed, "read", reading)
    patch(Followed, "follow", follow)
    for name in ("save", "progress", "running", "begin"):
        patch(_engine.RequestWriter, name, write)


def _trims_whatever_is_stored(patch: Patch) -> None:
    """The stored versions of a definition are trimmed to what it stores now, proven or not; and
    servers do not keep what they write in the list."""
    trim = stored_versions.trim

    async def trimming(client: Any, noted: Any) -> str:
        value = await client.get(_stored_versions.DEFINITIONS, noted.name)
        return await trim(client, stored_versions._read(value))

    patch(assembly, "_guard_definitions", lambda *_: None)
    patch(engine, "trim", trimming)
    patch(engine._Run, "_is_defined_as_noted", _true)


async def _true(*_: Any) -> bool:
    return True


def _forgets_what_definitions_list(patch: Patch) -> None:
    """A version that was taken back before any server wrote it stays in storedVersions."""

    async def lists_more(*_: Any) -> bool:
        return False

    patch(Looker, "_lists_more", lists_more)


def _resumes_anywhere(patch: Patch) -> None:
    """A position is good for every migration, and one pass is proof enough."""
    read = _engine.Position.of_text.__func__

    def of_text(cls: Any, text: str, purpose: Any) -> Any:
        value = orjson.loads(text) if text else {}
        said = replace(
            purpose,
            request_uid=value.get("uid", purpose.request_uid),
            target=value.get("target", purpose.target),
            mark=value.get("mark", purpose.mark),
        )
        return read(cls, text, said)

    async def work(self: Any, request: Any) -> Any:
        self._resume(_engine.marks_of(request))
        if self._writer is not None:
            await self._writer.begin(self._position, self._purpose())
            await self._writer.running(self._progress, "it is begun")
        await self._do_pass(resumed=True)
        return await self._prove()

    patch(_engine.Position, "of_text", classmethod(of_text))
    patch(engine._Run, "_work", work)
    _no_epoch(patch)


# The base.


class _Answering:
    """A store whose answers are believed to have been given."""

    def __init__(self, storage: Storage, *, repeats: bool) -> None:
        self._storage = storage
        self._repeats = repeats

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def commit(self, transaction: Transaction) -> Outcome:
        outcome = await self._storage.commit(transaction)
        if not isinstance(outcome, Unknown):
            return outcome
        if self._repeats:
            return await self._storage.commit(transaction)
        return Done(await self._storage.revision())


def _unknown_is_done(patch: Patch) -> None:
    made = Committer.__init__

    def init(self: Committer, storage: Any, *args: Any) -> None:
        made(self, _Answering(storage, repeats=False), *args)

    patch(Committer, "__init__", init)


def _unknown_is_sent_again(patch: Patch) -> None:
    made = Committer.__init__

    def init(self: Committer, storage: Any, *args: Any) -> None:
        made(self, _Answering(storage, repeats=True), *args)

    patch(Committer, "__init__", init)


def _reads_are_as_they_are(patch: Patch) -> None:
    """Whoever reads is given what is in memory, however old."""
    patch(Caches, "fresh", Caches.ready)


def _updates_without_revision(patch: Patch) -> None:
    """An update is committed whatever the object has become meanwhile."""
    made = committing._transaction

    def transaction(plan: Any, encoding: Any, write: Any, *, in_background: bool = False) -> Any:
        whole = made(plan, encoding, write, in_background=in_background)
        if isinstance(plan, CreatePlan) or isinstance(write, Delete):
            return whole
        return Transaction((Present(write.key), *whole.guards[1:]), whole.writes, in_background)

    patch(committing, "_transaction", transaction)


def _discovery_is_kept(patch: Patch) -> None:
    """The document is made once, whatever is written by then."""
    opened = EncodingTable.open

    def open_(self: EncodingTable, resource: Any, encoding: Any) -> None:
        told, self.on_switch = self.on_switch, None
        opened(self, resource, encoding)
        self.on_switch = told

    patch(EncodingTable, "open", open_)


MUTANTS: Final = (
    Mutant("no-fence", "R1 G5 M1", "writes carry no fence", _no_fence),
    Mutant("fence-on-updates", "R1 F1", "creates carry no fence", _fence_on_updates),
    Mutant("check-then-write", "R1 F1", "the fence is asked, then it is written", _checks_before_it_writes),
    Mutant("no-barrier", "R1 R2", "written before it is reported", _no_barrier),
    Mutant("fence-is-conflict", "F2", "a fence that fails is a 409", _fence_failure_is_a_conflict),
    Mutant("custom-unfenced", "R6", "custom resources carry no fence", _no_fence_for_custom_resources),
    Mutant("register-first", "G6", "registers without being a member", _registers_without_membership),
    Mutant("collect-by-list", "G2", "absence is not asked when an entry goes", _collects_by_a_list),
    Mutant("no-precondition", "G2 G10", "reports change on no condition", _changes_without_precondition),
    Mutant("report-removed-blindly", "G4", "an empty report is deleted on no condition", _removes_reports_without_precondition),
    Mutant("lease-renewed-between", "G2", "a server that has shown itself is removed", _ends_a_server_without_looking),
    Mutant("error-is-absence", "G2", "a key that cannot be read is gone", _error_is_absence),
    Mutant("wall-clock-expiry", "G2", "leases end by the time of day", _expiry_by_the_time_of_day),
    Mutant("dead-entries-stay", "G7 L7", "nobody takes out the dead", _dead_entries_stay),
    Mutant("lease-of-an-hour", "G7 L7", "the dead are noticed after an hour", _leases_of_an_hour),
    Mutant("identity-of-host", "R4", "one identity for all servers of a host", _one_identity_for_a_host),
    Mutant("renewal-creates", "G6", "a key that is gone is made anew", _renewal_makes_the_key_anew),
    Mutant("never-registers-again", "G6 L1", "who has lost its identity goes on", _never_registers_again),
    Mutant("encoder-left-behind", "E1", "entries go, encoder keys stay", _leaves_encoder_keys),
    Mutant("anybody-reports", "R3", "clients write reports", _anybody_writes_reports),
    Mutant("epoch-skips-none", "M2", "losing agreement is no change", _epoch_forgets_disagreement),
    Mutant("append-is-noop", "M4 M5", "a listed version is not recorded again", _record_only_what_is_new),
    Mutant("nothing-recorded", "M4", "registration does not append", _records_nothing),
    Mutant("stale-vote", "F6", "selected by a list that is old", _selects_by_a_stale_list, "strict"),
    Mutant("blind-reader", "F8", "registers over what it cannot read", _reads_what_it_cannot),
    Mutant("loose-for-ever", "F4", "a watch without a word is trusted", _trusts_its_watch_for_ever, "loose"),
    Mutant("any-success-counts", "M5", "requests have no target", _any_success_counts),
    Mutant("no-epoch", "M1 M2", "nobody compares epochs", _no_epoch),
    Mutant("narrows-blindly", "M5", "narrowed on no condition", _narrows_blindly),
    Mutant("skips-what-reads-the-same", "M8", "a no-op is not written", _skips_what_reads_the_same),
    Mutant("rewrite-without-revision", "M9", "a rewrite undoes updates", _rewrites_without_revision),
    Mutant("rewrites-the-deleted", "M9", "a rewrite brings back the deleted", _rewrites_the_deleted),
    Mutant("conflict-is-success", "M10", "what has changed counts as migrated", _conflict_is_success),
    Mutant("ignores-agreement", "M1 M5", "migrates while servers differ", _ignores_agreement),
    Mutant("deletion-does-not-stop", "M16", "a deleted request goes on", _deletion_does_not_stop),
    Mutant("trims-blindly", "M3", "storedVersions trimmed unproven", _trims_whatever_is_stored),
    Mutant("listed-for-ever", "L3", "nobody looks at what definitions list", _forgets_what_definitions_list),
    Mutant("resumes-anywhere", "M11", "any token is good, one pass is proof", _resumes_anywhere),
    Mutant("unknown-is-done", "A2 F9", "a lost answer is a yes", _unknown_is_done),
    Mutant("unknown-is-repeated", "F9", "a lost write is sent again", _unknown_is_sent_again),
    Mutant("stale-reads", "A5", "reads are not waited for", _reads_are_as_they_are),
    Mutant("update-without-revision", "A1", "an update undoes another", _updates_without_revision),
    Mutant("discovery-kept", "D1", "the hash switches later than the encoder", _discovery_is_kept),
)  # fmt: skip
BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}


def seeds_for(name: str, count: int) -> list[int]:
    """The seeds in which a mutant can make a difference, of so many."""
    mode = BY_NAME[name].mode
    return [seed for seed in range(count) if not mode or make_plan(seed).mode == mode]


@contextmanager
def switched(mutant: Mutant | None) -> Iterator[None]:
    """Play worlds with a rule left out."""
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, value: Any) -> None:
        undo.append((owner, name, owner.__dict__[name] if name in vars(owner) else _MISSING))
        setattr(owner, name, value)

    if mutant is not None:
        mutant.apply(patch)
    try:
        yield
    finally:
        for owner, name, value in reversed(undo):
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


_MISSING: Final = object()
