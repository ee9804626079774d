"""Codec of StorageVersions, StorageStates and identity Leases, which are stored as API objects.

These kinds have one stored version in all releases. Servers write them in their own transactions
below the API, which rejects writes of their fields by clients. Other content, such as labels, is
kept. Not here: when these objects are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson
from msgspec import UNSET

from restow.apis import coordination_v1, internal_v1alpha1, migration_v1alpha1
from restow.apis.encryption_keys import IDENTITY
from restow.apis.internal_v1alpha1 import (
    ServerStorageVersion,
    StorageVersion,
    StorageVersionCondition,
    StorageVersionStatus,
)
from restow.apis.migration_v1alpha1 import (
    GroupResourceRef,
    StorageState,
    StorageStateSpec,
    persisted_hashes,
)
from restow.apis.names import (
    DEFINITIONS_ANNOTATION,
    ENCRYPTION_PROBLEM_ANNOTATION,
    EPOCH_ANNOTATION,
    IDENTITY_LABEL,
    IDENTITY_LABEL_VALUE,
    KEYS_ANNOTATION,
    LEASE_NAMESPACE,
    LOCATIONS_ANNOTATION,
    LOOSE_ANNOTATION,
    MEMBER_ANNOTATION,
    OTHER_VERSIONS_ANNOTATION,
    PREFERRED_KEYS_ANNOTATION,
    READABLE_KEYS_ANNOTATION,
    SEQUENCES_ANNOTATION,
    STORES_ANNOTATION,
    UNREPORTED_ANNOTATION,
    VERIFIER_ANNOTATION,
)
from restow.kinds.builtin import find_kind
from restow.registry.stored_bytes import as_json, encode
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.errors import StoreDamaged
from restow.storage.interface import Item, Key
from restow.storageversion.identity import ServerId
from restow.storageversion.records import resource_of_name
from restow.storageversion.rules import (
    AgreementCondition,
    PersistedVersions,
    StorageVersionEntries,
    StorageVersionEntry,
)


def root_of(group: str, kind: str) -> str:
    """Return the prefix of the keys of a built-in kind's objects."""
    found = find_kind(group, kind)
    assert found is not None
    return f"{OBJECTS_PREFIX}{found.key_prefix}/"


REPORTS_PREFIX: Final = root_of(internal_v1alpha1.GROUP, internal_v1alpha1.KIND)
STATES_PREFIX: Final = root_of(migration_v1alpha1.GROUP, migration_v1alpha1.STORAGE_STATE)
LEASES_PREFIX: Final = f"{root_of(coordination_v1.GROUP, coordination_v1.KIND)}{LEASE_NAMESPACE}/"

LEASE_SECONDS_DEFAULT: Final = 3600.0
_PLAIN: Final = (IDENTITY,)
# Per-entry data besides the fields of Kubernetes, keyed by server id.
_ENTRY_ANNOTATIONS: Final = (
    KEYS_ANNOTATION,
    READABLE_KEYS_ANNOTATION,
    PREFERRED_KEYS_ANNOTATION,
    STORES_ANNOTATION,
    SEQUENCES_ANNOTATION,
    LOOSE_ANNOTATION,
    OTHER_VERSIONS_ANNOTATION,
    LOCATIONS_ANNOTATION,
    DEFINITIONS_ANNOTATION,
)

# The status fields of a StorageState that servers write. Controllers write the others.
_STATE_FIELDS: Final = frozenset(
    {
        "persistedStorageVersionHashes",
        "persistedEncryptionKeys",
        "currentStorageVersionHash",
        "lastHeartbeatTime",
    }
)


def timestamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def new_metadata(name: str, *, uid: str, now: datetime) -> dict[str, Any]:
    return {"name": name, "uid": uid, "creationTimestamp": timestamp(now)}


# StorageVersion.


@dataclass(frozen=True, slots=True)
class StoredReport:
    """Server entries with the metadata of their StorageVersion."""

    report: StorageVersionEntries
    metadata: Mapping[str, Any] = field(default_factory=dict)


