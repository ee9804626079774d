"""Registration of a server with a store of its own: the main servers are told before it writes.

It takes part in the agreement of its own store as every server does, and is fenced there. The main
servers report the same to everybody else, always at least as carefully. One registration is:

    hold    one transaction in the own store: the entry, and an encoder key that no write matches
    report  the main servers take the entry, by their API; repeated until they have
    open    one transaction in the own store: the encoder key becomes the one that writes match,
            if it still is the one that was held, and this server still has its key

Whatever ends half-way has closed the resource and nothing else. Two more rules make it whole:

- Words have the revision of the hold as their sequence. A late one is refused by the main servers.
- What was said is taken out only by who has read in the own store that no encoder key is there
  (`remote_reconciler`): at that revision, or for good, when the server's key is gone too.

How to use it: make a `Remote`, and give it to the `Coordinator`. In the mode `report` alone, since
a vote would move all entries of a store at once, and nobody could tell the main servers before.

    store_id = await ensure_store_id(storage, runtime)
    remote = Remote(main=ClientMainApi(client), store=store_id)      # apiserver/main_api.py
    coordinator = Coordinator(storage, catalog, runtime, options, remote=remote)

While the main servers cannot be reached, what is open stays open. What is not open yet waits, so
that the server is not ready, and nothing that is open changes.
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
"""The sequence up to which all is taken out that a server has ever said."""
MODE: Final = "report"
"""The only mode in which servers with a store of their own coordinate."""

logger = logging.getLogger(__name__)


class MainApi(Protocol):
    """The main servers, as far as a server with a store of its own has to do with them.

    Each call is bounded in time, and may be repeated. Raises `NotReported`, whose text says whether
    they could not be reached or have refused.
    """

    async def report(self, name: str, kind: str, entry: StorageVersionEntry) -> None:
        """Say how this server writes a resource; it has a store and a sequence."""

    async def withdraw(self, name: str, *, server_id: ServerId, store: str, sequence: int) -> None:
        """Take out what a server has said up to then."""

    async def entries(self) -> Mapping[str, tuple[StorageVersionEntry, ...]]:
        """What all servers say, by the name of the resource."""

    async def entries_of(self, name: str) -> tuple[StorageVersionEntry, ...]:
        """What all servers say of one resource, as it is now."""


def is_not_pinned(resource: Resource) -> bool:
    """Kinds with one version in all releases are each server's own: nothing is to be agreed on."""
    return not resource.kind.pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """To whom a server with a store of its own reports."""

    main: MainApi
    store: str
    """The id of the own store, from `ensure_store_id`."""
    is_reported: Callable[[Resource], bool] = is_not_pinned
    """Which resources are the main servers' business: those that they pass on to this one. The
    others are registered in the own store alone."""

    def check_mode(self, mode: str) -> None:
        """Raises `ModeRefused` for a mode in which nothing could be reported in time."""
        if mode != MODE:
            raise ModeRefused(
                f"a server with a store of its own coordinates in mode {MODE!r}, not {mode!r}: the"
                " main servers have to be told before it writes another version"
            )


