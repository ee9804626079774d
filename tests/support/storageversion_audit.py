"""Checks a store against the invariants of coordination: at every commit, or afterwards.

`AuditedStorage` is a store in memory that checks each transaction before and after it is applied,
and raises when one violates an invariant. `audit_history` reads a store of any kind and checks for
every object whether its version was reported when it was written.

    R1   a versioned object is written only under a fence that names the version of its bytes,
         and the encryption key that they are under
    E1   an entry exists if and only if its encoder key does, with the same version, held or not;
         one of a server with another store has none here
    G1   a common version is that of all entries
    M4   stored versions are among the persisted hashes, unless these are unknown; so are keys
    K1   a participating server that has an entry can decrypt all stored objects
    L1   a participating server that has an entry finds all stored objects: the keys have the form
         of its location
    EP   the epoch changes if and only if the agreement does

The store learns custom resources from the CRDs that are written to it. Of these also:

    C1   an object is written only while its CRD is stored, under a fence that names it
    C2   an object is written only in a version that `storedVersions` of its CRD lists
    C3   a participating server that has an entry can decode all stored objects
    C4   a server reports its version for one only as its CRD is stored then: the same one, in a
         version that `storedVersions` lists
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import orjson

from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.encryption_keys import IDENTITY, is_readable
from restow.encryption.interface import Opened
from restow.registry.catalog import Catalog
from restow.registry.custom.crds import ROOT, CustomResourceDefinition
from restow.registry.resource import Resource
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
    ValueIs,
)
from restow.storage.memory import MemoryStorage
from restow.storageversion.changes import encoder_of
from restow.storageversion.identity import SERVERS_PREFIX
from restow.storageversion.object_codec import (
    REPORTS_PREFIX,
    STATES_PREFIX,
    decode_report,
    decode_state,
    report_key,
    state_key,
)
from restow.storageversion.raw_scan import scan, version_of
from restow.storageversion.records import (
    ENCODERS_PREFIX,
    EPOCHS_PREFIX,
    SELECTED_PREFIX,
    decode_epoch,
    epoch_key,
    is_held,
    name_of,
    open_encoder,
    parse_encoder_key,
)
from restow.storageversion.rules import UNKNOWN_HASH, Agreement, StorageVersionEntries

OBJECTS_PREFIX: Final = "/registry/"


class PromiseBroken(AssertionError):
    """An invariant of coordination is violated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Audited:
    """The facts about a resource that are needed to check a transaction."""

    name: str
    kind: str
    root: str
    is_pinned: bool = False
    definition_key: Key | None = None
    """Only for a custom resource."""

    @classmethod
    def of_resource(cls, resource: Resource) -> _Audited:
        kind = resource.kind
        return cls(
            name=name_of(kind.group_resource),
            kind=kind.store.kind,
            root=resource.root,
            is_pinned=kind.pinned,
        )

    @classmethod
    def of_definition(cls, definition: CustomResourceDefinition) -> _Audited:
        plural = definition.accepted_names.plural
        return cls(
            name=name_of(GroupResource(definition.group, plural)),
            kind=definition.accepted_names.kind,
            root=f"{OBJECTS_PREFIX}{definition.group}/{plural}/",
            definition_key=definition.key,
        )


Opens = Callable[[bytes], Opened]
"""Returns the decrypted value, and the id of the key."""


def _plain(value: bytes) -> Opened:
    return Opened(value, "")


