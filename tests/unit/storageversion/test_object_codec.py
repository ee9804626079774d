"""StorageVersions, StorageStates, votes and leases as stored objects: they round-trip."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.names import GroupResource
from restow.apis.names import MEMBER_ANNOTATION
from restow.storage.errors import StoreDamaged
from restow.storage.interface import Item, Key, Revision
from restow.storageversion.identity import ServerId
from restow.storageversion.object_codec import (
    StoredState,
    decode_report,
    decode_state,
    encode_lease,
    encode_report,
    encode_state,
    is_foreign_lease,
    lease_key,
    report_key,
    state_key,
)
from restow.storageversion.records import name_of, resource_of_name
from restow.storageversion.rules import (
    Agreement,
    AgreementCondition,
    PersistedVersions,
    StorageVersionEntries,
    StorageVersionEntry,
)
from restow.storageversion.vote_objects import (
    StoredVote,
    decode_vote,
    encode_vote,
    vote_key,
)
from restow.storageversion.voting import Candidate, Vote

NAME = "example.com.widgets"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

words = st.text("abcxyz/.-012", min_size=1, max_size=8)
labels = st.dictionaries(words, words, max_size=3)
entries = st.lists(
    st.builds(
        StorageVersionEntry,
        server_id=words.map(ServerId),
        encoding_version=words,
        decodable_versions=st.lists(words, max_size=3).map(tuple),
        served_versions=st.lists(words, max_size=3).map(tuple),
        key_id=st.just("") | words,
        loose_seconds=st.sampled_from([0.0, 60.0, 0.5]),
        location=st.just("") | words,
        other_versions=st.lists(words, max_size=2).map(tuple),
    ),
    max_size=4,
    unique_by=lambda entry: entry.server_id,
).map(tuple)
conditions = st.lists(
    st.builds(
        AgreementCondition,
        type=words,
        status=words,
        reason=words,
        message=words,
        since=words,
        observed_generation=st.none() | st.integers(0, 9),
    ),
    max_size=2,
    unique_by=lambda condition: condition.type,
).map(tuple)
metadatas = st.builds(
    lambda labels, annotations: {
        "name": NAME,
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels,
        "annotations": annotations,
        "managedFields": [{"manager": "someone"}],
    },
    labels,
    labels,
)


def item(value: bytes) -> Item:
    return Item(Key("/registry/some"), value, Revision(2), Revision(2))


@given(entries, st.none() | words, conditions, st.integers(0, 2**40), metadatas)
def test_a_report_round_trips_with_fields_of_others(
    listed: tuple[StorageVersionEntry, ...],
    common: str | None,
    shown: tuple[AgreementCondition, ...],
    epoch: int,
    metadata: dict[str, Any],
) -> None:
    """Entries with their keys, common version and conditions; metadata of others is kept. The
    agreement
    has a key of its own, and is not part of it."""
    report = StorageVersionEntries(
        entries=listed,
        common_version=common,
        conditions=shown,
        agreement=Agreement("v9"),
        epoch=epoch,
    )
    value = encode_report(report, metadata)
    stored = decode_report(item(value))
    assert stored.report == StorageVersionEntries(
        entries=listed, common_version=common, conditions=shown
    )
    assert stored.metadata["annotations"].items() >= metadata["annotations"].items()
    for name in ("name", "uid", "labels", "managedFields"):
        assert stored.metadata[name] == metadata[name]
    assert encode_report(report, stored.metadata) == value  # no change, no write
    assert value.startswith(b'{"kind":"StorageVersion","apiVersion":"internal.apiserver.k8s.io/')
    assert value.endswith(b"\n")


def test_a_report_without_keys_removes_the_old_ones() -> None:
    """The annotation with encryption keys is removed with them."""
    entry = StorageVersionEntry(
        server_id=ServerId("a"), encoding_version="v1", decodable_versions=("v1",), key_id="k"
    )
    first = decode_report(
        item(encode_report(StorageVersionEntries(entries=(entry,)), {"name": NAME}))
    )
    assert first.report.entries == (entry,)
    without = StorageVersionEntry(
        server_id=ServerId("a"), encoding_version="v1", decodable_versions=("v1",)
    )
    second = decode_report(
        item(encode_report(StorageVersionEntries(entries=(without,)), first.metadata))
    )
    assert second.report.entries == (without,)


@given(
    st.lists(words, min_size=1, max_size=4, unique=True).map(tuple),
    st.just("") | words,
    st.integers(0, 2**40),
    st.none() | words,
    metadatas,
)
def test_a_state_round_trips(
    persisted: tuple[str, ...],
    current: str,
    epoch: int,
    heartbeat: str | None,
    metadata: dict[str, Any],
) -> None:
    """Hashes in order, the current one, the epoch, the heartbeat, and metadata of others."""
    state = PersistedVersions(persisted=persisted, current=current, epoch=epoch)
    value = encode_state(NAME, StoredState(state, metadata, heartbeat))
    stored = decode_state(item(value))
    assert (stored.state, stored.heartbeat) == (state, heartbeat)
    assert stored.metadata["labels"] == metadata["labels"]
    assert stored.metadata["annotations"].items() >= metadata["annotations"].items()
    assert encode_state(NAME, stored) == value
    resource = {"group": "example.com", "resource": "widgets"}
    assert orjson.loads(value)["spec"]["resource"] == resource


UNKNOWN = ("Unknown",)
REPORTS = [{"reporterID": "a", "currentStorageVersionHash": "h", "lastHeartbeatTime": None}]


@pytest.mark.parametrize(
    ("status", "persisted", "heartbeat"),
    [
        ({}, UNKNOWN, None),
        (None, UNKNOWN, None),
        ({"persistedStorageVersionHashes": None, "lastHeartbeatTime": None}, UNKNOWN, None),
        ({"persistedStorageVersionHashes": ["a"], "lastHeartbeatTime": "t"}, ("a",), "t"),
        (
            {"currentStorageVersionHashes": REPORTS, "persistedStorageVersionHashes": []},
            UNKNOWN,
            None,
        ),
        ({"currentStorageVersionHashes": "odd", "later": {"x": [1]}}, UNKNOWN, None),
    ],
)
def test_fields_of_controllers_in_a_state_are_kept(
    status: dict[str, Any] | None, persisted: tuple[str, ...], heartbeat: str | None
) -> None:
    """A server that updates a state keeps each field of others, known or unknown."""
    obj = {
        "kind": "StorageState",
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "status": status,
    }
    found = decode_state(item(orjson.dumps(obj)))
    assert (found.state.persisted, found.heartbeat) == (persisted, heartbeat)
    state = PersistedVersions(persisted=("h", *persisted), current="h", epoch=7)
    written = orjson.loads(encode_state(NAME, replace(found, state=state)))
    own = {"persistedStorageVersionHashes": ["h", *persisted], "currentStorageVersionHash": "h"}
    if heartbeat is not None:
        own["lastHeartbeatTime"] = heartbeat
    mine = {"persistedStorageVersionHashes", "currentStorageVersionHash", "lastHeartbeatTime"}
    theirs = {name: value for name, value in (status or {}).items() if name not in mine}
    assert written["status"] == own | theirs
    assert written["metadata"]["labels"] == {"a": "b"}


@given(words, st.lists(st.builds(Candidate, words.map(ServerId), words), max_size=4), metadatas)
def test_a_vote_round_trips(
    selected: str, candidates: list[Candidate], metadata: dict[str, Any]
) -> None:
    """With its candidates in order, and unchanged metadata."""
    stored = StoredVote(Vote(selected, tuple(candidates)), metadata)
    assert decode_vote(item(encode_vote(stored))) == stored


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b"{", b'{"status":7}', b'{"metadata":[]}'])
def test_a_malformed_object_is_reported_as_damaged(value: bytes) -> None:
    """The error names the key."""
    with pytest.raises(StoreDamaged, match="/registry/some"):
        decode_report(item(value))
    with pytest.raises(StoreDamaged, match="/registry/some"):
        decode_state(item(value))


@pytest.mark.parametrize(
    ("group", "resource", "report", "state", "vote"),
    [
        ("", "pods", "core.pods", "pods", "core.v1.pods"),
        ("apps", "deployments", "apps.deployments", "deployments.apps", "apps.v1.deployments"),
        ("a.b.io", "cs", "a.b.io.cs", "cs.a.b.io", "a.b.io.v1.cs"),
    ],
)
def test_names_round_trip_to_the_resource(
    group: str, resource: str, report: str, state: str, vote: str
) -> None:
    """Each object has the name that its KEP defines; the last dot separates the resource."""
    found = GroupResource(group, resource)
    assert name_of(found) == report
    assert resource_of_name(report) == found
    assert report_key(report).rpartition("/")[2] == report
    assert state_key(report).rpartition("/")[2] == state
    version = f"{group}/v1" if group else "v1"
    assert vote_key(report, version).rpartition("/")[2] == vote


def test_a_lease_identifies_an_api_server() -> None:
    """In the format of the reference; other leases and malformed ones are not identities."""
    label = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    metadata = {"name": "a", "namespace": "kube-system", "labels": label}
    value = encode_lease(ServerId("a"), metadata=metadata, holder="n", seconds=15, now=NOW)
    lease = orjson.loads(value)
    assert lease["apiVersion"] == "coordination.k8s.io/v1"
    assert lease["spec"] == {
        "holderIdentity": "a_n",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-02T03:04:05.000000Z",
    }
    assert lease_key(ServerId("a")).endswith("/kube-system/a")
    assert is_foreign_lease(item(value))
    assert not is_foreign_lease(item(value.replace(b'"kube-apiserver"', b'"else"')))
    assert not is_foreign_lease(item(b'{"metadata":{"name":"kube-scheduler"}}'))
    assert not is_foreign_lease(item(b"\x00"))
    ours = {**metadata, "annotations": {MEMBER_ANNOTATION: "report"}}
    value = encode_lease(ServerId("a"), metadata=ours, holder="n", seconds=15, now=NOW)
    assert not is_foreign_lease(item(value))
