"""Runs one server's membership and registration from start to shutdown.

    start: join -> register everything -> open        (each resource opens as it is registered)
    run:   renew the key; collect entries of expired servers; repair lost registrations
    close: close everything -> leave -> remove the server's own entries

A server whose membership key was deleted closes everything, joins under a new id and registers
again before its next write. This file alone defines the order; other modules implement the steps.
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
"""Maximum number of concurrent registrations."""
REPAIR_SECONDS_MAX: Final = 10.0
WITHDRAW_SECONDS_MAX: Final = 3.0
NO_AGREEMENT_SECONDS_MAX: Final = 120.0
BACKOFF: Final = Backoff(initial_seconds=0.1, factor=2, max_seconds=5, jitter=0.3)

logger = logging.getLogger(__name__)


class Coordinator:
    """Keeps one server in agreement with the others. Implements the write barrier's
    `Registration`."""

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
        """Build a coordinator. `storage` is the store beneath any encryption; `keys` encrypts and
        decrypts; `remote` names the servers to which a server with its own store reports; `custom`
        builds the service that serves CRDs. Raises `ModeRefused`."""
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
            keys.changed.subscribe(self._keys_changed.set)
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
        self.lease: Final = parts.lease
        self.table: Final = parts.table
        self.registrar: Final = parts.registrar
        self.collector: Final = parts.collector
        self.reconciler: Final = parts.reconciler
        self.agreements: Final = parts.agreements
        self.custom_registration: Final = parts.custom_registration
        self.key_watch: Final = parts.key_watch
        self.custom: Final = parts.custom
        self._selection: Final = parts.selection
        self.mirror.changed.subscribe(self._note_report)
        self._set_not_registered()

    def _set_not_registered(self) -> None:
        """Set the state of a server that has not joined yet."""
        self._address = ""
        self._loops: list[TaskHandle] = []
        self._registering: TaskHandle | None = None
        self._unsupported: set[str] = set()
        """Roots of resources that this server cannot read or write at present."""
        self._repairing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._joining = asyncio.Lock()
        self._completed = False
        self._is_closing = False
        self._refusal: KeyUnsupported | None = None
        self._has_begun = False
        self.registration_seconds: float | None = None
        """Duration of the last complete registration."""

    # Queries.

    @property
    def completed(self) -> bool:
        """Whether every resource that this server hosts is registered."""
        return self._completed

    def pending(self, resource: Resource) -> str | None:
        """Return None if a resource may be written; otherwise the last error."""
        return self.table.pending(resource)

    @property
    def policy(self) -> EncodingPolicy:
        """The policy that decides in which version this server writes."""
        return _MemberPolicy(self) if self._is_off else self.table

    def version_of(self, resource: Resource) -> str:
        """Return the version in which a resource is written at present. A closed resource has the
        selected version with voting; otherwise the last one written, or the one preferred."""
        if self._selection is not None and self.table.find(resource) is None:
            selected = self._selection.selected(resource)
            if selected is not None:
                return selected
        last = self.table.last(resource)
        known = (*resource.decodable, resource.storage_api_version)
        # KEP-35 1.6: the hash of a built-in resource is known from the start
        return last if last is not None and last in known else resource.storage_api_version

    async def check_keys(self, keys: Keys) -> None:
        """Raise `KeyUnsupported` if a value may be stored that these keys do not decrypt."""
        for resource in self._catalog.persisted():
            if not resource.kind.pinned:
                # A server without a fence keeps no record of keys, so it must scan the store.
                await self.registrar.check_keys(resource, keys, is_recorded=not self._is_off)

    def keys_waiting(self) -> int:
        """Return for how many resources this server waits to switch the encryption key."""
        return 0 if self.key_watch is None else self.key_watch.waiting()

    def own_key(self, resource: Resource) -> str:
        """Return the encryption key that this server prefers for a resource."""
        if self._keys is None or resource.kind.pinned:
            return ""
        return self._keys.write_key(resource.kind.group_resource)

    def announce(self, announcer: Announcer) -> None:
        """Create an Event for every change of an agreement."""
        self._tasks.spawn_loop("announcer", announcer.run(lambda: self.collector.collects_first))

    def _note_report(self, key: Key, _item: Item | None) -> None:
        """Wake what waits for another server's entry."""
        if not key.startswith(REPORTS_PREFIX):
            return
        name = key.removeprefix(REPORTS_PREFIX)
        if self.custom is not None:
            resource = resource_of_name(name)
            self.custom.report_changed(resource)
            self.custom_registration.report_changed(resource)
        if self.key_watch is not None:
            self.key_watch.report_changed(name)

    # Start and shutdown.

    async def join(self, *, address: str = "") -> None:
        """Become a member with an address at which others reach this server. Raises
        `ModeRefused`."""
        await self.mirror.start(self._tasks)
        self._check_mode()
        self._address = address
        await self._join()
        try:
            self._check_mode()  # Another server may have joined at the same time, before this one.
        except ModeRefused:
            await self.membership.leave()
            raise
        renewal = repeat("the renewal of identity", self._renew, self._runtime)
        self._loops.append(self._tasks.spawn_loop("renewal", renewal))

    async def register(self) -> None:
        """Register every resource that this server hosts; returns when that is done.

        Failed registrations are retried without limit. Raises `OpenRefused` when a value is
        encrypted with a key that this server does not have, because a retry cannot change that.
        """
        # KEP-2339 3.54, 3.55: with the gate off the collector still removes stale StorageVersions
        self._loops.append(self._tasks.spawn_loop("collector", self._collect()))
        if self._is_off:
            await self._join_unreported()
            return
        if self.reconciler is not None:
            reports = self.reconciler.run()
            self._loops.append(self._tasks.spawn_loop("reports to the main servers", reports))
        await self._registration().wait()
        if self._refusal is not None:
            raise OpenRefused(str(self._refusal))
        self._has_begun = True
        if self.key_watch is not None:
            following = self.key_watch
            self._loops.append(self._tasks.spawn_loop("keys", following.run()))
            following.check_all()  # Keys may have changed while this server registered.

    async def start(self) -> None:
        """Join, then register."""
        await self.join()
        await self.register()

    async def close(self) -> None:
        """Close every resource, then remove this server's key and entries, so that no server waits
        for it."""
        self._is_closing = True
        self.table.close_all()
        self._completed = False
        loops = [*self._loops, *([self._registering] if self._registering is not None else [])]
        for loop in loops:  # A running loop would join again after the server has left.
            await loop.stop()
        try:
            async with self._clock.timeout(WITHDRAW_SECONDS_MAX):
                revision = await self.membership.leave()
                if revision is not None:
                    await self.mirror.reach(revision, seconds=WITHDRAW_SECONDS_MAX)
                    await self.collector.collect()
                    if self.reconciler is not None:
                        await self.reconciler.remove_expired()
        except (StorageError, CoordinationError, TimeoutError, ExceptionGroup) as error:
            # Other servers collect the entries when the lease expires.
            logger.warning("this server could not withdraw its reports: %s", error)
        await self._tasks.close()

    async def abandon(self) -> None:
        """Stop without withdrawing, as a killed process does."""
        await self._tasks.close()

    def _check_mode(self) -> None:
        """Raise `ModeRefused` when the running servers use another coordination mode."""
        own = self.membership.options.mode
        others = self._other_modes()
        if others and not self._options.may_change_mode:
            raise ModeRefused(
                f"this server would coordinate in mode {own!r}, but others run in"
                f" {', '.join(sorted(others))}: start it like them, or with"
                " --change-coordination-mode"
            )

    async def _wait_for_no_agreement(self) -> None:
        """Wait until no agreement is published, before a server writes without reporting.

        Every garbage collector, this server's included, reads its key and removes the agreements.
        """
        gives_up_at = self._clock.monotonic() + NO_AGREEMENT_SECONDS_MAX
        while agreed := self._agreed_here():
            if self._clock.monotonic() > gives_up_at:
                raise ModeRefused(
                    f"the running servers still agree on {len(agreed)} resources, such as"
                    f" {agreed[0]}: a server without a fence must not write before the agreements"
                    " are removed; see the logs of the running servers"
                )
            await self._clock.sleep(0.1)

    def _agreed_here(self) -> list[str]:
        """Return the names of this store's resources that have an agreement."""
        agreed = [name for name, is_agreed in self.agreements.agreed.items() if is_agreed]
        found = []
        for name in agreed:
            with suppress(StoreDamaged):  # No server can act on an agreement that cannot be read.
                if not are_remote(MirrorView.of(self.mirror, name).report.entries):
                    found.append(name)
        return found

    def _other_modes(self) -> set[Mode]:
        """Return the other coordination modes of servers that joined before this one."""
        participants = Participants(self.mirror)
        modes = participants.modes()
        earlier = participants.earlier_than(self.membership.id)
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
        """Wait before the next attempt, or until the encryption keys change: a missing key may have
        been the error."""
        self._keys_changed.clear()
        try:
            async with self._clock.timeout(seconds):
                await self._keys_changed.wait()
        except TimeoutError:
            return

    async def _join_unreported(self) -> None:
        """Join, and complete only when no agreement is published and all states list "Unknown".

        The mark that stays in the store after this server leaves was written when it joined.
        """
        async with self._joining:
            while not self._completed:
                try:
                    if not self.membership.is_member:
                        await self._join()
                    # KEP-2339 3.62: no agreement while a server writes without reporting
                    await self._wait_for_no_agreement()
                    await mark_states(self._storage, self.mirror, self.membership, self._clock)
                except MembershipLost as error:
                    logger.warning("membership lost; this server joins again: %s", error)
                    continue
                self._completed = self.membership.is_member

    async def _try_to_settle(self) -> bool:
        """Join if need be, register every resource, mark the server as settled; return whether all
        succeeded."""
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
            # A resource that this server cannot read or write is never written: no server waits for
            # it.
            if all(self.table.find(r) is not None or r.root in self._unsupported for r in hosted):
                await self.membership.renew(settled=True)
        except (StorageError, ModeRefused) as error:
            logger.warning("this server is not registered: %s", error)
            return False
        return self.membership.is_member and all(self.table.find(r) is not None for r in hosted)

    def _own_resources(self) -> list[Resource]:
        """Return the resources that the release hosts. `CustomResources` registers custom ones, and
        registration does not wait for them: each is served once it is registered."""
        return [resource for resource in self._catalog.persisted() if resource.origin is None]

    async def _await_older_writes(self) -> None:
        """Wait until writes that were sent under the lost identity can no longer commit, which a
        server without a fence cannot prevent."""
        if isinstance(self.table, LooseTable):
            await self._clock.sleep(OLDER_WRITES_SECONDS)

    async def _register_all(self) -> None:
        """Try to register every resource that is not registered."""
        resources = [r for r in self._own_resources() if self.table.find(r) is None]
        waiting = iter(resources)

        async def take() -> None:
            for resource in waiting:
                await self._try_to_register(resource)

        # KEP-2339 3.63: register resources concurrently, so that all are reported within seconds
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
        """Register an open resource again with other encryption keys."""
        if resource.origin is not None and self.custom is not None:
            await self.custom.register_again(resource)
            return
        async with self._repairing[resource.root]:  # A failing fence waits for this registration.
            if self.table.find(resource) is not None:
                await self.registrar.register(resource)

    # Renewal and repair.

    async def _renew(self) -> float:
        renew_seconds = self.membership.options.renew_seconds
        if not await self.membership.renew() and not self._is_closing:
            logger.error("the membership record of this server was removed: joining with a new ID")
            self._completed = False
            self._registration()
        elif self.membership.revision is not None:
            await self._confirm(self.membership.revision)
            # From renewal to renewal: waiting for the watches must not make the next one late.
            return max(renew_seconds - self.membership.age_seconds, 0.0)
        return renew_seconds

    async def _confirm(self, revision: Revision) -> None:
        """Record that everything selected before this server's renewal is known, once it is
        mirrored."""
        # The limit is short because the next renewal waits for it.
        seconds = min(REPAIR_SECONDS_MAX, self.membership.options.renew_seconds)
        reached = await self.mirror.reach(revision, seconds=seconds)
        if reached and isinstance(self.table, LooseTable):
            self.table.confirm(self.membership.renewed_at)
        if self.custom is not None:
            stale_seconds = self.membership.options.lease_seconds
            await self.custom.confirm(revision, seconds=seconds, stale_seconds=stale_seconds)

    def _registration(self) -> TaskHandle:
        """Return the task that joins, if need be, and registers every resource; one runs at a time.

        The coordinator owns the task: a disconnected client or a write that times out does not
        cancel it.
        """
        if self._registering is None or self._registering.done():
            self._completed = False
            work = self._register_until_done()
            self._registering = self._tasks.spawn("registration", work)
        return self._registering

    def store_replaced(self) -> None:
        """Join under a new id after the store was replaced or restored, then scan and register
        everything again before the next write."""
        if not self._is_closing:
            self.table.close_all()
            self.membership.forget()
            if self.custom is not None:
                self.custom.store_replaced()
            self._completed = False
            self._registration()

    def _register_later(self) -> None:
        """Retry the registration of closed resources until it succeeds."""
        if not self._is_closing:
            self._registration()

    async def _repair(self, resource: Resource) -> None:
        """Register a resource again after a fence has failed, so that the write can be retried."""
        try:
            async with (
                self._clock.timeout(REPAIR_SECONDS_MAX),
                self._repairing[resource.root],
            ):
                await self._reregister(resource)
        except TimeoutError:
            raise status.unavailable(
                f"this server is registering {resource.kind.group_resource} again",
                retry_after_seconds=1,
            ) from None
        except (CoordinationError, StorageError) as error:
            raise _unavailable(resource, error) from error

    async def _reregister(self, resource: Resource) -> None:
        if self._is_off:
            if not await self.membership.check() and not self._is_closing:
                await self._registration().wait()
            return
        await self.registrar.settled(resource)
        encoding = self.table.find(resource)
        if encoding is None or await self.registrar.still_holds(encoding):
            return  # Another caller has repaired it meanwhile, or it is closed.
        if self._selection is not None and await self._selection.refresh(resource):
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
    """Encoding policy without a fence: write in the preferred version while the server is a member.

    The others see its key, and agree on no version while it may write.
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

    def check_lease(self) -> None:
        self._coordinator.lease.check()

    def readable(self, _resource: Resource) -> ReadableRevisions:
        """Accept every revision, because this server has checked no stored value."""
        self._check_joined()
        return ALWAYS

    def _check_joined(self) -> None:
        if not self._coordinator.completed:
            raise status.unavailable(
                "this server has not joined the other servers yet", retry_after_seconds=1
            )


def _unavailable(resource: Resource, error: Exception) -> StatusError:
    why = error.client_message if isinstance(error, StorageError) else str(error)
    return status.unavailable(
        f"{resource.kind.group_resource} cannot be written now: {why}", retry_after_seconds=1
    )