class AuditedStorage(MemoryStorage):
    """A store in memory that rejects further work once an invariant is violated."""

    def __init__(self, catalogs: Iterable[Catalog], *, opens: Opens = _plain) -> None:
        super().__init__()
        self._opens = opens
        """How the test reads encrypted values."""
        self._audited: dict[str, _Audited] = {}
        """By root."""
        self._by_name: dict[str, _Audited] = {}
        self._definitions: dict[Key, CustomResourceDefinition] = {}
        """The CRDs as they are stored now."""
        for catalog in catalogs:
            for resource in catalog.persisted():
                self._learn(_Audited.of_resource(resource))
        self.written = 0
        """Objects of versioned resources that were written under the fence."""
        self.broken: list[str] = []
        self.planted: set[Key] = set()
        """Keys that a test has stored directly: no server need be able to read them."""
        self.is_fenced = True
        """Whether writes carry a fence; those of a loose vote do not."""

    async def commit(self, transaction: Transaction) -> Outcome:
        written = {write.key: self._of_key(write.key) for write in transaction.writes}
        names = {name for key in written for name in self._resources_named_by(key)}
        before = {name: await self._agreement(name) for name in names}
        outcome = await super().commit(transaction)
        if isinstance(outcome, Done) and transaction.writes:
            try:
                self._check_fence(transaction)
                self._check_encoders(transaction)
                for name, old in before.items():
                    await self._check_report(name)
                    await self._check_state(name)
                    await self._check_readers(name)
                    await self._check_epoch(name, old)
                for key, found in written.items():
                    if found is not None and found.name not in names:
                        # Everything else was checked when it was written.
                        await self._check_state(found.name, Span.of_key(key))
                        await self._check_readers(found.name, Span.of_key(key))
            except PromiseBroken as broken:
                # Background work may swallow it; the test checks it at its end.
                self.broken.append(str(broken))
                raise
            self._note_definitions(transaction, outcome.revision)
        return outcome

    def _learn(self, audited: _Audited) -> None:
        self._audited[audited.root] = self._by_name[audited.name] = audited

    def _note_definitions(self, transaction: Transaction, revision: Revision) -> None:
        """Update the custom resources, and the entries of those without a CRD."""
        for write in transaction.writes:
            if not write.key.startswith(ROOT):
                continue
            if not isinstance(write, Put):
                self._definitions.pop(write.key, None)
                continue
            definition = CustomResourceDefinition(write.key, write.value, revision)
            self._definitions[write.key] = definition
            if definition.is_hostable:
                found = _Audited.of_definition(definition)
                known = self._audited.get(found.root)
                if known is None or known.definition_key is not None:  # else a release hosts it
                    self._learn(found)

    def _resources_named_by(self, key: Key) -> list[str]:
        """The resources that a key is about, without being one of their objects."""
        for prefix in (REPORTS_PREFIX, EPOCHS_PREFIX, SELECTED_PREFIX):
            if key.startswith(prefix):
                return [key.removeprefix(prefix)]
        if key.startswith(ENCODERS_PREFIX):
            return [parse_encoder_key(key)[1]]
        if key.startswith(STATES_PREFIX):
            try:
                return [name_of(GroupResource.parse(key.removeprefix(STATES_PREFIX)))]
            except InvalidName:
                return []
        return []

    def check(self) -> None:
        """Raises the recorded violations."""
        if self.broken:
            raise PromiseBroken("; ".join(self.broken))

    def _of_key(self, key: Key) -> _Audited | None:
        return next((r for root, r in self._audited.items() if key.startswith(root)), None)

    def _check_fence(self, transaction: Transaction) -> None:
        for write in transaction.writes:
            found = self._of_key(write.key)
            if found is None:
                if write.key.startswith(OBJECTS_PREFIX):
                    raise PromiseBroken(f"R1: {write.key} belongs to no resource of the catalogue")
                continue
            if found.is_pinned or not self.is_fenced:
                continue  # Guarded by the server's own key, or part of a registration.
            version, key_id = self._how(write.value) if isinstance(write, Put) else (None, None)
            if not any(_fences(guard, found.name, version) for guard in transaction.guards):
                raise PromiseBroken(f"R1: {write.key} is written in {version} without a fence")
            if not any(_fences_key(guard, found.name, key_id) for guard in transaction.guards):
                raise PromiseBroken(f"R1: {write.key} is under {key_id!r} without a fence")
            if found.definition_key is not None:
                self._check_defined(transaction, write.key, version, found.definition_key)
            self.written += 1

    def _check_defined(
        self, transaction: Transaction, key: Key, version: str | None, definition_key: Key
    ) -> None:
        """Check the CRD when one of its objects is written."""
        definition = self._definitions.get(definition_key)
        if definition is None:
            raise PromiseBroken(f"C1: {key} is written in {version} without a CRD")
        named = {
            orjson.loads(guard.value).get("definition")
            for guard in transaction.guards
            if isinstance(guard, ValueIs) and guard.key.startswith(ENCODERS_PREFIX)
        }
        if named != {definition.uid}:
            raise PromiseBroken(f"C1: {key} is written for {named}, defined by {definition.uid}")
        stored = definition.stored_versions
        if version is not None and version.rpartition("/")[2] not in stored:
            raise PromiseBroken(f"C2: {key} is written in {version}, stored are {stored}")

    def _check_encoders(self, transaction: Transaction) -> None:
        for write in transaction.writes:
            if not isinstance(write, Put) or not write.key.startswith(ENCODERS_PREFIX):
                continue
            found = self._by_name.get(parse_encoder_key(write.key)[1])
            if found is None or found.definition_key is None:
                continue
            definition, said = (
                self._definitions.get(found.definition_key),
                orjson.loads(write.value),
            )
            if definition is None or said.get("definition") != definition.uid:
                raise PromiseBroken(f"C4: {write.key} names {said}, defined is {definition}")
            version, stored = said["version"].rpartition("/")[2], definition.stored_versions
            if version not in stored:
                raise PromiseBroken(f"C4: {write.key} names {version}, stored are {stored}")

    async def _check_report(self, name: str) -> None:
        item = await self.get(report_key(name))
        report = StorageVersionEntries() if item is None else decode_report(item).report
        versions = {version for entry in report.entries for version in entry.written}
        if report.common_version is not None and versions != {report.common_version}:
            raise PromiseBroken(f"G1: {name} has {versions}, common {report.common_version}")
        entries = {e.server_id: encoder_of(e) for e in report.entries if not e.store}
        found = (await self.range(Span.of_prefix(ENCODERS_PREFIX))).items
        encoders = {
            parse_encoder_key(item.key)[0]: open_encoder(item.value)
            for item in found
            if item.key.endswith(f"/{name}")
        }
        if entries != encoders:
            raise PromiseBroken(f"E1: {name} has entries {entries}, encoder keys {encoders}")

    async def _check_state(self, name: str, span: Span | None = None) -> None:
        found = self._by_name.get(name)
        item = await self.get(state_key(name))
        if found is None or item is None or found.is_pinned:
            return
        state = decode_state(item).state
        if UNKNOWN_HASH in state.persisted:
            return
        for stored in (await self.range(span or Span.of_prefix(found.root))).items:
            version, key_id = self._how(stored.value)
            if (
                storage_version_hash(GroupVersionKind.of(version, found.kind))
                not in state.persisted
            ):
                raise PromiseBroken(f"M4: {stored.key} is not in {state.persisted}")
            if (key_id or IDENTITY) not in state.keys:
                raise PromiseBroken(f"M4: {stored.key} is under {key_id!r}, not in {state.keys}")

    async def _check_readers(self, name: str, span: Span | None = None) -> None:
        found = self._by_name.get(name)
        item = await self.get(report_key(name))
        if found is None or item is None or found.is_pinned:
            return
        objects = (await self.range(span or Span.of_prefix(found.root))).items
        stored = {self._how(each.value) for each in objects if each.key not in self.planted}
        places = [each.key for each in objects if each.key not in self.planted]
        for entry in decode_report(item).report.entries:
            if await self.get(Key(SERVERS_PREFIX + entry.server_id)) is None:
                continue
            unread = {version for version, _ in stored} - set(entry.decodable_versions)
            if unread and found.definition_key is not None:
                raise PromiseBroken(f"C3: {entry.server_id} cannot read {unread} of {name}")
            slashes = entry.location.count("/")
            lost = [key for key in places if entry.location and key.count("/") != slashes]
            if lost:
                raise PromiseBroken(f"L1: {entry.server_id} does not find {lost} of {name}")
            sealed = [key for _, key in stored if not is_readable(key, entry.readable_keys)]
            if sealed:
                raise PromiseBroken(f"K1: {entry.server_id} cannot read {sealed} of {name}")

    def _how(self, value: bytes) -> tuple[str, str]:
        """The version of a stored value, and its encryption key."""
        opened = self._opens(value)
        return version_of(opened.value), opened.key_id

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


