"""One server's part in the agreement, from its first key to its last.

    start: join -> register everything -> open        (each resource opens as it is registered)
    run:   renew the key; collect what the dead have left; repair what others have removed
    close: close everything -> leave -> take out the own entries

A server whose key is gone closes everything, joins under a new id and registers again, before its
next write. The order is in this file alone; the steps are in the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from typing import Final

from restow.aio import Backoff, Runtime, TaskHandle
from restow.apimachinery import status
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status_error import StatusError
from restow.encryption.interface import Keys
from restow.registry.catalog import Catalog
from restow.registry.encoding import ALWAYS, Encoding, EncodingPolicy, ReadableRevisions
from restow.registry.reconcile_loops import repeat
from restow.registry.resource import Resource
from restow.storage.errors import OpenRefused, StorageError, StoreDamaged
from restow.storage.interface import Item, Key, Present, Revision, Storage
from restow.storageversion.agreements import Announcer
from restow.storageversion.changes import MirrorView
from restow.storageversion.coordinator_parts import (
    CoordinatorInputs,
    CoordinatorOptions,
    MakeCustomResources,
    Repairs,
    build_parts,
)
from restow.storageversion.encoding_table import (
    OLDER_WRITES_SECONDS,
    LooseTable,
)
from restow.storageversion.errors import (
    CoordinationError,
    KeyUnsupported,
    MembershipLost,
    ModeRefused,
    VersionUnsupported,
)
from restow.storageversion.identity import Mode, server_key
from restow.storageversion.object_codec import REPORTS_PREFIX
from restow.storageversion.participants import Participants
from restow.storageversion.records import (
    resource_of_name,
)
from restow.storageversion.remote_registration import Remote
from restow.storageversion.rules import are_remote
from restow.storageversion.unreported import mark_states

AT_ONCE_MAX: Final = 64
"""Registrations under way at a time."""
REPAIR_SECONDS_MAX: Final = 10.0
WITHDRAW_SECONDS_MAX: Final = 3.0
NO_AGREEMENT_SECONDS_MAX: Final = 120.0
BACKOFF: Final = Backoff(initial_seconds=0.1, factor=2, max_seconds=5, jitter=0.3)

logger = logging.getLogger(__name__)


class Coordinator:
    """Keeps one server in agreement with the others. Satisfies the barrier's `Registration`."""

    def __init__(
        self,
        storage: Storage,
        catalog: Catalog,
        runtime: Runtime,
        options: CoordinatorOptions,
        *,
        keys: Keys | None = None,
        remote: Remote | None = None,
        custom: MakeCustomResources | None = None,
    ) -> None:
        """`storage` is the store beneath any encryption; `keys` what encrypts and opens; `remote`
        to whom a server with a store of its own reports; `custom` makes what serves CRDs. Raises
        `ModeRefused`."""
        mode = options.membership.mode
        if remote is not None:
            remote.check_mode(mode)
        self._options = options
        self._storage = storage
        self._catalog = catalog
        self._runtime = runtime
        self._clock = runtime.clock
        self._is_off = mode == "off"
        self._tasks = runtime.tasks("coordination", on_failure=lambda _: None)
        self._keys = keys
        self._keys_changed = asyncio.Event()
        if keys is not None:
            keys.listeners.append(self._keys_changed.set)
        parts = build_parts(
            CoordinatorInputs(
                storage=storage,
                catalog=catalog,
                runtime=runtime,
                tasks=self._tasks,
                options=options,
                keys=keys,
                remote=remote,
                custom=custom,
            ),
            Repairs(
                on_stale=self._repair,
                register_later=self._register_later,
                register_keys=self._register_keys,
            ),
        )
        self.mirror: Final = parts.mirror
        self.membership: Final = parts.membership
        self.table: Final = parts.table
        self.registrar: Final = parts.registrar
        self.collector: Final = parts.collector
        self.reconciler: Final = parts.reconciler
        self.agreements: Final = parts.agreements
        self.custom_registration: Final = parts.custom_registration
        self.key_watch: Final = parts.key_watch
        self.custom: Final = parts.custom
        self._selection: Final = parts.selection
        self.mirror.listeners.append(self._note_report)
        self._set_not_registered()

    def _set_not_registered(self) -> None:
        """The state of a server that has not joined yet."""
        self._address = ""
        self._loops: list[TaskHandle] = []
        self._registering: TaskHandle | None = None
        self._unsupported: set[str] = set()
        """Where resources are stored that this server cannot read or write now."""
        self._repairing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._joining = asyncio.Lock()
        self._completed = False
        self._is_closing = False
        self._refusal: KeyUnsupported | None = None
        self._has_begun = False
        self.registration_seconds: float | None = None
        """How long the last registration of everything has taken."""

    # What others ask.

    @property
    def completed(self) -> bool:
        """Whether everything this server hosts is registered."""
        return self._completed

    def pending(self, resource: Resource) -> str | None:
        """None when a resource may be written; otherwise the last error seen."""
        return self.table.pending(resource)

    @property
    def policy(self) -> EncodingPolicy:
        """How this server writes."""
        return _MemberPolicy(self) if self._is_off else self.table

    def version_of(self, resource: Resource) -> str:
        """The version in which a resource is written now. If it is closed: the selected one with
        voting, otherwise the one in which it was written last, or would be written first."""
        if self._selection is not None and self.table.find(resource) is None:
            selected = self._selection.selected(resource)
            if selected is not None:
                return selected
        last = self.table.last(resource)
        known = (*resource.decodable, resource.storage_api_version)
        return last if last is not None and last in known else resource.storage_api_version

    async def check_keys(self, keys: Keys) -> None:
        """Raises `KeyUnsupported` when something may be stored that these keys do not open."""
        for resource in self._catalog.persisted():
            if not resource.kind.pinned:
                # Without a fence nobody keeps a record: then only a look tells.
                await self.registrar.check_keys(resource, keys, is_recorded=not self._is_off)

    def keys_waiting(self) -> int:
        """How many resources this server would write with another encryption key than it does."""
        return 0 if self.key_watch is None else self.key_watch.waiting()

    def own_key(self, resource: Resource) -> str:
        """The encryption key that this server would write with, if it were alone."""
        if self._keys is None or resource.kind.pinned:
            return ""
        return self._keys.write_key(resource.kind.group_resource)

    def announce(self, announcer: Announcer) -> None:
        """Have every change of an agreement told by an Event."""
        self._tasks.spawn_loop("announcer", announcer.run(lambda: self.collector.collects_first))

    def _note_report(self, key: Key, _item: Item | None) -> None:
        """Another server may have said something that custom resources wait for."""
        if not key.startswith(REPORTS_PREFIX):
            return
        name = key.removeprefix(REPORTS_PREFIX)
        if self.custom is not None:
            resource = resource_of_name(name)
            self.custom.report_changed(resource)
            self.custom_registration.report_changed(resource)
        if self.key_watch is not None:
            self.key_watch.report_changed(name)

    # Life.

    async def join(self, *, address: str = "") -> None:
        """Become a member, reachable at an address. Raises `ModeRefused`."""
        await self.mirror.start(self._tasks)
        self._check_mode()
        self._address = address
        await self._join()
        try:
            self._check_mode()  # Someone may have joined at the same time, before this server.
        except ModeRefused:
            await self.membership.leave()
            raise
        renewal = repeat("the renewal of identity", self._renew, self._runtime)
        self._loops.append(self._tasks.spawn_loop("renewal", renewal))

    async def register(self) -> None:
        """Report everything; returns when that is done.

        What cannot be registered yet is tried again for ever. Raises `OpenRefused` when something
        is encrypted with a key that this server does not have: that does not come by itself.
        """
        self._loops.append(self._tasks.spawn_loop("collector", self._collect()))
        if self._is_off:
            await self._join_unreported()
            return
        if self.reconciler is not None:
            told = self.reconciler.run()
            self._loops.append(self._tasks.spawn_loop("reports to the main servers", told))
        await self._registration().wait()
        if self._refusal is not None:
            raise OpenRefused(str(self._refusal))
        self._has_begun = True
        if self.key_watch is not None:
            following = self.key_watch
            self._loops.append(self._tasks.spawn_loop("keys", following.run()))
            following.look_at_all()  # what has changed while this server registered

    async def start(self) -> None:
        """Join, then register."""
        await self.join()
        await self.register()

    async def close(self) -> None:
        """Withdraw: nothing is written any more, and nobody waits for this server."""
        self._is_closing = True
        self.table.close_all()
        self._completed = False
        loops = [*self._loops, *([self._registering] if self._registering is not None else [])]
        for loop in loops:  # Or it would join again as soon as it has left.
            await loop.stop()
        try:
            async with self._clock.timeout(WITHDRAW_SECONDS_MAX):
                revision = await self.membership.leave()
                if revision is not None:
                    await self.mirror.reach(revision, seconds=WITHDRAW_SECONDS_MAX)
                    await self.collector.sweep()
                    if self.reconciler is not None:
                        await self.reconciler.remove_expired()
        except (StorageError, CoordinationError, TimeoutError, ExceptionGroup) as error:
            # Others will find out by themselves when the lease time is over.
            logger.warning("this server could not withdraw its reports: %s", error)
        await self._tasks.close()

    async def abandon(self) -> None:
        """End without a word, as a process does that is killed."""
        await self._tasks.close()

    def _check_mode(self) -> None:
        """Raises `ModeRefused` when the running servers coordinate in another way."""
        own = self.membership.options.mode
        others = self._other_modes()
        if others and not self._options.may_change_mode:
            raise ModeRefused(
                f"this server would coordinate in mode {own!r}, but others run in"
                f" {', '.join(sorted(others))}: start it like them, or with"
                " --change-coordination-mode"
            )

    async def _wait_for_no_agreement(self) -> None:
        """Before a server writes without reporting, no agreement may be published any more.

        All collectors see its key, its own included, and unset what was agreed on.
        """
        gives_up_at = self._clock.monotonic() + NO_AGREEMENT_SECONDS_MAX
        while agreed := self._agreed_here():
            if self._clock.monotonic() > gives_up_at:
                raise ModeRefused(
                    f"the running servers still agree on {len(agreed)} resources, such as"
                    f" {agreed[0]}: a server without a fence would break what they promise"
                )
            await self._clock.sleep(0.1)

    def _agreed_here(self) -> list[str]:
        """The resources of this store that servers agree on."""
        agreed = [name for name, is_agreed in self.agreements.agreed.items() if is_agreed]
        found = []
        for name in agreed:
            with suppress(StoreDamaged):  # Nobody can act on an agreement that cannot be read.
                if not are_remote(MirrorView.of(self.mirror, name).report.entries):
                    found.append(name)
        return found

    def _other_modes(self) -> set[Mode]:
        """The other modes of servers that were here before this one."""
        roster = Participants(self.mirror)
        modes = roster.modes()
        earlier = roster.earlier_than(self.membership.id)
        return {modes[server_id] for server_id in earlier} - {self.membership.options.mode}

    async def _join(self) -> None:
        await self._options.confirm_store()
        changes_modes = self._is_off or bool(self._other_modes())
        await self.membership.join(address=self._address, changes_modes=changes_modes)
        revision = self.membership.revision
        assert revision is not None
        await self._confirm(revision)

    # Registration.

    async def _register_until_done(self) -> None:
        began_at, failures = self._clock.monotonic(), 0
        while not await self._try_to_settle():
            if self._refusal is not None:
                return
            await self._rest(BACKOFF.delay_seconds(failures, self._runtime.randomness))
            failures += 1
        self._completed = True
        self.registration_seconds = self._clock.monotonic() - began_at
        logger.info(
            "registered %d resources in %.3f s",
            len(self._catalog.persisted()),
            self.registration_seconds,
        )

    async def _rest(self, seconds: float) -> None:
        """Wait before the next try, or until other encryption keys are there: they may be what was
        missing."""
        self._keys_changed.clear()
        try:
            async with self._clock.timeout(seconds):
                await self._keys_changed.wait()
        except TimeoutError:
            return

    async def _join_unreported(self) -> None:
        """Be a member, and write only when no agreement is published and all states list "Unknown".

        The mark that outlives this server was written when it joined.
        """
        async with self._joining:
            while not self._completed:
                try:
                    if not self.membership.is_member:
                        await self._join()
                    await self._wait_for_no_agreement()
                    await mark_states(self._storage, self.mirror, self.membership, self._clock)
                except MembershipLost as error:
                    logger.warning("this server joins again: %s", error)
                    continue
                self._completed = self.membership.is_member

    async def _try_to_settle(self) -> bool:
        """Join if need be, register everything, say that it is done; whether all that worked."""
        hosted = self._own_resources()
        try:
            if self._is_off:
                await self._join_unreported()
                return True
            if not self.membership.is_member:
                self.table.close_all()
                await self._await_older_writes()
                await self._join()
                if self.custom is not None:
                    self.custom.register_all_again()
            await self._register_all()
            # What this server cannot read or write it will not write: nobody need wait for it.
            if all(self.table.find(r) is not None or r.root in self._unsupported for r in hosted):
                await self.membership.renew(settled=True)
        except (StorageError, ModeRefused) as error:
            logger.warning("this server is not registered: %s", error)
            return False
        return self.membership.is_member and all(self.table.find(r) is not None for r in hosted)

    def _own_resources(self) -> list[Resource]:
        """What the release hosts. Custom resources are registered by those who follow them, and
        nobody waits for that: each is served only when it is."""
        return [resource for resource in self._catalog.persisted() if resource.origin is None]

    async def _await_older_writes(self) -> None:
        """Without a fence, what was sent under the lost identity may still land: let it, before
        anybody is told of another version."""
        if isinstance(self.table, LooseTable):
            await self._clock.sleep(OLDER_WRITES_SECONDS)

    async def _register_all(self) -> None:
        """Try everything that is not registered."""
        resources = [r for r in self._own_resources() if self.table.find(r) is None]
        waiting = iter(resources)

        async def take() -> None:
            for resource in waiting:
                await self._try_to_register(resource)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE_MAX, len(resources))):
                group.create_task(take(), name="registration")

    async def _try_to_register(self, resource: Resource) -> None:
        if not self.membership.is_member:
            return
        self._unsupported.discard(resource.root)
        try:
            await self.registrar.register(resource)
        except MembershipLost:
            with suppress(StorageError):
                await self.membership.check()
        except (CoordinationError, StorageError, MachineryError) as error:
            if isinstance(error, VersionUnsupported):
                self._unsupported.add(resource.root)
            if isinstance(error, KeyUnsupported) and not self._has_begun:
                self._refusal = error
            if self.table.pending(resource) != str(error):
                logger.warning("%s is not registered: %s", resource.kind.group_resource, error)
            self.table.close(resource, error=str(error))

    async def _register_keys(self, resource: Resource) -> None:
        """Other encryption keys are to be used for a resource that is open."""
        if resource.origin is not None and self.custom is not None:
            await self.custom.register_again(resource)
            return
        async with self._repairing[resource.root]:  # whoever's fence fails meanwhile waits for it
            if self.table.find(resource) is not None:
                await self.registrar.register(resource)

    # Renewal and repair.

    async def _renew(self) -> float:
        if not await self.membership.renew() and not self._is_closing:
            logger.error("the key of this server is gone: it joins anew")
            self._completed = False
            self._registration()
        elif self.membership.revision is not None:
            await self._confirm(self.membership.revision)
        return self.membership.options.renew_seconds

    async def _confirm(self, revision: Revision) -> None:
        """Once all up to the own renewal was seen, all that was selected before it is known."""
        # Not for long: the next renewal waits for it.
        seconds = min(REPAIR_SECONDS_MAX, self.membership.options.renew_seconds)
        reached = await self.mirror.reach(revision, seconds=seconds)
        if reached and isinstance(self.table, LooseTable):
            self.table.confirm(self.membership.renewed_at)
        if self.custom is not None:
            stale_seconds = self.membership.options.lease_seconds
            await self.custom.confirm(revision, seconds=seconds, stale_seconds=stale_seconds)

    def _registration(self) -> TaskHandle:
        """The task that joins, if need be, and registers everything; there is one at a time.

        It is nobody's but this server's own: neither a client that goes away nor a write that has
        waited long enough may end it half-way.
        """
        if self._registering is None or self._registering.done():
            self._completed = False
            work = self._register_until_done()
            self._registering = self._tasks.spawn("registration", work)
        return self._registering

    def store_replaced(self) -> None:
        """The store is another one, or an earlier state of it: join under a new id, and scan and
        register everything again before the next write."""
        if not self._is_closing:
            self.table.close_all()
            self.membership.forget()
            if self.custom is not None:
                self.custom.store_replaced()
            self._completed = False
            self._registration()

    def _register_later(self) -> None:
        """What was closed, and could not be opened, is tried until it can."""
        if not self._is_closing:
            self._registration()

    async def _repair(self, resource: Resource) -> None:
        """A fence has failed: see what is true now, so that the write can be tried again."""
        try:
            async with (
                self._clock.timeout(REPAIR_SECONDS_MAX),
                self._repairing[resource.root],
            ):
                await self._look_again(resource)
        except TimeoutError:
            raise status.unavailable(
                f"this server is registering {resource.kind.group_resource} anew",
                retry_after_seconds=1,
            ) from None
        except (CoordinationError, StorageError) as error:
            raise _unavailable(resource, error) from error

    async def _look_again(self, resource: Resource) -> None:
        if self._is_off:
            if not await self.membership.check() and not self._is_closing:
                await self._registration().wait()
            return
        await self.registrar.settled(resource)
        encoding = self.table.find(resource)
        if encoding is None or await self.registrar.still_holds(encoding):
            return  # Someone else has repaired it meanwhile, or it is closed.
        if self._selection is not None and await self._selection.look_again(resource):
            return
        if await self.membership.check():
            self.table.close(resource)
            if resource.origin is not None and self.custom is not None:
                await self.custom.register_again(resource)
                return
        if not self._is_closing:
            await self._registration().wait()

    async def _collect(self) -> None:
        async def step() -> float:
            await self.collector.run()
            return 0.0

        await repeat("the collector", step, self._runtime)


class _MemberPolicy:
    """How a server without a fence writes: as it likes, but only while it is a member.

    So the others know of it, and do not agree on anything as long as it may write.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def encoding(self, resource: Resource) -> Encoding:
        self._check_joined()
        guard = Present(server_key(self._coordinator.membership.id))
        key_id = self._coordinator.own_key(resource)
        return Encoding(resource.storage_api_version, (guard,), key_id)

    async def refresh(self, resource: Resource) -> None:
        await self._coordinator.table.refresh(resource)

    def readable(self, _resource: Resource) -> ReadableRevisions:
        """Nobody has looked whether this server can read what is stored: if not, that stays so."""
        self._check_joined()
        return ALWAYS

    def _check_joined(self) -> None:
        if not self._coordinator.completed:
            raise status.unavailable(
                "this server has not joined the others yet", retry_after_seconds=1
            )


def _unavailable(resource: Resource, error: Exception) -> StatusError:
    why = error.told if isinstance(error, StorageError) else str(error)
    return status.unavailable(
        f"{resource.kind.group_resource} cannot be written now: {why}", retry_after_seconds=1
    )