def report_key(name: str) -> Key:
    return Key(REPORTS_PREFIX + name)


def decode_report(item: Item) -> StoredReport:
    """Decode a StorageVersion without its agreement, which is stored at the epoch key."""
    try:
        found = msgspec.json.decode(as_json(item.value), type=StorageVersion)
        annotations = {
            name: orjson.loads(_annotation(found.metadata, name) or b"{}")
            for name in _ENTRY_ANNOTATIONS
        }
        entries = tuple(_entry(entry, annotations) for entry in found.status.storage_versions)
    except (msgspec.MsgspecError, orjson.JSONDecodeError, AttributeError, TypeError) as error:
        raise StoreDamaged(f"{item.key} holds no StorageVersion: {error}") from error
    report = StorageVersionEntries(
        entries=entries,
        common_version=found.status.common_encoding_version,
        conditions=tuple(_condition(condition) for condition in found.status.conditions),
    )
    return StoredReport(report, found.metadata)


def encode_report(report: StorageVersionEntries, metadata: Mapping[str, Any]) -> bytes:
    owned = {EPOCH_ANNOTATION: str(report.epoch)}
    for name in _ENTRY_ANNOTATIONS:
        values = {entry.server_id: _annotation_value(name, entry) for entry in report.entries}
        if stored := {server_id: value for server_id, value in values.items() if value}:
            owned[name] = orjson.dumps(stored).decode()
    status = StorageVersionStatus(
        storage_versions=[
            ServerStorageVersion(
                api_server_id=entry.server_id,
                encoding_version=entry.encoding_version,
                decodable_versions=list(entry.decodable_versions),
                served_versions=list(entry.served_versions),
            )
            for entry in report.entries
        ],
        # KEP-2339 3.61: the status shows entries and common version
        common_encoding_version=report.common_version,
        conditions=[
            StorageVersionCondition(
                type=condition.type,
                status=condition.status,
                last_transition_time=condition.since,
                reason=condition.reason,
                message=condition.message,
                observed_generation=(
                    UNSET
                    if condition.observed_generation is None
                    else condition.observed_generation
                ),
            )
            for condition in report.conditions
        ],
    )
    annotated = _annotated(metadata, owned, *_ENTRY_ANNOTATIONS)
    found = StorageVersion(metadata=annotated, status=status)
    return encode(msgspec.to_builtins(found), internal_v1alpha1.API_VERSION, internal_v1alpha1.KIND)


def _annotation_value(annotation: str, entry: StorageVersionEntry) -> object:
    """Return the value of an annotation for one entry; a falsy value is not stored."""
    match annotation:
        case _ if annotation == KEYS_ANNOTATION:
            return entry.key_id
        case _ if annotation == READABLE_KEYS_ANNOTATION:
            return () if entry.readable_keys == _PLAIN else entry.readable_keys
        case _ if annotation == PREFERRED_KEYS_ANNOTATION:
            preferred = entry.preferred_key
            return "" if preferred is None else preferred or IDENTITY
        case _ if annotation == STORES_ANNOTATION:
            return entry.store
        case _ if annotation == SEQUENCES_ANNOTATION:
            return entry.sequence
        case _ if annotation == LOOSE_ANNOTATION:
            return entry.loose_seconds
        case _ if annotation == OTHER_VERSIONS_ANNOTATION:
            return entry.other_versions
        case _ if annotation == LOCATIONS_ANNOTATION:
            return entry.location
        case _:
            assert annotation == DEFINITIONS_ANNOTATION
            closing = {"closing": True} if entry.is_closing else {}
            return {"uid": entry.definition} | closing if entry.definition else {}


