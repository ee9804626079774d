"""Replays the log of a store for one custom resource, and checks invariants at every revision.

| checked at every revision | |
|---|---|
| C2 | every stored object, and every encoding version of a server, is in a version that the CRD lists in `storedVersions` |
| M4 | every object is stored in a version that the persisted hashes contain |
| R6 | every write is in a version that a server had reported; if the object names its writer, in the version which that server had reported |
| M5 | `storedVersions` and persisted hashes become fewer only while servers agree on the remaining version, and a migration is verified by its proof or by a server |

Nothing is sampled: the log of the store is complete.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.names import VERIFIED_ANNOTATION
from restow.migration.names import PROOF_ANNOTATION
from restow.storage.interface import Event, Item, Key, Revision, Storage
from restow.storageversion.object_codec import decode_state, state_key
from restow.storageversion.raw_scan import version_of
from restow.storageversion.records import (
    ENCODERS_PREFIX,
    decode_epoch,
    epoch_key,
    parse_encoder_key,
)
from restow.storageversion.rules import UNKNOWN_HASH
from tests.e2e.custom.replaying import replay

PLURAL: Final = "gadgets"
KIND: Final = "Gadget"
VERSIONS: Final = ("v1", "v2")
REQUESTS_ROOT: Final = "/registry/migration.k8s.io/storageversionmigrations/"


@dataclass(frozen=True, slots=True)
class Place:
    """The API paths and store keys of one custom resource."""

    group: str

    @property
    def name(self) -> str:
        """Of the CRD."""
        return f"{PLURAL}.{self.group}"

    @property
    def report_name(self) -> str:
        return f"{self.group}.{PLURAL}"

    @property
    def root(self) -> str:
        return f"/registry/{self.group}/{PLURAL}/"

    @property
    def definition_key(self) -> str:
        return f"/registry/apiextensions.k8s.io/customresourcedefinitions/{self.name}"

    def hash(self, version: str) -> str:
        return storage_version_hash(GroupVersionKind.of(f"{self.group}/{version}", KIND))

    def path(self, version: str, name: str = "") -> str:
        """Returns the path of the collection, or of one object."""
        objects = f"/apis/{self.group}/{version}/namespaces/default/{PLURAL}"
        return f"{objects}/{name}" if name else objects


@dataclass(slots=True)
class Trace:
    """The replayed log of one custom resource. Versions are without their group."""

    place: Place
    by_writer: bool = False
    """Whether `spec.writer` of each object is the server that has written it."""
    stored: dict[str, str] = field(default_factory=dict)
    """The version in which each object is stored."""
    encoders: dict[str, str] = field(default_factory=dict)
    """The version that each server has reported."""
    agreed: str | None = None
    listed: tuple[str, ...] = ()
    """`status.storedVersions`; empty while there is no CRD."""
    persisted: tuple[str, ...] = (UNKNOWN_HASH,)
    verified: str = ""
    """The hash of the last migration that a server has recorded as verified in the state."""
    proven: set[str] = field(default_factory=set)
    """The migrations that are verified now."""
    listings: list[tuple[str, ...]] = field(default_factory=list)
    """All values of `storedVersions`, in order."""
    written: Counter[str] = field(default_factory=Counter)
    """The number of writes by version."""
    broken: list[str] = field(default_factory=list)

    @property
    def left(self) -> dict[str, int]:
        """Counts the objects that are stored now, by version."""
        return dict(Counter(self.stored.values()))

    def take(self, events: Sequence[Event]) -> None:
        """Processes all changes of one revision."""
        listed, persisted = self.listed, self.persisted
        for event in events:
            self._take_report(event.key, event.value)
        for event in events:
            if event.key.startswith(self.place.root):
                self._take_object(event.key, event.value, event.revision)
        at = events[0].revision
        self._judge(at)
        if set(listed) - set(self.listed) and self.listed:
            is_proven = bool(self.proven)
            self._judge_fewer(at, listed, self.listed, wanted=self.agreed, is_proven=is_proven)
        if set(persisted) - set(self.persisted) and UNKNOWN_HASH not in self.persisted:
            wanted = None if self.agreed is None else self.place.hash(self.agreed)
            is_proven = self.verified == wanted
            self._judge_fewer(at, persisted, self.persisted, wanted=wanted, is_proven=is_proven)

    def _take_report(self, key: str, value: bytes | None) -> None:
        place = self.place
        if key.startswith(ENCODERS_PREFIX):
            server_id, name = parse_encoder_key(Key(key))
            if name == place.report_name:
                self.encoders.pop(server_id, None)
                if value is not None:
                    self.encoders[server_id] = _short(orjson.loads(value)["version"])
        elif key == place.definition_key:
            found: dict[str, Any] = {} if value is None else orjson.loads(value)
            self.listed = tuple(found.get("status", {}).get("storedVersions", ()))
            if self.listings[-1:] != [self.listed]:
                self.listings.append(self.listed)
        elif key == state_key(place.report_name):
            self.persisted, self.verified = (UNKNOWN_HASH,), ""
            if value is not None:
                stored = decode_state(Item(Key(key), value, Revision(0), Revision(0)))
                self.persisted = stored.state.persisted
                record = (stored.metadata.get("annotations") or {}).get(VERIFIED_ANNOTATION)
                self.verified = orjson.loads(record)["hash"] if record else ""
        elif key.startswith(REQUESTS_ROOT):
            self._take_request(key, {} if value is None else orjson.loads(value))
        elif key == epoch_key(place.report_name):
            agreement = None if value is None else decode_epoch(value).agreement
            self.agreed = None if agreement is None else _short(agreement.version)

    def _take_request(self, key: str, request: dict[str, Any]) -> None:
        self.proven.discard(key)
        is_own = request and request["spec"]["resource"].get("group") == self.place.group
        if is_own and PROOF_ANNOTATION in request["metadata"].get("annotations", {}):
            self.proven.add(key)

    def _take_object(self, key: str, value: bytes | None, revision: int) -> None:
        self.stored.pop(key, None)
        if value is None:
            return
        version = self.stored[key] = _short(version_of(value))
        self.written[version] += 1
        reported = set(self.encoders.values())
        if self.by_writer:
            reported = {self.encoders.get(orjson.loads(value)["spec"]["writer"], "(nothing)")}
        if version not in reported:
            self.broken.append(f"R6: {key} at {revision} in {version}, reported {reported}")

    def _judge(self, revision: int) -> None:
        stored, listed = set(self.stored.values()), set(self.listed)
        if not stored <= listed:
            self.broken.append(f"C2: stored {stored} at {revision}, listed {listed}")
        promised = set(self.encoders.values())
        if listed and not promised <= listed:
            self.broken.append(f"C2: servers write {promised} at {revision}, listed {listed}")
        hashes = {self.place.hash(version) for version in stored}
        if UNKNOWN_HASH not in self.persisted and not hashes <= set(self.persisted):
            self.broken.append(f"M4: stored {stored} at {revision}, persisted {self.persisted}")

    def _judge_fewer(
        self,
        revision: int,
        old: tuple[str, ...],
        new: tuple[str, ...],
        *,
        wanted: str | None,
        is_proven: bool,
    ) -> None:
        if new != (wanted,) or not is_proven:
            self.broken.append(
                f"M5: {old} -> {new} at {revision}, agreed {self.agreed}, {self.proven}"
            )


async def traced(storage: Storage, trace: Trace) -> Trace:
    """Replays the whole log, from its first revision to the current one."""
    await replay(storage, trace.take)
    return trace


def _short(api_version: str) -> str:
    return api_version.rpartition("/")[2]
