"""The raw audit: every value that was ever stored must be in a version reported at that time.

The log is replayed revision by revision. At each of them:

    R1   an object of a versioned resource is stored in a version, and under a key, that a server
         had reported and not withdrawn; one acknowledged to a client, in that of the server that
         handled the request
    M4   all stored versions are among the persisted hashes
    M5   persisted hashes are removed only while servers agree on the remaining one
    A8   it can be decoded

Nothing is sampled. Not here: the replies to clients (`replay_check`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import orjson

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.registry.catalog import Catalog
from restow.storage.interface import Event, Item, Key, Revision
from restow.storageversion.identity import SERVERS_PREFIX, ServerId, decode_record, server_of
from restow.storageversion.object_codec import decode_state, state_key
from restow.storageversion.raw_scan import UNREADABLE, version_of
from restow.storageversion.records import (
    ENCODERS_PREFIX,
    EPOCHS_PREFIX,
    decode_epoch,
    is_held,
    name_of,
    parse_encoder_key,
)
from restow.storageversion.rules import UNKNOWN_HASH
from tests.support.fire.objects import Kind
from tests.support.fire.truth import Truth


@dataclass(frozen=True, slots=True)
class Kept:
    """A resource whose objects are audited."""

    name: str
    kind: str
    root: str


def kept_of(catalog: Catalog) -> list[Kept]:
    """All resources of a release that have a version to agree on."""
    return [
        Kept(name_of(each.kind.group_resource), each.kind.store.kind, each.root)
        for each in catalog.persisted()
        if not each.kind.pinned
    ]


@dataclass(slots=True)
class RawAudit:
    """The replay, and its results."""

    kept: list[Kept]
    ports: tuple[int, ...] = ()
    """Ports of the servers, in the order of their numbers in operations."""
    asked: Mapping[tuple[Key, int], int] = field(default_factory=dict)
    """Server that handled each known change, by key and revision."""
    problems: list[str] = field(default_factory=list)
    revisions: int = 0
    values: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    """Number of values of the objects by version written."""
    narrowed: Counter[str] = field(default_factory=Counter)
    """How often persisted hashes of a resource were removed."""
    reports: dict[ServerId, dict[str, tuple[str, str]]] = field(default_factory=dict)
    """By server and resource: its encoding version and key."""
    ports_of: dict[ServerId, int] = field(default_factory=dict)
    agreed: dict[str, str | None] = field(default_factory=dict)
    persisted: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stored: dict[str, Counter[str]] = field(default_factory=dict)
    """By resource: number of objects by current stored version."""
    stored_as: dict[Key, str] = field(default_factory=dict)
    _by_root: dict[str, Kept] = field(default_factory=dict)
    _states: dict[Key, Kept] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_root = {each.root: each for each in self.kept}
        self._states = {state_key(each.name): each for each in self.kept}

    def take(self, revision: int, events: Iterable[Event]) -> None:
        """Process all changes of one revision: previous reports first, then its changes."""
        self.revisions += 1
        touched: set[str] = set()
        narrowing: list[tuple[Kept, tuple[str, ...]]] = []
        for event in events:
            found = self._kept_of(event.key)
            if found is not None:
                touched.add(found.name)
                self._take_object(found, event)
            elif event.key in self._states:
                touched.add(self._states[event.key].name)
                narrowing += self._take_state(self._states[event.key], event.value)
            else:
                self._take_report(event.key, event.value)
        for each in self.kept:
            if each.name in touched:
                self._judge_stored(each, revision)
        for each, before in narrowing:
            self._judge_narrowing(each, before, revision)

    def _kept_of(self, key: Key) -> Kept | None:
        if not key.startswith("/registry/"):
            return None
        return next((each for root, each in self._by_root.items() if key.startswith(root)), None)

    def _take_object(self, kept: Kept, event: Event) -> None:
        counts = self.stored.setdefault(kept.name, Counter())
        old = self.stored_as.pop(event.key, None)
        if old is not None:
            counts[old] -= 1
        if event.value is None:
            return
        self.values += 1
        version = version_of(event.value)
        self.stored_as[event.key] = version
        counts[version] += 1
        self.versions[version] += 1
        if version == UNREADABLE:
            self.problems.append(f"A8: {event.key} at {event.revision} cannot be decoded")
            return
        writers = {
            server for server, said in self.reports.items() if said.get(kept.name) == (version, "")
        }
        where = f"{event.key} at {event.revision} is in {version}"
        if not writers:
            self.problems.append(f"R1: {where}, which no server had reported")
            return
        server = self.asked.get((event.key, event.revision))
        if server is not None and not any(
            self.ports_of.get(each) == self.ports[server] for each in writers
        ):
            self.problems.append(f"R1: {where}, which server {server + 1} had not reported")

    def _take_report(self, key: Key, value: bytes | None) -> None:
        if key.startswith(ENCODERS_PREFIX):
            server, name = parse_encoder_key(key)
            said = self.reports.setdefault(server, {})
            said.pop(name, None)
            if value is not None and not is_held(value):
                fields = orjson.loads(value)
                said[name] = (fields["version"], fields["key"])
        elif key.startswith(SERVERS_PREFIX):
            record = None if value is None else decode_record(value)
            if record is not None and record.address:
                self.ports_of[server_of(key)] = int(record.address.rpartition(":")[2])
        elif key.startswith(EPOCHS_PREFIX) and value is not None:
            agreement = decode_epoch(value).agreement
            name = key.removeprefix(EPOCHS_PREFIX)
            self.agreed[name] = None if agreement is None else agreement.version

    def _take_state(self, kept: Kept, value: bytes | None) -> list[tuple[Kept, tuple[str, ...]]]:
        before = self.persisted.pop(kept.name, None)
        if value is None:
            return []
        item = Item(state_key(kept.name), value, Revision(0), Revision(0))
        now = self.persisted[kept.name] = decode_state(item).state.persisted
        return [(kept, before)] if before is not None and set(now) < set(before) else []

    def _judge_stored(self, kept: Kept, revision: int) -> None:
        persisted = self.persisted.get(kept.name)
        if persisted is None or UNKNOWN_HASH in persisted:
            return
        for version, count in self.stored.get(kept.name, Counter()).items():
            if (
                count
                and storage_version_hash(GroupVersionKind.of(version, kept.kind)) not in persisted
            ):
                self.problems.append(
                    f"M4: {count} of {kept.name} are in {version} at {revision}, persisted"
                    f" {persisted}"
                )

    def _judge_narrowing(self, kept: Kept, before: tuple[str, ...], revision: int) -> None:
        self.narrowed[kept.name] += 1
        agreed, now = self.agreed.get(kept.name), self.persisted[kept.name]
        if agreed is None or now != (storage_version_hash(GroupVersionKind.of(agreed, kept.kind)),):
            self.problems.append(
                f"M5: {kept.name} went from {before} to {now} at {revision}, agreed {agreed}"
            )


def audit(
    truth: Truth,
    catalog: Catalog,
    *,
    ports: tuple[int, ...] = (),
    asked: Mapping[tuple[Key, int], int] | None = None,
    custom: Iterable[Kind] = (),
) -> RawAudit:
    """Audit the whole log; custom resources are audited as well if they are named."""
    kept = kept_of(catalog)
    kept += [Kept(each.resource_name, each.kind, each.root) for each in custom]
    found = RawAudit(kept, ports, asked or {})
    for entry in truth.log:
        found.take(entry.revision, entry.events)
    return found
