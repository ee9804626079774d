"""Registration of a server with its own store, which reports to the main servers first.

Such a server participates in the agreement of its own store like every server, and is fenced there.
At any time, the main servers list the same entries, or more restrictive ones. One registration has
three steps:

    hold    one transaction in the own store: the entry, and an encoder key that matches no write
    report  the main servers accept the entry through their API; repeated until they do
    open    one transaction in the own store: the encoder key becomes one that matches writes, if
            it still is the held one and this server still has its membership key

A registration that fails half-way has only closed the resource. Two more rules:

- An entry has the revision of its hold as its sequence. The main servers reject older entries.
- An entry is withdrawn only after a read of the own store has shown that the encoder key is absent
  (`remote_reconciler`): up to that revision, or permanently if the server's membership key is
  absent too.

Usage: create a `Remote` and pass it to the `Coordinator`. Only the mode `report` is supported,
because a vote would change all entries of a store at once, before the main servers could be
informed.

    store_id = await ensure_store_id(storage, runtime)
    remote = Remote(main=ClientMainApi(client), store=store_id)      # apiserver/main_api.py
    coordinator = Coordinator(storage, catalog, runtime, options, remote=remote)

While the main servers are unreachable, open resources stay open. Closed resources stay closed, and
the server is not ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from restow.aio import Runtime
from restow.registry.resource import Resource
from restow.storage.errors import OpenRefused, Unavailable
from restow.storage.interface import (
    Absent,
    Done,
    Key,
    Present,
    Put,
    Refused,
    Revision,
    Storage,
    Transaction,
    ValueIs,
)
from restow.storageversion.changes import encoder_of
from restow.storageversion.errors import MembershipLost, ModeRefused, NotReported, NotSettled
from restow.storageversion.identity import ServerId, server_key
from restow.storageversion.records import encoder_key, held_encoder, name_of
from restow.storageversion.registrar import Registrar
from restow.storageversion.registration_planner import Planned
from restow.storageversion.rules import StorageVersionEntry

STORE_ID_KEY: Final = Key("/restow/store-id")
STORE_ID_BYTES: Final = 16
STORE_ID_ATTEMPTS_MAX: Final = 5
OPEN_ATTEMPTS_MAX: Final = 10
NONCE_BYTES: Final = 8
FOR_GOOD: Final = 2**63 - 1
"""A sequence above every other: withdraws all entries that a server has ever reported."""
MODE: Final = "report"
"""The only coordination mode of servers with their own store."""

logger = logging.getLogger(__name__)


class MainApi(Protocol):
    """Client of the main servers' API for storage version entries.

    Each call has a time limit and may be repeated. Raises `NotReported`; its message
    distinguishes an unreachable server from a rejection.
    """

    async def report(self, name: str, kind: str, entry: StorageVersionEntry) -> None:
        """Report how this server writes a resource; the entry has a store and a sequence."""

    async def withdraw(self, name: str, *, server_id: ServerId, store: str, sequence: int) -> None:
        """Remove a server's entry if its sequence is not above this one."""

    async def entries(self) -> Mapping[str, tuple[StorageVersionEntry, ...]]:
        """Return the entries of all servers, by the name of the resource."""

    async def entries_of(self, name: str) -> tuple[StorageVersionEntry, ...]:
        """Return the current entries of all servers for one resource."""


def is_not_pinned(resource: Resource) -> bool:
    """Return False for kinds with one version in all releases, which need no agreement."""
    return not resource.kind.pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """The main servers to which a server with its own store reports."""

    main: MainApi
    store: str
    """The id of the own store, from `ensure_store_id`."""
    is_reported: Callable[[Resource], bool] = is_not_pinned
    """Whether a resource is reported: the main servers proxy requests for it to this server. Other
    resources are registered in the own store only."""

    def check_mode(self, mode: str) -> None:
        """Raise `ModeRefused` for a mode in which this server could not report before it writes."""
        # KEP-1201 0.26: a server with a store of its own does not vote
        if mode != MODE:
            raise ModeRefused(
                f"a server with its own store coordinates in mode {MODE!r}, not {mode!r}: it must"
                " report to the main servers before it writes another version"
            )


