"""Encryption keys in the trigger's rules: another key is a storage change like another version."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest

from restow.apis.internal_v1alpha1 import (
    ServerStorageVersion,
    StorageVersion,
    StorageVersionCondition,
    StorageVersionStatus,
)
from restow.apis.names import EPOCH_ANNOTATION, KEYS_ANNOTATION
from restow.migration.encryption_keys import is_called, labels_of, persisted_keys
from restow.migration.migration_values import (
    MigrationPhase,
    MigrationRecord,
    MigrationRef,
    MigrationSeen,
)
from restow.migration.trigger.actions import (
    CreateMigration,
    DeleteMigration,
    Narrow,
    Nothing,
    UpdateState,
    Wait,
)
from restow.migration.trigger.decide import decide
from restow.migration.trigger.readings import reading_of
from restow.migration.trigger.values import (
    DiscoveryReading,
    Now,
    Reading,
    Settings,
    StateSeen,
    StateStatus,
    StorageVersionReading,
    TriggerView,
)
from tests.unit.migration.trigger.world import RESOURCE, START

K1, K2 = "aesgcm:key1:11", "aesgcm:key2:22"
NOW = Now(50_000.0, START + timedelta(seconds=50_000))
READING = StorageVersionReading(uid="v", epoch="4", common="h1", written=frozenset({"h1"}))
STATE = StateSeen(
    uid="u",
    resource_version="9",
    epoch="4",
    status=StateStatus(persisted=("h1",), keys=(K1, K2), current="h1", heartbeat=NOW.wall),
)
RECORD = MigrationRecord(
    target="h1", state_uid="u", change="", epoch="4", storage_version="v/epoch/4"
)


def version(keys: Any = "", *, status: str = "", reason: str = "") -> StorageVersion:
    said = keys if isinstance(keys, str) else orjson.dumps(keys).decode()
    return StorageVersion(
        metadata={"uid": "v", "annotations": {EPOCH_ANNOTATION: "4", KEYS_ANNOTATION: said}},
        status=StorageVersionStatus(
            storage_versions=[
                ServerStorageVersion(api_server_id=each, encoding_version="apps/v1")
                for each in ("a", "b")
            ],
            common_encoding_version="apps/v1",
            conditions=[
                StorageVersionCondition(type="AllEncryptionKeysEqual", status=status, reason=reason)
            ]
            if status
            else [],
        ),
    )


@pytest.mark.parametrize(
    ("found", "key", "is_agreed"),
    [
        (version(), "identity", True),
        (version({"a": K1, "b": K1}), K1, True),
        (version({"a": K1, "b": K1}, status="False", reason="EncryptionKeyPending"), K1, True),
        (version({"a": K1, "b": K1}, status="False", reason="CommonEncryptionKeyUnset"), "", False),
        (version({"a": K1}), "", False),
        (version({"a": K1, "b": K2}), "", False),
        (version("nonsense"), "", False),
        (version([K1]), "", False),
    ],
)
def test_agreement_is_on_a_version_and_a_key(
    found: StorageVersion, key: str, is_agreed: bool
) -> None:
    """Servers that write with different keys disagree; servers with a pending key agree."""
    reading = reading_of(found, kind="Deployment", follows=False)
    assert bool(reading.common) is is_agreed
    if is_agreed:
        assert reading.key == key


def decided(reading: Reading, state: StateSeen = STATE, *found: MigrationSeen) -> list[Any]:
    view = TriggerView(resource=RESOURCE, state=state, migrations=found, reading=reading)
    return list(decide(view, None, now=NOW, settings=Settings()).actions)


def migration(phase: MigrationPhase, record: MigrationRecord = RECORD) -> MigrationSeen:
    return MigrationSeen(ref=MigrationRef("api", "m", "uid"), phase=phase, record=record)


def on_key(key: str) -> StorageVersionReading:
    return replace(READING, key=key, keys=frozenset({key} - {"identity"}))


def test_an_old_key_requires_a_migration() -> None:
    """The version is current already, and the reason names the key."""
    (made,) = decided(on_key(K2))
    assert isinstance(made, CreateMigration)
    assert made.record == RECORD
    assert "encryption keys" in made.reason
    calm = replace(STATE, status=replace(STATE.status, keys=(K2,)))
    assert isinstance(decided(on_key(K2), calm)[0], Nothing)


@pytest.mark.parametrize("key", [K2, "identity"])
def test_versions_and_keys_are_narrowed_in_one_update(key: str) -> None:
    """The persisted keys become the agreed key, or "identity" for unencrypted values."""
    (done,) = decided(on_key(key), STATE, migration(MigrationPhase.SUCCEEDED))
    assert isinstance(done, Narrow)
    assert (done.status.persisted, done.status.keys) == (("h1",), (key,))
    assert done.precondition == ("u", "9")


def test_another_key_ends_a_migration() -> None:
    """The epoch changes with the key: earlier migrations no longer count."""
    moved = replace(on_key(K2), epoch="5")
    state = replace(STATE, epoch="5")
    actions = decided(moved, state, migration(MigrationPhase.RUNNING))
    assert isinstance(actions[0], DeleteMigration)
    assert isinstance(actions[1], CreateMigration)
    done = decided(moved, state, migration(MigrationPhase.SUCCEEDED))
    assert not any(isinstance(each, Narrow) for each in done)
    early = decided(moved, STATE, migration(MigrationPhase.SUCCEEDED))
    assert isinstance(early[0], Wait)


def test_without_agreement_on_a_key_no_migration_runs() -> None:
    """Migrations in progress are cancelled, and none is created."""
    reading = replace(READING, common="", keys=frozenset({K1, K2}))
    actions = decided(reading, STATE, migration(MigrationPhase.RUNNING))
    assert isinstance(actions[0], DeleteMigration)
    assert not any(isinstance(each, CreateMigration | Narrow) for each in actions)


def test_a_key_missing_in_the_state_is_recorded() -> None:
    """Servers record it themselves; if another client removes it, the trigger adds it again."""
    state = replace(STATE, status=replace(STATE.status, keys=("identity",)))
    (update,) = decided(on_key(K2), state)
    assert isinstance(update, UpdateState)
    assert update.status.keys == ("identity", K2)
    assert update.status.persisted == ("h1",)


@pytest.mark.parametrize("phase", MigrationPhase)
def test_discovery_removes_no_key(phase: MigrationPhase) -> None:
    """Discovery has no keys, so decisions by it leave them unchanged."""
    record = replace(RECORD, storage_version="")
    state = replace(STATE, status=replace(STATE.status, persisted=("h0", "h1")))
    for shown in ("h1", "h2"):
        for action in decided(DiscoveryReading(hash=shown), state, migration(phase, record)):
            if isinstance(action, UpdateState | Narrow):
                assert action.status.keys == (K1, K2)


def test_keys_have_short_names() -> None:
    """Names have no fingerprints, unless two keys share a name; names of plugin keys are
    complete."""
    other = "aesgcm:key1:99"
    assert labels_of([K1, K2, "identity", "kms:vault:7"]) == {
        K1: "aesgcm:key1",
        K2: "aesgcm:key2",
        "identity": "identity",
        "kms:vault:7": "kms:vault:7",
    }
    assert labels_of([K1, other]) == {K1: K1, other: other}


def test_a_key_may_be_given_by_its_name() -> None:
    """By name, by provider and name, or by ID; nothing else."""
    assert all(is_called(K1, name) for name in ("key1", "aesgcm:key1", K1))
    assert not any(is_called(K1, name) for name in ("key", "aescbc:key1", "aesgcm", "11", K2))
    assert is_called("kms:vault:projects/a:7", "kms:vault")
    assert is_called("identity", "identity")


def test_malformed_persisted_keys_are_unknown() -> None:
    """A missing field means unencrypted values only; a malformed entry may be any key."""
    assert persisted_keys({}) == persisted_keys({"persistedEncryptionKeys": []}) == ("identity",)
    assert persisted_keys({"persistedEncryptionKeys": 5}) == ("Unknown",)
    assert persisted_keys({"persistedEncryptionKeys": [K1, None, K1]}) == (K1, "Unknown")