class RemoteRegistrar(Registrar):
    """Registers the resources of a server with a store of its own."""

    def __init__(
        self, *args: Any, remote: Remote, on_held: Callable[[], None], **options: Any
    ) -> None:
        """`on_held` is called when a resource was closed and could not be opened again."""
        super().__init__(*args, **options)
        self._remote = remote
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._held: dict[str, bytes] = {}
        """The encoder keys of registrations that are half-way, by where the resource is stored."""
        self._on_held = on_held

    def lock(self, resource: Resource) -> asyncio.Lock:
        """Held by whoever changes what is said of a resource."""
        return self._locks[resource.root]

    async def register(
        self, resource: Resource, *, opened: Callable[[], None] = lambda: None
    ) -> None:
        """As without a store of its own. Raises `NotReported` besides."""
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
        """Nothing is closed for the sake of what the main servers would not take, or hear."""
        name = name_of(resource.kind.group_resource)
        for entry in await self._remote.main.entries_of(name):
            if entry.store != self._remote.store:
                where = f"in store {entry.store}" if entry.store else "in the store of the cluster"
                advice = f"; {forget_advice([entry.store])}" if entry.store else ""
                raise NotReported(
                    f"{name} is reported by {entry.server_id}, which keeps it {where}{advice}"
                )

    def _first_step(self, resource: Resource, planned: Planned) -> Transaction:
        """The registration, but with an encoder key that no write matches."""
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
        """Tell the main servers, then open the encoder key."""
        if not self._remote.is_reported(resource):
            return await super()._last_step(resource, planned, revision)
        entry = self._own_entry(planned)
        said = replace(
            entry,
            store=self._remote.store,
            sequence=revision,
            location="",
            definition="",
            is_closing=False,
        )
        name, kind = name_of(resource.kind.group_resource), resource.kind.store.kind
        await self._remote.main.report(name, kind, said)
        return await self._open(resource, entry)

    async def _open(self, resource: Resource, entry: StorageVersionEntry) -> Revision:
        """Let writes match the encoder key, unless this server was taken out meanwhile."""
        key, value = _encoder_key_of(resource, entry), encoder_of(entry)
        member = Present(server_key(entry.server_id))
        step = Transaction((member, ValueIs(key, self._held[resource.root])), (Put(key, value),))
        for _ in range(OPEN_ATTEMPTS_MAX):
            outcome = await self._storage.commit(step)
            match outcome:
                case Done(revision):
                    return revision
                case Refused(guard=guard) if guard == member:
                    raise MembershipLost(f"the key of {entry.server_id} is gone")
                case Refused(current=current):
                    # An earlier try of this very step may have happened: its answer was lost.
                    if current is not None and current.value == value:
                        return current.revision
                    raise NotSettled(
                        f"the encoder key of {resource.kind.group_resource} was changed by others"
                    )
        raise Unavailable(f"the store does not say whether {resource.kind.group_resource} is open")

    def _own_entry(self, planned: Planned) -> StorageVersionEntry:
        own = self._membership.id
        return next(entry for entry in planned.change.after.entries if entry.server_id == own)


def _encoder_key_of(resource: Resource, entry: StorageVersionEntry) -> Key:
    return encoder_key(entry.server_id, name_of(resource.kind.group_resource))


def forget_advice(stores: Iterable[str]) -> str:
    """What a person can do about entries of a store that is no more, which nobody here knows."""
    flags = " ".join(f"--forget-store {store}" for store in stores)
    return f"if that store is gone and no server on it runs, start this one with {flags}"


async def forget_store(main: MainApi, names: Iterable[str], *, store: str) -> int:
    """Take out all that servers of a store have ever said of these resources; how many entries.

    Nobody here can see that store. Whoever asks for it says that no server on it can write any
    more: one that runs all the same closes what it finds unsaid. Raises `NotReported`.
    """
    count = 0
    for name in names:
        for entry in await main.entries_of(name):
            if entry.store == store:
                await main.withdraw(name, server_id=entry.server_id, store=store, sequence=FOR_GOOD)
                logger.warning(
                    "forgotten: what %s of store %s has said of %s", entry.server_id, store, name
                )
                count += 1
    return count


async def ensure_store_id(storage: Storage, runtime: Runtime) -> str:
    """The id of a store, the same for all servers on it; made by the first."""
    for _ in range(STORE_ID_ATTEMPTS_MAX):
        made = runtime.ids.nonce(STORE_ID_BYTES)
        create = Transaction((Absent(STORE_ID_KEY),), (Put(STORE_ID_KEY, made.encode()),))
        outcome = await storage.commit(create)
        if isinstance(outcome, Done):
            return made
        if isinstance(outcome, Refused) and outcome.current is not None:
            return outcome.current.value.decode(errors="replace")
    raise Unavailable("the store does not say which it is")


async def check_not_reported(storage: Storage) -> None:
    """For a server that reports to nobody: its store must not be one whose servers do.

    What it would write the main servers would not know. Raises `OpenRefused`.
    """
    if await storage.get(STORE_ID_KEY) is not None:
        raise OpenRefused(
            "this store belongs to aggregated servers that report to the main servers of a"
            " cluster: start this one like them, with --aggregated, or give it another store"
        )