class RemoteRegistrar(Registrar):
    """Registers the resources of a server with its own store."""

    def __init__(
        self, *args: Any, remote: Remote, on_held: Callable[[], None], **options: Any
    ) -> None:
        """`on_held` is called when a resource was closed and could not be opened again."""
        super().__init__(*args, **options)
        self._remote = remote
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._held: dict[str, bytes] = {}
        """The encoder keys of registrations in progress, by the root of the resource."""
        self._on_held = on_held

    def lock(self, resource: Resource) -> asyncio.Lock:
        """Return the lock that every change of a resource's entry holds."""
        return self._locks[resource.root]

    async def register(
        self, resource: Resource, *, opened: Callable[[], None] = lambda: None
    ) -> None:
        """Register as without an own store. Also raises `NotReported`."""
        if not self._remote.is_reported(resource):
            await super().register(resource, opened=opened)
            return
        async with self.lock(resource):
            await self._check_main(resource)
            try:
                await super().register(resource, opened=opened)
            except Exception:
                if self._held.pop(resource.root, None) is not None:
                    self._table.close(resource)
                    self._on_held()
                raise
            self._held.pop(resource.root, None)

    async def settled(self, resource: Resource) -> None:
        async with self.lock(resource):
            return

    async def _check_main(self, resource: Resource) -> None:
        """Check before the resource is closed that the main servers are reachable and would accept
        the entry."""
        name = name_of(resource.kind.group_resource)
        for entry in await self._remote.main.entries_of(name):
            if entry.store != self._remote.store:
                where = f"in store {entry.store}" if entry.store else "in the store of the cluster"
                advice = f"; {forget_advice([entry.store])}" if entry.store else ""
                raise NotReported(
                    f"{name} is reported by {entry.server_id}, which keeps it {where}{advice}"
                )

    def _first_step(self, resource: Resource, planned: Planned) -> Transaction:
        """Return the registration, but with an encoder key that no write matches."""
        if not self._remote.is_reported(resource):
            return super()._first_step(resource, planned)
        entry = self._own_entry(planned)
        key, found = _encoder_key_of(resource, entry), planned.change.transaction
        held = held_encoder(encoder_of(entry), self._runtime.ids.nonce(NONCE_BYTES))
        self._held[resource.root] = held
        others = (write for write in found.writes if write.key != key)
        return Transaction(found.guards, (*others, Put(key, held)))

    async def _last_step(
        self, resource: Resource, planned: Planned, revision: Revision
    ) -> Revision:
        """Report the entry to the main servers, then open the encoder key."""
        if not self._remote.is_reported(resource):
            return await super()._last_step(resource, planned, revision)
        entry = self._own_entry(planned)
        reported = replace(
            entry,
            store=self._remote.store,
            sequence=revision,
            location="",
            definition="",
            is_closing=False,
        )
        name, kind = name_of(resource.kind.group_resource), resource.kind.store.kind
        # KEP-2339 3.40: with a store of its own, report to the main servers before the first write
        await self._remote.main.report(name, kind, reported)
        return await self._open(resource, entry)

    async def _open(self, resource: Resource, entry: StorageVersionEntry) -> Revision:
        """Let writes match the encoder key, unless this server was removed meanwhile."""
        key, value = _encoder_key_of(resource, entry), encoder_of(entry)
        member = Present(server_key(entry.server_id))
        step = Transaction((member, ValueIs(key, self._held[resource.root])), (Put(key, value),))
        for _ in range(OPEN_ATTEMPTS_MAX):
            outcome = await self._storage.commit(step)
            match outcome:
                case Done(revision):
                    return revision
                case Refused(guard=guard) if guard == member:
                    raise MembershipLost(f"the membership record of {entry.server_id} was removed")
                case Refused(current=current):
                    # An earlier attempt with an unknown outcome may have been committed.
                    if current is not None and current.value == value:
                        return current.revision
                    raise NotSettled(
                        f"another write changed the encoder key of {resource.kind.group_resource}"
                    )
        raise Unavailable(
            f"cannot tell whether {resource.kind.group_resource} is open: no commit was confirmed"
        )

    def _own_entry(self, planned: Planned) -> StorageVersionEntry:
        own = self._membership.id
        return next(entry for entry in planned.change.after.entries if entry.server_id == own)


def _encoder_key_of(resource: Resource, entry: StorageVersionEntry) -> Key:
    return encoder_key(entry.server_id, name_of(resource.kind.group_resource))


def forget_advice(stores: Iterable[str]) -> str:
    """Return the advice for entries of a store that may no longer exist."""
    flags = " ".join(f"--forget-store {store}" for store in stores)
    return f"if that store is lost and no server uses it, start this one with {flags}"


async def forget_store(main: MainApi, names: Iterable[str], *, store: str) -> int:
    """Withdraw all entries that servers of a store have for these resources; return their number.

    The main servers cannot read that store. The caller asserts that no server on it can write any
    more; a server that still runs closes each resource whose entry is missing. Raises
    `NotReported`.
    """
    count = 0
    for name in names:
        for entry in await main.entries_of(name):
            if entry.store == store:
                await main.withdraw(name, server_id=entry.server_id, store=store, sequence=FOR_GOOD)
                logger.warning(
                    "withdrew the entry of %s of store %s for %s", entry.server_id, store, name
                )
                count += 1
    return count


async def ensure_store_id(storage: Storage, runtime: Runtime) -> str:
    """Return the id of a store, which the first server creates."""
    for _ in range(STORE_ID_ATTEMPTS_MAX):
        made = runtime.ids.nonce(STORE_ID_BYTES)
        create = Transaction((Absent(STORE_ID_KEY),), (Put(STORE_ID_KEY, made.encode()),))
        outcome = await storage.commit(create)
        if isinstance(outcome, Done):
            return made
        if isinstance(outcome, Refused) and outcome.current is not None:
            return outcome.current.value.decode(errors="replace")
    raise Unavailable("cannot read or create the id of the store: no commit was confirmed")


async def check_not_reported(storage: Storage) -> None:
    """Check that the store of a server that does not report is not one whose servers do.

    The main servers would have no entry for its writes. Raises `OpenRefused`.
    """
    if await storage.get(STORE_ID_KEY) is not None:
        raise OpenRefused(
            "this store belongs to aggregated servers that report to the main servers of a"
            " cluster: start this one like them, with --aggregated, or give it another store"
        )
