"""The raw audit detects the violation of each invariant."""

from __future__ import annotations

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.kinds.releases import shipped_release
from restow.registry.catalog import release_catalog
from restow.storage.interface import Key
from restow.storageversion.identity import ServerId, ServerRecord, encode_record, server_key
from restow.storageversion.object_codec import StoredState, encode_state, state_key
from restow.storageversion.records import (
    Encoder,
    EpochRecord,
    encode_encoder,
    encode_epoch,
    encoder_key,
    epoch_key,
    held_encoder,
)
from restow.storageversion.rules import UNKNOWN_HASH, PersistedVersions
from tests.support.fire.objects import WIDGETS
from tests.support.fire.raw_audit import audit
from tests.unit.testing.fire.stories import NAMESPACE, Story

ONE, TWO = ServerId("apiserver-one"), ServerId("apiserver-two")
V1, V2 = "example.com/v1", "example.com/v2"
CATALOG = release_catalog(shipped_release("x+2"))
PORTS = (1001, 1002)


def reports(story: Story, server: ServerId, port: int, version: str) -> None:
    """A server joins, and reports what it writes."""
    record = ServerRecord(
        incarnation="i",
        component="c",
        host="h",
        address=f"https://127.0.0.1:{port}",
        mode="report",
        lease_seconds=3,
    )
    story.put(server_key(server), encode_record(record))
    story.put(encoder_key(server, WIDGETS.resource_name), encode_encoder(Encoder(version)))


def problems(story: Story, asked: dict[tuple[Key, int], int] | None = None) -> str:
    return "\n".join(audit(story.truth, CATALOG, ports=PORTS, asked=asked).problems)


def persists(story: Story, *hashes: str) -> None:
    """Set the persisted hashes of the state."""
    state = StoredState(PersistedVersions(persisted=hashes), {})
    story.put(state_key(WIDGETS.resource_name), encode_state(WIDGETS.resource_name, state))


def agrees(story: Story, version: str | None) -> None:
    record = EpochRecord(epoch=len(story.log), kind=WIDGETS.kind, version=version)
    story.put(epoch_key(WIDGETS.resource_name), encode_epoch(record))


def test_reported() -> None:
    """A value in a reported version is valid; every value is counted."""
    story = Story()
    reports(story, ONE, 1001, V1)
    at = story.write("0.0")
    assert problems(story, {(WIDGETS.key_of(NAMESPACE, "a"), at): 0}) == ""
    assert audit(story.truth, CATALOG).values == 1
    assert audit(story.truth, CATALOG).revisions == 3


def test_not_reported() -> None:
    """A version before its report, after its withdrawal, and while it is held."""
    story = Story()
    story.write("0.0")
    reports(story, ONE, 1001, V1)
    assert "R1" in problems(story)
    story = Story()
    reports(story, ONE, 1001, V1)
    story.delete(encoder_key(ONE, WIDGETS.resource_name))
    story.write("0.0")
    assert "which no server had reported" in problems(story)
    story = Story()
    held = held_encoder(encode_encoder(Encoder(V1)), "nonce")
    story.put(encoder_key(ONE, WIDGETS.resource_name), held)
    story.write("0.0")
    assert "which no server had reported" in problems(story)


def test_historic_value() -> None:
    """An overwritten value counts as well."""
    story = Story()
    reports(story, ONE, 1001, V2)
    story.write("0.0", version="v1")
    story.write("0.1", version="v2")
    assert f"is in {V1}, which no server had reported" in problems(story)


def test_reported_by_another() -> None:
    """A client's write acknowledged by a server that had reported another version."""
    story = Story()
    reports(story, ONE, 1001, V1)
    reports(story, TWO, 1002, V2)
    at = story.write("0.0", version="v1")
    asked = {(WIDGETS.key_of(NAMESPACE, "a"), at): 1}
    assert "which server 2 had not reported" in problems(story, asked)


def test_unreadable() -> None:
    """A value that is not an object."""
    story = Story()
    reports(story, ONE, 1001, V1)
    story.put(WIDGETS.key_of(NAMESPACE, "a"), b"\x00")
    assert "A8" in problems(story)


def test_not_persisted() -> None:
    """Stored versions that the persisted hashes lack; `Unknown` covers all."""
    story = Story()
    reports(story, ONE, 1001, V1)
    persists(story, UNKNOWN_HASH)
    story.write("0.0")
    assert problems(story) == ""
    story = Story()
    reports(story, ONE, 1001, V1)
    persists(story, storage_version_hash(GroupVersionKind.of(V2, WIDGETS.kind)))
    story.write("0.0")
    assert "M4" in problems(story)


def test_narrowed_too_early() -> None:
    """Hashes removed while servers do not agree, or agree on another version."""
    both = (
        storage_version_hash(GroupVersionKind.of(V1, WIDGETS.kind)),
        storage_version_hash(GroupVersionKind.of(V2, WIDGETS.kind)),
    )
    for agreed, is_right in ((V2, True), (V1, False), (None, False)):
        story = Story()
        agrees(story, agreed)
        persists(story, *both)
        persists(story, both[1])
        assert ("M5" in problems(story)) is not is_right
        assert audit(story.truth, CATALOG).narrowed[WIDGETS.resource_name] == 1


def test_narrowed_over_stale_values() -> None:
    """Hashes removed while values in that version are stored."""
    story = Story()
    reports(story, ONE, 1001, V1)
    story.write("0.0")
    agrees(story, V2)
    persists(
        story,
        storage_version_hash(GroupVersionKind.of(V1, WIDGETS.kind)),
        storage_version_hash(GroupVersionKind.of(V2, WIDGETS.kind)),
    )
    persists(story, storage_version_hash(GroupVersionKind.of(V2, WIDGETS.kind)))
    assert "M4" in problems(story)
