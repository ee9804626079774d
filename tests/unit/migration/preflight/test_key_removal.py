"""Whether an encryption key can be removed: every blocker, on values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from restow.apimachinery.names import GroupResource
from restow.migration.encryption_keys import ReportedKeys
from restow.migration.preflight import (
    KeyedResource,
    KeyedView,
    Reason,
    StoreCount,
    judge_key_removal,
)

OLD, NEW = "aesgcm:key1:11", "aesgcm:key2:22"
NAMES = ("key1", "aesgcm:key1", OLD)
SECRETS = KeyedResource(
    resource=GroupResource("", "secrets"),
    said=ReportedKeys(
        writes={"a": NEW, "b": NEW}, reads={"a": (NEW, OLD), "b": (NEW, OLD, "identity")}
    ),
    persisted=("h1",),
    keys=(NEW,),
)
"""Rotated: all servers write with the new key, and nothing is stored under the old one."""
PLAIN = KeyedResource(
    resource=GroupResource("", "pods"),
    said=ReportedKeys(writes={"a": "identity"}, reads={"a": ("identity",)}),
    persisted=("Unknown",),
)
COUNTED = StoreCount(address="sqlite:there")


def reasons(
    view: KeyedResource = SECRETS,
    *,
    name: str = "aesgcm:key1",
    store: StoreCount = COUNTED,
    **more: object,
) -> list[Reason]:
    seen = KeyedView(resources=(view, PLAIN), **more)  # type: ignore[arg-type]
    return [each.reason for each in judge_key_removal(name, seen, store).blockers]


@pytest.mark.parametrize("name", NAMES)
def test_a_rotated_key_can_be_removed(name: str) -> None:
    """The key may be given in any of its forms; unencrypted resources in an unknown state do not
    matter."""
    assert reasons(name=name) == []
    report = judge_key_removal(name, KeyedView(resources=(SECRETS,)), COUNTED)
    assert report.is_safe
    assert report.target == f"without the key {name}"
    assert any("backups" in note for note in report.notes)


def test_a_key_in_use_cannot_be_removed() -> None:
    """This includes a preferred key that is not used yet."""
    assert reasons(name="key2") == [Reason.KEY_WRITTEN, Reason.KEY_STORED]
    said = replace(SECRETS.said, writes={"a": NEW, "b": OLD})
    assert reasons(replace(SECRETS, said=said, keys=(NEW, OLD))) == [
        Reason.KEY_WRITTEN,
        Reason.KEY_STORED,
    ]
    said = replace(SECRETS.said, prefers={"a": OLD})
    assert reasons(replace(SECRETS, said=said)) == [Reason.KEY_PREFERRED]
    said = replace(SECRETS.said, writes={"a": "Unknown"})
    assert reasons(replace(SECRETS, said=said))[0] is Reason.KEY_WRITTEN


def test_a_key_that_may_be_stored_blocks() -> None:
    """Either the StorageState lists the key, or the state is unknown."""
    assert reasons(replace(SECRETS, keys=(OLD, NEW))) == [Reason.KEY_STORED]
    assert reasons(replace(SECRETS, keys=("Unknown", NEW))) == [Reason.KEY_STORED]
    # A server writes with a key that the StorageState does not list, so the state is unreliable.
    assert reasons(replace(SECRETS, keys=("identity",))) == [Reason.UNKNOWN]
    for unknown in (("Unknown", "h1"), (), None):
        assert reasons(replace(SECRETS, persisted=unknown)) == [Reason.UNKNOWN]


def test_a_key_found_in_the_store_blocks() -> None:
    """Values found in the store block, whatever the API reports; so does an incomplete census."""
    assert reasons(store=replace(COUNTED, left=(("secrets", 1), ("leases.x", 2)))) == [
        Reason.KEY_FOUND,
        Reason.KEY_FOUND,
    ]
    assert reasons(store=replace(COUNTED, undecided=(("secrets", 1),))) == [Reason.UNSEEN]
    assert reasons(store=replace(COUNTED, problem="it is gone")) == [Reason.UNSEEN]


def test_unreadable_resources_block() -> None:
    """Forbidden lists, and servers that do not report keys."""
    assert reasons(unseen=("secrets could not be read",)) == [Reason.UNSEEN]
    assert reasons(says_keys=False) == [Reason.UNSEEN]


def test_identity_is_treated_like_other_keys() -> None:
    """No encrypted resource may still be written or stored unencrypted."""
    assert reasons(name="identity") == []
    said = replace(SECRETS.said, writes={"a": "identity", "b": NEW})
    mixed = replace(SECRETS, said=said, keys=("identity", NEW))
    assert reasons(mixed, name="identity") == [Reason.KEY_WRITTEN, Reason.KEY_STORED]
    both = KeyedView(resources=(replace(SECRETS, keys=("identity", NEW)),))
    assert [e.reason for e in judge_key_removal("identity", both, COUNTED).blockers] == [
        Reason.KEY_STORED
    ]


def test_other_stores_are_a_warning() -> None:
    """An aggregated server with the key has its own store, which this census does not cover."""
    said = replace(SECRETS.said, stores={"a": "theirs"})
    view = KeyedView(resources=(replace(SECRETS, said=said),))
    report = judge_key_removal("key1", view, COUNTED)
    assert report.is_safe
    assert [each.reason for each in report.warnings] == [Reason.UNSEEN]
    assert "restow census" in report.warnings[0].advice
    assert view.servers == {"b"}


@pytest.mark.parametrize("name", ["nosuch", "aesgcm:nosuch", "secretbox:key1", "aesgcm:key1:33"])
def test_an_unknown_key_name_blocks(name: str) -> None:
    """A misspelt name has no other blocker, but is not called safe; the known names are listed."""
    assert reasons(name=name) == [Reason.KEY_UNKNOWN]
    (found,) = judge_key_removal(name, KeyedView(resources=(SECRETS,)), COUNTED).blockers
    assert f"knows a key {name}" in found.what
    assert "aesgcm:key1, aesgcm:key2" in found.advice


@pytest.mark.parametrize("name", ["vault", "kms:vault", "kms:vault:7"])
def test_keys_of_a_plugin_are_known_by_its_name(name: str) -> None:
    """A server that reads all keys of a plugin can read each of them."""
    said = replace(SECRETS.said, reads={"a": (NEW, "kms:vault:*"), "b": (NEW, "kms:vault:*")})
    assert reasons(replace(SECRETS, said=said), name=name) == []


def test_two_keys_with_one_name() -> None:
    """Values in the store cannot distinguish them: the finding says so, and names the remedy."""
    again = "aesgcm:key1:22"
    said = replace(SECRETS.said, writes={"a": again, "b": again}, reads={"a": (again, OLD)})
    view = KeyedView(resources=(replace(SECRETS, said=said, keys=(again,)),))
    store = replace(COUNTED, left=(("secrets", 3),))
    (found,) = judge_key_removal(OLD, view, store).blockers
    assert found.reason is Reason.KEY_FOUND
    assert found.what == ("3 objects stored under aesgcm:key1, with this secret or another one")
    assert again in found.why
    assert "to a key with a name that no other has had; then check aesgcm:key1" in found.advice
