"""Encryption keys in StorageVersions and StorageStates, and their names for people.

A missing key means `identity`: nothing is encrypted. Kubernetes servers report no keys, which reads
the same. A value that cannot be parsed becomes `Unknown`, which agrees with no key.

Pure. Not here: the conclusions from it (the trigger's rules, `overview_keys`, `preflight`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from restow.apis.encryption_keys import IDENTITY, is_readable
from restow.apis.internal_v1alpha1 import StorageVersion
from restow.apis.names import (
    DEFINITIONS_ANNOTATION,
    KEYS_ANNOTATION,
    LOCATIONS_ANNOTATION,
    PREFERRED_KEYS_ANNOTATION,
    READABLE_KEYS_ANNOTATION,
    STORES_ANNOTATION,
)

KEYS_EQUAL: Final = "AllEncryptionKeysEqual"
KEY_PENDING: Final = "EncryptionKeyPending"
"""The reason of that condition when all write with one key and some wait for another."""
UNKNOWN_KEY: Final = "Unknown"
PLAIN: Final = (IDENTITY,)
_KMS: Final = "kms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedKeys:
    """The encryption keys that the servers report for a resource. Each key is given by its id."""

    writes: Mapping[str, str] = field(default_factory=dict)
    """The key with which each server writes."""
    prefers: Mapping[str, str] = field(default_factory=dict)
    """The key with which a server writes as soon as all servers can read it, if it waits."""
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The keys that each server can read."""
    stores: Mapping[str, str] = field(default_factory=dict)
    """The store of each aggregated server that has its own."""
    locations: Mapping[str, str] = field(default_factory=dict)
    """The form of the keys under which each server stores objects."""
    custom: frozenset[str] = frozenset()
    """Servers that have the resource from a CRD."""
    is_split: bool = False
    """Whether servers write with different keys, according to AllEncryptionKeysEqual and its
    reason."""

    @property
    def agreed(self) -> str:
        """The key with which all servers write; empty if they differ or if there are none."""
        found = set(self.writes.values()) - {UNKNOWN_KEY}
        is_one = len(found) == 1 and UNKNOWN_KEY not in self.writes.values() and not self.is_split
        return found.pop() if is_one else ""

    @property
    def is_encrypted(self) -> bool:
        """Whether any server writes, prefers or reads a key other than identity."""
        known = {*self.writes.values(), *self.prefers.values()}
        return known - {IDENTITY} != set() or any(
            set(each) - {IDENTITY} for each in self.reads.values()
        )

    def servers_unable_to_read(self, key_id: str) -> tuple[str, ...]:
        """Return the servers that cannot read values under a key."""
        return tuple(
            sorted(server for server, known in self.reads.items() if not is_readable(key_id, known))
        )


def reported_keys(found: StorageVersion) -> ReportedKeys:
    """Read the encryption keys of a StorageVersion."""
    metadata, servers = found.metadata, [e.api_server_id for e in found.status.storage_versions]
    annotations = metadata.get("annotations")
    said = annotations if isinstance(annotations, dict) else {}
    keys = _object(said.get(KEYS_ANNOTATION))
    prefers = _object(said.get(PREFERRED_KEYS_ANNOTATION)) or {}
    reads = _object(said.get(READABLE_KEYS_ANNOTATION))
    stores = _object(said.get(STORES_ANNOTATION)) or {}
    locations = _object(said.get(LOCATIONS_ANNOTATION)) or {}
    condition = next((e for e in found.status.conditions if e.type == KEYS_EQUAL), None)
    return ReportedKeys(
        writes={each: _key(keys, each) for each in servers},
        prefers={each: _text(prefers[each]) for each in servers if each in prefers},
        reads={each: _keys(reads, each) for each in servers},
        stores={each: _text(stores[each]) for each in servers if each in stores},
        locations={each: _text(locations[each]) for each in servers if each in locations},
        custom=frozenset(_object(said.get(DEFINITIONS_ANNOTATION)) or ()).intersection(servers),
        is_split=condition is not None
        and condition.status != "True"
        and condition.reason != KEY_PENDING,
    )


def persisted_keys(status: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys under which objects may be stored, from the status of a StorageState."""
    found = status.get("persistedEncryptionKeys")
    if found is None or found == []:
        return PLAIN
    if not isinstance(found, list):
        return (UNKNOWN_KEY,)
    return tuple(dict.fromkeys(_text(each) for each in found))


# Names.


def labels_of(key_ids: Iterable[str]) -> dict[str, str]:
    """Return short names of keys for people: without the fingerprint where that is unambiguous.

    The last part of a KMS key is its name in the plug-in, and stays.
    """
    ids = sorted(set(key_ids))
    short = {each: _name(each) for each in ids}
    counts = Counter(short.values())
    return {each: name if counts[name] == 1 else each for each, name in short.items()}


def is_called(key_id: str, name: str) -> bool:
    """Whether a name may mean this key: `key1`, `aesgcm:key1`, or its id."""
    if key_id in (IDENTITY, UNKNOWN_KEY):
        return key_id == name
    provider, _, rest = key_id.partition(":")
    plain, _, _ = rest.partition(":")
    return name in {key_id, plain, f"{provider}:{plain}"}


def is_known(name: str, key_ids: Iterable[str]) -> bool:
    """Whether a name may mean one of these keys."""
    return name == IDENTITY or any(
        is_called(each, name) or is_readable(name, (each,)) for each in key_ids
    )


def _name(key_id: str) -> str:
    provider, _, rest = key_id.partition(":")
    return key_id if provider == _KMS or not rest else f"{provider}:{rest.partition(':')[0]}"


# Annotations are untrusted input: every type is checked.


def _object(value: object) -> dict[str, Any] | None:
    """Parse the JSON object of an annotation; None if it is something else."""
    if value is None or value == "":
        return {}
    try:
        found = orjson.loads(value) if isinstance(value, str) else None
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _key(said: dict[str, Any] | None, server: str) -> str:
    return UNKNOWN_KEY if said is None else _text(said.get(server, IDENTITY))


def _keys(said: dict[str, Any] | None, server: str) -> tuple[str, ...]:
    found = PLAIN if said is None else said.get(server, PLAIN)
    return tuple(map(_text, found)) if isinstance(found, list | tuple) else PLAIN


def _text(value: object) -> str:
    return value if isinstance(value, str) and value else UNKNOWN_KEY
