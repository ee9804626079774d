"""Operators who replace the store under running servers, accept it, or restore a backup.

    rolled back   the data of etcd are replaced by an older copy: same cluster id, older revision
    snapshot      etcd is restored from an older snapshot: another cluster id, older revision
    bumped        the same with --bump-revision: another cluster id, a revision above all seen
    other         the etcd of another cluster: another identity, a revision above all seen, and the
                  same cluster id, as etcd derives it from its addresses
    emptied       an empty etcd replies under the same address
    put back      the store that was replaced replies again
    restored      all servers are stopped, and an older backup is restored into an empty store

After all but the last, servers must refuse reads and writes until the store is accepted, which is
done by the production code of `restow store accept`. Not here: the checks (`soundness`, `clients`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from restow.aio import RandomIds, SeededRandomness
from restow.storage.identity import ID_BYTES, IdentityRecord, accept
from restow.storage.interface import Item, Key, Put, Revision, Transaction
from restow.storage.restore import fill
from tests.support.sim.network import GuardedWire, OperatorWire
from tests.support.sim.store import Copy
from tests.support.sim.world import World

BUMP: Final = 1_000_000
NOTICED_SECONDS: Final = 12.0
"""Servers read the identity at each renewal, every 5 s."""
GROWN_KEY: Final = Key("/restow/grown")
AHEAD: Final = 100_000
"""How far above the backup a restored store begins, as by `restow restore` into etcd."""


@dataclass(frozen=True, slots=True)
class Backup:
    """All keys of a store at one revision. Satisfies `restow.census.KeyValueSource`."""

    items: Sequence[Item]
    revision: int

    async def count(self, _prefixes: Sequence[str]) -> None:
        return None

    async def pages(self, prefixes: Sequence[str]) -> AsyncIterator[Sequence[tuple[str, bytes]]]:
        wanted = tuple(prefixes)
        yield [(item.key, item.value) for item in self.items if item.key.startswith(wanted)]

    async def close(self) -> None:
        return None


class Stores:
    """Operators' actions on the store of one world."""

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._storage = world.storage
        self._ids = RandomIds(SeededRandomness(seed))
        self._wire = OperatorWire(world.storage, world.link("operator"), "operator")
        self._before: Copy | None = None
        """The store that was replaced."""
        self._replaced_at = 0.0
        self._is_quiet = False
        """Whether only the identity shows that the store is another one."""

    @property
    def is_accepted(self) -> bool:
        return self._world.ledger.accepted_at is not None

    def revision_back(self, revisions: int) -> Revision:
        """An earlier revision that can still be read."""
        storage = self._storage
        return max(storage.oldest, Revision(storage.header.revision - revisions))

    def replace(self, how: str, revisions_back: int) -> None:
        """Replace the store from now on; `how` as in the module."""
        storage, revision = self._storage, self.revision_back(revisions_back)
        self._before = self._before or storage.copy()
        self._replaced_at = self._world.loop.time()
        self._is_quiet = how == "other"
        if how == "emptied":
            storage.become_empty()
            return
        record = IdentityRecord(self._ids.nonce(ID_BYTES))
        storage.go_back(
            revision,
            is_other_cluster=how in ("snapshot", "bumped"),
            bump=BUMP if how in ("bumped", "other") else 0,
            identity=msgspec.json.encode(record) if how == "other" else b"",
        )

    async def grow(self, revisions: int) -> None:
        """Raise the revision by direct writes, as with `etcdctl put`."""
        for _ in range(revisions):
            await self._wire.commit(Transaction(writes=(Put(GROWN_KEY, b""),)))

    def put_back(self) -> None:
        """Put back the store that was replaced."""
        if self._before is not None:
            floor = min(self._world.ledger.branch_floor, self._storage.header.revision)
            self._storage.become(self._before, floor=floor)
            self._before = None
            self._is_quiet = False

    async def accept(self) -> None:
        """Accept the store, as `restow store accept` does."""
        await accept(self._wire, self._ids)
        for server in self._world.running():
            if isinstance(server.wire, GuardedWire):
                server.wire.accepted()
        self._before = None
        self._world.ledger.accepted_at = self._world.loop.time()

    async def restore(self, revisions_back: int) -> None:
        """As `restow restore` of an older backup into an empty store; no server may run."""
        storage, revision = self._storage, self.revision_back(revisions_back)
        backup = Backup(storage.all_items(revision), revision)
        storage.become_empty(Revision(revision + AHEAD))
        await fill(self._wire, backup, self._ids, total=0, on_progress=lambda *_: None)
        storage.reset_ledger(floor=0)
        self._before = None
        self._world.ledger.accepted_at = self._world.loop.time()

    def note_write(self, sender: str, stamp: str) -> None:
        """A server has written an object."""
        if not self.is_accepted:
            wires = [each.wire for each in self._world.running() if each.name == sender]
            self._world.ledger.suspect[stamp] = lambda: (
                self._is_noticed
                or any(isinstance(each, GuardedWire) and each.has_seen_another for each in wires)
            )

    @property
    def _is_noticed(self) -> bool:
        """Whether all servers have had the time to read the identity of the store."""
        since = max(self._replaced_at, self._world.ledger.unpaused_at)
        return self._is_quiet and self._world.loop.time() > since + NOTICED_SECONDS
