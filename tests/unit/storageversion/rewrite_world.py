"""A server that rewrites stored objects, with injectable interference."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from restow.registry.store import ResourceStore
from restow.registry.stored_bytes import encode
from restow.storage import interface
from restow.storage.interface import (
    Done,
    Guard,
    Item,
    Key,
    Outcome,
    Put,
    Revision,
    Span,
    Storage,
    Transaction,
    Unknown,
)
from restow.storage.memory import MemoryStorage
from restow.storageversion.rewrite import Rewriter
from restow.storageversion.rewrite_page import RewrittenPage
from tests.support.storageversion_audit import stored_versions
from tests.unit.storageversion.world import GROUP, Line, Server, World, open_world

V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
ROOT = f"/registry/{GROUP}/widgets/"
NAME = f"{GROUP}.widgets"

Hook = Callable[[Transaction], Awaitable[None]]


class InterferingStorage(Line):
    """A server's connection to the store with interference in rewrites."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.before: Hook | None = None
        """Called before each commit to the objects."""
        self.drop: type[Guard] | None = None
        """The guards that a mutant omits."""
        self.lose: str = ""
        """When the reply of a commit is lost: `before` or `after` the commit is carried out."""
        self.chance: random.Random | None = None
        self.trace: list[str] = []

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        self.trace.append(f"get {key}")
        return await super().get(key, revision=revision)

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> interface.RangePage:
        self.trace.append(f"range {span.start} at {revision}")
        await self._linger()
        found = await super().range(span, limit=limit, revision=revision, with_total=with_total)
        await self._linger()
        return found

    async def commit(self, transaction: Transaction) -> Outcome:
        if not transaction.writes[0].key.startswith(ROOT):
            return await super().commit(transaction)
        self.trace.append(f"commit {transaction.writes[0].key}")
        if self.before is not None:
            await self.before(transaction)
        await self._linger()
        if self.drop is not None:
            kept = tuple(g for g in transaction.guards if not isinstance(g, self.drop))
            transaction = Transaction(kept, transaction.writes)
        if self.lose == "before":
            self.lose = ""
            return Unknown("lost")
        outcome = await super().commit(transaction)
        if self.lose == "after":
            self.lose = ""
            return Unknown("lost")
        await self._linger()
        return outcome

    async def _linger(self) -> None:
        for _ in range(self.chance.randrange(30) if self.chance is not None else 0):
            await asyncio.sleep(0)


class Rewriting:
    """A server that rewrites, in a world with other servers."""

    def __init__(self, world: World, server: Server) -> None:
        self.world = world
        self.server = server
        self.resource = server.resource()
        self.line = InterferingStorage(world.storage)
        policy = server.coordinator.policy
        self.store = ResourceStore(self.line, server.caches, policy, server.runtime)
        self.rewriter = Rewriter(self.store, policy, world.clock)

    async def page(self, **requested: Any) -> RewrittenPage:
        requested = {"target_version": V2, **requested}
        found: RewrittenPage = await self.world.run(
            self.rewriter.rewrite_page(self.resource, **requested)
        )
        return found

    async def whole(self, **requested: Any) -> list[RewrittenPage]:
        """Runs a complete pass."""
        pages = [await self.page(**requested)]
        while pages[-1].next_key is not None:
            pages.append(await self.page(start_key=pages[-1].next_key, **requested))
        return pages

    async def versions(self) -> dict[str, int]:
        return dict(await stored_versions(self.world.storage, ROOT))


async def put_raw(world: World, key: str, value: bytes) -> Revision:
    """Writes to the store directly, without fence and audit, as another program does."""
    outcome = await MemoryStorage.commit(world.storage, Transaction(writes=(Put(Key(key), value),)))
    assert isinstance(outcome, Done)
    return outcome.revision


def widget(name: str, version: str = V1, **fields: Any) -> bytes:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 1}
    return encode({"metadata": metadata, **fields}, version, "Widget")


def key_of(name: str) -> str:
    return f"{ROOT}ns/{name}"


async def fill(world: World, count: int, version: str = V1) -> None:
    for number in range(count):
        name = f"w{number:03d}"
        await put_raw(world, key_of(name), widget(name, version, spec={"count": 0}))


@asynccontextmanager
async def rewriting(directory: Path, **options: Any) -> AsyncIterator[Rewriting]:
    """Yields a single server of the newer release: all servers agree on v2."""
    async with open_world(directory, seed=options.pop("seed", 1)) as world:
        yield Rewriting(world, await world.started("x+2", **options))