def _entry(
    entry: ServerStorageVersion, annotations: Mapping[str, Mapping[str, Any]]
) -> StorageVersionEntry:
    server_id = entry.api_server_id
    definition = annotations[DEFINITIONS_ANNOTATION].get(server_id) or {}
    key_id = annotations[KEYS_ANNOTATION].get(server_id, "")
    preferred = annotations[PREFERRED_KEYS_ANNOTATION].get(server_id)
    return StorageVersionEntry(
        server_id=ServerId(server_id),
        encoding_version=entry.encoding_version,
        decodable_versions=tuple(entry.decodable_versions),
        served_versions=tuple(entry.served_versions),
        key_id=key_id,
        readable_keys=tuple(annotations[READABLE_KEYS_ANNOTATION].get(server_id, _PLAIN)),
        preferred_key="" if preferred == IDENTITY else preferred,
        store=annotations[STORES_ANNOTATION].get(server_id, ""),
        sequence=annotations[SEQUENCES_ANNOTATION].get(server_id, 0),
        loose_seconds=annotations[LOOSE_ANNOTATION].get(server_id, 0.0),
        other_versions=tuple(annotations[OTHER_VERSIONS_ANNOTATION].get(server_id, ())),
        location=annotations[LOCATIONS_ANNOTATION].get(server_id, ""),
        definition=definition.get("uid", ""),
        is_closing=definition.get("closing", False),
    )


def _condition(condition: StorageVersionCondition) -> AgreementCondition:
    return AgreementCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        since=condition.last_transition_time or "",
        observed_generation=(
            None if condition.observed_generation is UNSET else condition.observed_generation
        ),
    )


# StorageState.


@dataclass(frozen=True, slots=True)
class StoredState:
    """Persisted versions with the rest of their StorageState."""

    state: PersistedVersions
    metadata: Mapping[str, Any]
    heartbeat: str | None = None
    found: Mapping[str, Any] = field(default_factory=dict)
    """The object as it was read: status fields that other writers own are kept."""


def state_key(name: str) -> Key:
    """Return the key of a StorageState, which is named `<resource>.<group>` or, in the core group,
    `<resource>`."""
    return Key(STATES_PREFIX + str(resource_of_name(name)))


def decode_state(item: Item) -> StoredState:
    try:
        obj = orjson.loads(item.value)
        found = msgspec.convert(_own_part(obj), StorageState)
        epoch = int(_annotation(found.metadata, EPOCH_ANNOTATION) or 0)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreDamaged(f"{item.key} holds no StorageState: {error}") from error
    state = PersistedVersions(
        persisted=persisted_hashes(found.status.persisted_storage_version_hashes),
        keys=tuple(found.status.persisted_encryption_keys) or _PLAIN,
        current=found.status.current_storage_version_hash,
        epoch=epoch,
        unreported=_annotation(found.metadata, UNREPORTED_ANNOTATION),
        verifier=_annotation(found.metadata, VERIFIER_ANNOTATION),
    )
    return StoredState(state, found.metadata, found.status.last_heartbeat_time, obj)


def encode_state(name: str, stored: StoredState) -> bytes:
    group, resource = resource_of_name(name)
    owned = {EPOCH_ANNOTATION: str(stored.state.epoch)}
    if stored.state.unreported:
        owned[UNREPORTED_ANNOTATION] = stored.state.unreported
    if stored.state.verifier:
        owned[VERIFIER_ANNOTATION] = stored.state.verifier
    mine: dict[str, Any] = msgspec.to_builtins(
        StorageState(
            metadata=_annotated(stored.metadata, owned, UNREPORTED_ANNOTATION),
            spec=StorageStateSpec(resource=GroupResourceRef(group=group, resource=resource)),
            status=migration_v1alpha1.StorageStateStatus(
                persisted_storage_version_hashes=list(stored.state.persisted),
                persisted_encryption_keys=_listed_keys(stored.state.keys),
                current_storage_version_hash=stored.state.current,
                last_heartbeat_time=stored.heartbeat,
            ),
        )
    )
    theirs = {
        name: value
        for name, value in (stored.found.get("status") or {}).items()
        if name not in _STATE_FIELDS
    }
    return encode(
        {**stored.found, **mine, "status": {**mine["status"], **theirs}},
        migration_v1alpha1.API_VERSION,
        migration_v1alpha1.STORAGE_STATE,
    )


