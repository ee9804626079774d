"""Checks a store against what coordination promises: at every commit, or afterwards.

`AuditedStorage` is a store in memory that looks at each transaction before and after it happens,
and raises when one breaks a promise, whoever made it. `audit_history` reads a store of any kind and
asks of every object whether its version was reported when it was written.

    R1   a versioned object is written only under a fence that names the version of its bytes
    E1   an entry exists if and only if its encoder key does, with the same version
    G1   a common version is that of all entries
    M4   what is stored is among the persisted hashes, unless these are unknown
    EP   the epoch moves if and only if the agreement does
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import orjson

from restow.coordination.changes import hash_of
from restow.coordination.raw_scan import version_of
from restow.coordination.records import (
    ENCODERS_PREFIX,
    EPOCHS_PREFIX,
    SELECTED_PREFIX,
    decode_epoch,
    epoch_key,
    name_of,
    parse_encoder_key,
)
from restow.coordination.rules import UNKNOWN_HASH, Agreement, Report
from restow.coordination.wire import (
    REPORTS_PREFIX,
    decode_report,
    decode_state,
    report_key,
    state_key,
)
from restow.resources.catalog import Catalog
from restow.resources.definition import Resource
from restow.storage.interface import (
    Done,
    Guard,
    Item,
    Key,
    Outcome,
    Present,
    Put,
    Revision,
    Span,
    Storage,
    Transaction,
    ValueIs,
)
from restow.storage.memory import MemoryStorage

OBJECTS_PREFIX: Final = "/registry/"


class PromiseBroken(AssertionError):
    """A promise of coordination does not hold."""


class AuditedStorage(MemoryStorage):
    """A store in memory that refuses to go on once a promise is broken."""

    def __init__(self, catalogs: Iterable[Catalog]) -> None:
        super().__init__()
        self._resources: dict[str, Resource] = {}
        for catalog in catalogs:
            self._resources |= {resource.root: resource for resource in catalog.persisted()}
        self._by_name = {name_of(r.kind.group_resource): r for r in self._resources.values()}
        self.written = 0
        """Objects of versioned resources that were written under the fence."""
        self.broken: list[str] = []
        self.is_fenced = True
        """Whether writes carry a fence; those of a loose vote do not."""

    async def commit(self, transaction: Transaction) -> Outcome:
        names = {name for write in transaction.writes for name in self._names_of(write.key)}
        before = {name: await self._agreement(name) for name in names}
        outcome = await super().commit(transaction)
        if isinstance(outcome, Done) and transaction.writes:
            try:
                self._check_fence(transaction)
                for name, old in before.items():
                    await self._check_report(name)
                    await self._check_state(name)
                    await self._check_epoch(name, old)
            except PromiseBroken as broken:
                # Background work may swallow it; the test asks for it at its end.
                self.broken.append(str(broken))
                raise
        return outcome

    def submit(self, transaction: Transaction) -> asyncio.Future[Outcome]:
        """What is begun here is the write of one object, which touches no report."""
        outcome = super().submit(transaction)
        if isinstance(outcome.result(), Done):
            try:
                self._check_fence(transaction)
            except PromiseBroken as broken:
                self.broken.append(str(broken))
                raise
        return outcome

    def _names_of(self, key: Key) -> list[str]:
        """The resource that a key tells something about."""
        for prefix in (REPORTS_PREFIX, EPOCHS_PREFIX, SELECTED_PREFIX):
            if key.startswith(prefix):
                return [key.removeprefix(prefix)]
        if key.startswith(ENCODERS_PREFIX):
            return [parse_encoder_key(key)[1]]
        resource = self._resource_of(key)
        return [] if resource is None else [name_of(resource.kind.group_resource)]

    def check(self) -> None:
        """Raises what was broken."""
        if self.broken:
            raise PromiseBroken("; ".join(self.broken))

    def _resource_of(self, key: Key) -> Resource | None:
        return next((r for root, r in self._resources.items() if key.startswith(root)), None)

    def _check_fence(self, transaction: Transaction) -> None:
        for write in transaction.writes:
            resource = self._resource_of(write.key)
            if resource is None:
                if write.key.startswith(OBJECTS_PREFIX):
                    raise PromiseBroken(f"R1: {write.key} belongs to no resource of the catalogue")
                continue
            if resource.kind.pinned or not self.is_fenced:
                continue  # Guarded by the server's own key, or part of a registration.
            version = version_of(write.value) if isinstance(write, Put) else None
            if not any(_fences(guard, resource, version) for guard in transaction.guards):
                raise PromiseBroken(f"R1: {write.key} is written in {version} without a fence")
            self.written += 1

    async def _check_report(self, name: str) -> None:
        item = await self.get(report_key(name))
        report = Report() if item is None else decode_report(item).report
        entries = {entry.server_id: entry.encoding_version for entry in report.entries}
        versions = set(entries.values())
        if report.common_version is not None and versions != {report.common_version}:
            raise PromiseBroken(f"G1: {name} has {versions}, common {report.common_version}")
        found = (await self.range(Span.of_prefix(ENCODERS_PREFIX))).items
        encoders = {
            parse_encoder_key(item.key)[0]: orjson.loads(item.value)["version"]
            for item in found
            if item.key.endswith(f"/{name}")
        }
        if entries != encoders:
            raise PromiseBroken(f"E1: {name} has entries {entries}, encoder keys {encoders}")

    async def _check_state(self, name: str) -> None:
        resource = self._by_name.get(name)
        item = await self.get(state_key(name))
        if resource is None or item is None or resource.kind.pinned:
            return
        persisted = decode_state(item).state.persisted
        if UNKNOWN_HASH in persisted:
            return
        for stored in (await self.range(Span.of_prefix(resource.root))).items:
            if hash_of(resource.kind.store.kind, version_of(stored.value)) not in persisted:
                raise PromiseBroken(f"M4: {stored.key} is not in {persisted}")

    async def _agreement(self, name: str) -> tuple[int, Agreement | None]:
        item = await self.get(epoch_key(name))
        if item is None:
            return 0, None
        record = decode_epoch(item.value)
        return record.epoch, record.agreement

    async def _check_epoch(self, name: str, before: tuple[int, Agreement | None]) -> None:
        epoch, agreement = await self._agreement(name)
        if epoch != before[0] + (agreement != before[1]):
            raise PromiseBroken(f"EP: {name} went from {before} to {epoch} {agreement}")


def _fences(guard: Guard, resource: Resource, version: str | None) -> bool:
    """Whether a guard keeps a resource from being written in any other version."""
    name = name_of(resource.kind.group_resource)
    if isinstance(guard, ValueIs) and guard.key.startswith(ENCODERS_PREFIX):
        named = parse_encoder_key(guard.key)[1] == name
        return named and version in (None, orjson.loads(guard.value)["version"])
    if isinstance(guard, ValueIs) and guard.key == SELECTED_PREFIX + name:
        return version in (None, guard.value.decode())
    return isinstance(guard, Present) and resource.kind.pinned


async def audit_history(storage: Storage, catalog: Catalog) -> int:
    """See that each object's version was reported by some server when it was written.

    Returns how many objects were looked at. The store must not have been compacted meanwhile.
    """
    audited = 0
    encoders: dict[Revision, set[tuple[str, str]]] = {}
    for resource in catalog.persisted():
        if resource.kind.pinned:
            continue
        name = name_of(resource.kind.group_resource)
        for item in (await storage.range(Span.of_prefix(resource.root))).items:
            if item.revision not in encoders:
                encoders[item.revision] = await _reported(storage, item)
            version = version_of(item.value)
            if (name, version) not in encoders[item.revision]:
                raise PromiseBroken(f"R1: {item.key} was written in {version}, reported by nobody")
            audited += 1
    return audited


async def _reported(storage: Storage, item: Item) -> set[tuple[str, str]]:
    """Resources and versions that some server reported when an item was written."""
    found = await storage.range(Span.of_prefix(ENCODERS_PREFIX), revision=item.revision)
    return {
        (parse_encoder_key(encoder.key)[1], orjson.loads(encoder.value)["version"])
        for encoder in found.items
    }