def _fences(guard: Guard, name: str, version: str | None) -> bool:
    """Whether a guard prevents writes of a resource in any other version."""
    if not isinstance(guard, ValueIs):
        return False
    if guard.key.startswith(ENCODERS_PREFIX):
        named = parse_encoder_key(guard.key)[1] == name
        return named and version in (None, orjson.loads(guard.value)["version"])
    if guard.key == SELECTED_PREFIX + name:
        return version in (None, guard.value.decode())
    return False


def _fences_key(guard: Guard, name: str, key_id: str | None) -> bool:
    """Whether a guard prevents writes of a resource under any other key."""
    if not isinstance(guard, ValueIs) or not guard.key.startswith(ENCODERS_PREFIX):
        return False
    named = parse_encoder_key(guard.key)[1] == name
    return named and key_id in (None, orjson.loads(guard.value)["key"])


async def audit_history(storage: Storage, catalog: Catalog) -> int:
    """Check that each object's version was reported by some server when it was written.

    Returns the number of checked objects. The store must not have been compacted meanwhile.
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
                raise PromiseBroken(f"R1: {item.key} is in {version}, which no server reported")
            audited += 1
    return audited


async def stored_versions(storage: Storage, root: str) -> Counter[str]:
    """Number of objects under a root by stored `apiVersion`; none may be encrypted."""
    return (await scan(storage, root, None)).versions


async def _reported(storage: Storage, item: Item) -> set[tuple[str, str]]:
    """Resources and versions that some server reported when an item was written."""
    found = await storage.range(Span.of_prefix(ENCODERS_PREFIX), revision=item.revision)
    return {
        (parse_encoder_key(encoder.key)[1], orjson.loads(encoder.value)["version"])
        for encoder in found.items
        if not is_held(encoder.value)
    }
