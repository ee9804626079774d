"""Builds the parts of a coordinator bottom-up; each constructor receives all its dependencies.

    mirror, membership -> encoding table -> planners -> registrar -> collector
        -> selected versions, remote reconciler, keys -> custom resources

Not here: the order in which the parts start (`coordinator`), and their implementations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from restow.aio import Runtime, Tasks
from restow.aio.events import EventChannel
from restow.encryption.interface import Keys
from restow.registry.catalog import Catalog
from restow.registry.resource import Resource
from restow.storage.interface import Revision, Storage
from restow.storageversion.agreements import Agreements
from restow.storageversion.custom_registration import CustomRegistration
from restow.storageversion.custom_resources import CustomResources
from restow.storageversion.encoding_table import EncodingTable, LooseTable
from restow.storageversion.garbage_collector import StorageVersionGarbageCollector
from restow.storageversion.identity import SERVERS_PREFIX
from restow.storageversion.key_watch import KeyWatch
from restow.storageversion.membership import Membership, MembershipOptions
from restow.storageversion.mirror import Mirror
from restow.storageversion.object_codec import LEASES_PREFIX, REPORTS_PREFIX, STATES_PREFIX
from restow.storageversion.records import (
    ENCODERS_PREFIX,
    EPOCHS_PREFIX,
    MODES_KEY,
    SELECTED_PREFIX,
    name_of,
)
from restow.storageversion.registrar import Registrar
from restow.storageversion.registration_planner import ReportPlanner, VotePlanner
from restow.storageversion.remote_reconciler import RemoteReconciler
from restow.storageversion.remote_registration import Remote, RemoteRegistrar
from restow.storageversion.selected_version import SelectionFollower
from restow.storageversion.vote_objects import VOTES_PREFIX, VoteIndex
from restow.storageversion.write_lease import WriteLease

MIRRORED: Final = (
    SERVERS_PREFIX,
    ENCODERS_PREFIX,
    EPOCHS_PREFIX,
    SELECTED_PREFIX,
    REPORTS_PREFIX,
    VOTES_PREFIX,
    STATES_PREFIX,
    LEASES_PREFIX,
    MODES_KEY,
)

MakeCustomResources = Callable[[CustomRegistration], CustomResources]


async def _accept_store() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """Options of one server's participation in coordination."""

    membership: MembershipOptions
    may_change_mode: bool = False
    """Whether it may start while servers with another coordination mode run."""
    may_force: bool = False
    """Whether it may select a version while servers run that do not vote."""
    loose_bound_seconds: float = 60.0
    """How long a server without a fence may act on its last confirmed view."""
    confirm_store: Callable[[], Awaitable[None]] = _accept_store
    """Called before this server joins; raises a `StorageError` for a store of another cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorInputs:
    """The dependencies of a coordinator."""

    storage: Storage
    """The store beneath any encryption."""
    catalog: Catalog
    runtime: Runtime
    tasks: Tasks
    options: CoordinatorOptions
    keys: Keys | None
    """Encrypts and decrypts values."""
    remote: Remote | None
    """The servers to which a server with its own store reports."""
    custom: MakeCustomResources | None
    """Builds the service that serves CRDs; None: this server hosts only its release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """Callbacks for a part that finds a registration that no longer holds."""

    on_stale: Callable[[Resource], Awaitable[None]]
    """Called when a fence has failed."""
    register_later: Callable[[], None]
    """Called when a resource was closed and could not be opened again."""
    register_keys: Callable[[Resource], Awaitable[None]]
    """Called when a resource is to be written with another encryption key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorParts:
    """All parts of one coordinator."""

    mirror: Mirror
    membership: Membership
    lease: WriteLease
    """Whether this server renewed its lease in time to write."""
    table: EncodingTable
    registrar: Registrar
    collector: StorageVersionGarbageCollector
    selection: SelectionFollower | None
    """Follows the vote; None in a mode without votes."""
    reconciler: RemoteReconciler | None
    """Compares the main servers' StorageVersions with this server's own store."""
    agreements: Agreements
    custom_registration: CustomRegistration
    key_watch: KeyWatch | None
    """Switches this server to other encryption keys, if it has any."""
    custom: CustomResources | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Core:
    """The parts that most other parts need."""

    mirror: Mirror
    membership: Membership
    lease: WriteLease
    table: EncodingTable
    votes: VotePlanner
    registrar: Registrar
    opened: EventChannel[[Resource, Revision]]


def build_parts(inputs: CoordinatorInputs, repairs: Repairs) -> CoordinatorParts:
    """Build all parts. They subscribe to the mirror in this order and are called in it."""
    storage, catalog, runtime = inputs.storage, inputs.catalog, inputs.runtime
    mode = inputs.options.membership.mode
    hosted = {name_of(resource.kind.group_resource) for resource in catalog.persisted()}
    core = _build_core(inputs, repairs, hosted)
    collector = StorageVersionGarbageCollector(
        storage, core.mirror, core.membership, planner=core.votes, catalog=catalog, runtime=runtime
    )
    selection = _build_selection(inputs, core)
    reconciler = _build_reconciler(inputs, repairs, core, collector)
    agreements = Agreements(core.mirror, runtime.clock)
    custom_registration = CustomRegistration(
        core.mirror,
        core.membership,
        registrar=core.registrar,
        collector=collector,
        table=core.table,
        hosted=hosted,
    )
    key_watch = None
    if inputs.keys is not None and mode != "off":
        key_watch = KeyWatch(
            inputs.keys, catalog, core.registrar, runtime, register=repairs.register_keys
        )
    if selection is not None:
        # A version may be selected between the planning and the end of a registration.
        core.opened.subscribe(selection.catch_up)
    return CoordinatorParts(
        mirror=core.mirror,
        membership=core.membership,
        lease=core.lease,
        table=core.table,
        registrar=core.registrar,
        collector=collector,
        selection=selection,
        reconciler=reconciler,
        agreements=agreements,
        custom_registration=custom_registration,
        key_watch=key_watch,
        custom=None if inputs.custom is None else inputs.custom(custom_registration),
    )


def _build_core(inputs: CoordinatorInputs, repairs: Repairs, hosted: set[str]) -> _Core:
    storage, runtime, options = inputs.storage, inputs.runtime, inputs.options
    mode = options.membership.mode
    mirror = Mirror(storage, runtime, MIRRORED)
    membership = Membership(storage, runtime, options.membership)
    lease = WriteLease(membership, runtime.clock)
    table = _build_table(inputs, membership, lease, repairs)
    reports = ReportPlanner(mirror, membership, runtime, hosted=hosted, keys=inputs.keys)
    votes = VotePlanner(
        mirror,
        membership,
        runtime,
        hosted=hosted,
        votes=VoteIndex(mirror),
        may_force=options.may_force,
        keys=inputs.keys,
        loose_seconds=options.loose_bound_seconds if mode == "loose" else 0.0,
        still_written=table.still_written,
    )
    make: Callable[..., Registrar] = Registrar
    if inputs.remote is not None:
        make = partial(RemoteRegistrar, remote=inputs.remote, on_held=repairs.register_later)
    opened = EventChannel[[Resource, Revision]]()
    registrar = make(
        storage,
        mirror,
        membership,
        planner=votes if mode in ("strict", "loose") else reports,
        table=table,
        runtime=runtime,
        opened=opened,
        keys=inputs.keys,
    )
    return _Core(
        mirror=mirror,
        membership=membership,
        lease=lease,
        table=table,
        votes=votes,
        registrar=registrar,
        opened=opened,
    )


def _build_table(
    inputs: CoordinatorInputs, membership: Membership, lease: WriteLease, repairs: Repairs
) -> EncodingTable:
    options, runtime = inputs.options, inputs.runtime

    def member_at() -> Revision | None:
        return membership.revision

    if options.membership.mode != "loose":
        return EncodingTable(
            member_at=member_at, on_stale=repairs.on_stale, check_lease=lease.check
        )
    return LooseTable(
        runtime.clock,
        bound_seconds=options.loose_bound_seconds,
        member_at=member_at,
        on_stale=repairs.on_stale,
        check_lease=lease.check,
    )


def _build_selection(inputs: CoordinatorInputs, core: _Core) -> SelectionFollower | None:
    if inputs.options.membership.mode not in ("strict", "loose"):
        return None
    return SelectionFollower(
        inputs.storage,
        core.mirror,
        inputs.catalog,
        planner=core.votes,
        registrar=core.registrar,
        table=core.table,
        runtime=inputs.runtime,
        tasks=inputs.tasks,
    )


def _build_reconciler(
    inputs: CoordinatorInputs,
    repairs: Repairs,
    core: _Core,
    collector: StorageVersionGarbageCollector,
) -> RemoteReconciler | None:
    if inputs.remote is None:
        return None
    assert isinstance(core.registrar, RemoteRegistrar)
    return RemoteReconciler(
        inputs.storage,
        core.mirror,
        core.membership,
        inputs.catalog,
        inputs.runtime,
        remote=inputs.remote,
        registrar=core.registrar,
        table=core.table,
        collects_first=lambda: collector.collects_first,
        on_lost=repairs.register_later,
    )