def edited_state(
    item: Item, *, persisted: tuple[str, ...], keys: tuple[str, ...], owned: Mapping[str, str]
) -> bytes:
    """Return a stored state with other persisted hashes and keys, and these server annotations."""
    obj = orjson.loads(item.value)
    status = {**(obj.get("status") or {}), "persistedStorageVersionHashes": list(persisted)}
    status.pop("persistedEncryptionKeys", None)
    if listed := _listed_keys(keys):
        status["persistedEncryptionKeys"] = listed
    edited = {**obj, "metadata": _annotated(obj["metadata"], dict(owned)), "status": status}
    return encode(edited, migration_v1alpha1.API_VERSION, migration_v1alpha1.STORAGE_STATE)


def _listed_keys(keys: tuple[str, ...]) -> list[str]:
    """Return the keys as listed in the status, which omits them while nothing is encrypted."""
    return [] if keys == _PLAIN else list(keys)


def _own_part(obj: Any) -> Any:
    """Return the fields of a state that servers read, without nulls and other status fields, so
    that no client's value there can prevent a registration."""
    match obj:
        case {"status": dict(status)}:
            own = {name: status.get(name) for name in _STATE_FIELDS}
            return obj | {"status": {n: value for n, value in own.items() if value is not None}}
        case {"status": None}:
            return obj | {"status": {}}
        case _:
            return obj


# Lease.


def lease_key(server_id: ServerId) -> Key:
    return Key(LEASES_PREFIX + server_id)


def encode_lease(
    server_id: ServerId, *, metadata: Mapping[str, Any], holder: str, seconds: float, now: datetime
) -> bytes:
    """Encode the Lease that shows a server's membership to clients; no decision depends on it."""
    lease = coordination_v1.Lease(
        metadata=dict(metadata),
        spec=coordination_v1.LeaseSpec(
            holder_identity=f"{server_id}_{holder}",
            lease_duration_seconds=max(1, round(seconds)),
            renew_time=micro_timestamp(now),
        ),
    )
    return encode(msgspec.to_builtins(lease), coordination_v1.API_VERSION, coordination_v1.KIND)


def lease_seconds_of(item: Item) -> float:
    """Return the duration of a Lease; an hour, as in Kubernetes, if it has none."""
    try:
        spec = msgspec.json.decode(as_json(item.value), type=coordination_v1.Lease).spec
    except (msgspec.MsgspecError, StoreDamaged):
        return LEASE_SECONDS_DEFAULT
    return float(spec.lease_duration_seconds or LEASE_SECONDS_DEFAULT)


def is_foreign_lease(item: Item) -> bool:
    """Return whether a Lease belongs to an API server that does not participate."""
    try:
        metadata = msgspec.json.decode(as_json(item.value), type=coordination_v1.Lease).metadata
        is_identity = metadata["labels"][IDENTITY_LABEL] == IDENTITY_LABEL_VALUE
    except (msgspec.MsgspecError, StoreDamaged, KeyError, TypeError):
        return False
    return is_identity and not _annotation(metadata, MEMBER_ANNOTATION)


def encryption_problem(item: Item) -> str:
    """Return why a Lease's server rejects its encryption configuration file; empty: it does not."""
    try:
        metadata = msgspec.json.decode(as_json(item.value), type=coordination_v1.Lease).metadata
    except (msgspec.MsgspecError, StoreDamaged):
        return ""
    return _annotation(metadata, ENCRYPTION_PROBLEM_ANNOTATION)


# Metadata.


def _annotation(metadata: Mapping[str, Any], name: str) -> str:
    annotations = metadata.get("annotations")
    return str(annotations.get(name, "")) if isinstance(annotations, dict) else ""


def _annotated(metadata: Mapping[str, Any], owned: dict[str, str], *dropped: str) -> dict[str, Any]:
    """Return the metadata with the owned annotations, and without the dropped ones."""
    annotations = dict(metadata.get("annotations") or {})
    for name in dropped:
        annotations.pop(name, None)
    return {**metadata, "annotations": {**annotations, **owned}}
