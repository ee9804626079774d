"""Mutants of encryption keys: writing, removal, and reports about them.

Each of these is detected by a scenario (`tests.support.sim.advice.scenarios`), not by a seed: if it
depends on an exact moment, by one of many plans that differ in it.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apiserver.encryption import Encryption
from restow.encryption import providers
from restow.migration import overview_reader
from restow.migration.overview_keys import KeysSeen
from restow.migration.overview_values import ResourceSeen, ResourceStatus
from restow.migration.preflight import key_removal, rules, stored_rules
from restow.registry.resource import Resource
from restow.storageversion import changes, registrar, registration_planner, rewrite_page, store_scan
from restow.storageversion.records import Encoder, encode_encoder
from restow.storageversion.registration_planner import KeyUse, ReportPlanner
from restow.storageversion.rules import StorageVersionEntry, state_after
from tests.support.sim import keys
from tests.support.sim.mutants.mutant import Mutant, Patch

# Modules do not re-export their imports; here those are replaced where they are used.
_registrar: Any = registrar
_changes: Any = changes
_planning: Any = registration_planner
_stored_rules: Any = stored_rules
_store_scan: Any = store_scan


def _nothing(*_: Any, **__: Any) -> tuple[Any, ...]:
    return ()


def _writes_at_once(patch: Patch) -> None:
    def key_use(self: ReportPlanner, resource: Resource, _living: object) -> KeyUse:
        own, name = self._keys, resource.kind.group_resource
        if own is None or resource.kind.pinned:
            return KeyUse("", "")
        return KeyUse(own.write_key(name), own.write_key(name), own.readable(name))

    patch(ReportPlanner, "key_use", key_use)
    patch(_registrar, "is_readable", lambda *_: True)


def _fences_versions_only(patch: Patch) -> None:
    def encoder_of(entry: StorageVersionEntry) -> bytes:
        return encode_encoder(Encoder(entry.encoding_version))

    patch(_changes, "encoder_of", encoder_of)
    patch(_planning, "encoder_of", encoder_of)


def _keeps_no_record(patch: Patch) -> None:
    def without_keys(before: Any, **facts: Any) -> Any:
        return state_after(before, **{**facts, "keys": ()})

    patch(_changes, "state_after", without_keys)
    # A scan finds keys that are not listed, and adds "Unknown".
    patch(_store_scan, "_unlisted_key", lambda *_: "")


def _takes_any_configuration(patch: Patch) -> None:
    """A changed file is accepted, whatever is stored."""
    followed = Encryption.follow

    def follow(self: Encryption, *args: Any, **options: Any) -> None:
        followed(self, *args, **options)
        self.keys.connect()

    patch(Encryption, "follow", follow)
    patch(_registrar, "_check_listed", lambda *_: None)
    patch(_registrar, "_check_opened", lambda *_: None)


def _starts_without_keys(patch: Patch) -> None:
    """A server registers despite values that it cannot decrypt."""
    patch(_registrar, "is_readable", lambda *_: True)
    patch(_registrar, "_check_opened", lambda *_: None)


def _ignores_secrets(patch: Patch) -> None:
    """A key is identified by its name."""
    patch(providers, "fingerprint", lambda _secret: "0")
    patch(keys, "fingerprint_of", lambda _secret: "0")


def _verifies_versions_only(patch: Patch) -> None:
    """A migration pass counts a value under another key as migrated."""
    planned = rewrite_page.PageWork._plan

    def plan(self: Any, found: Any, *args: Any) -> Any:
        return planned(self, found._replace(key_id=self._target_key), *args)

    patch(rewrite_page.PageWork, "_plan", plan)


def _ignores_keys_of_values(patch: Patch) -> None:
    """Preflight does not compare the keys of values with those of the target."""
    patch(stored_rules, "_key", _nothing)


def _ignores_keys_of_servers(patch: Patch) -> None:
    """Preflight does not check with which keys servers write, or will."""
    patch(rules, "_keys", _nothing)


def _removes_by_servers_alone(patch: Patch) -> None:
    """A key may be removed when no server writes with it."""
    patch(key_removal, "_of_state", _nothing)
    patch(key_removal, "_counted", _nothing)


def _shows_versions_only(patch: Patch) -> None:
    """Status compares neither the keys of StorageStates nor those of raw values."""
    patch(KeysSeen, "is_left", False)
    judged = overview_reader._verdict_of_values

    def verdict_of_values(seen: ResourceSeen, stored: Any) -> tuple[ResourceStatus, str]:
        verdict, remark = judged(seen, stored)
        return (ResourceStatus.OK, "") if "encryption" in remark else (verdict, remark)

    patch(overview_reader, "_verdict_of_values", verdict_of_values)


MUTANTS: Final = (
    Mutant("key-written-at-once", "S10", "a server writes with a key that others lack", _writes_at_once),
    Mutant("key-not-fenced", "S1 S2 S9", "the fence does not compare the key", _fences_versions_only),
    Mutant("keys-not-recorded", "S2", "StorageStates do not list keys", _keeps_no_record),
    Mutant("removed-key-accepted", "S10", "a configuration without a key in use is taken", _takes_any_configuration),
    Mutant("started-without-key", "S10", "a server registers without a key in use", _starts_without_keys),
    Mutant("secrets-not-told-apart", "S10", "two secrets of one name are one key", _ignores_secrets),
    Mutant("key-not-migrated", "S2", "a migration does not move values to another key", _verifies_versions_only),
    Mutant("keys-of-values-ignored", "S1", "preflight ignores under which key values are", _ignores_keys_of_values),
    Mutant("keys-of-servers-ignored", "S1", "preflight ignores with which key servers write", _ignores_keys_of_servers),
    Mutant("removal-unchecked", "S9", "a key may be removed when no server writes with it", _removes_by_servers_alone),
    Mutant("status-without-keys", "S3", "status calls values ok that are under another key", _shows_versions_only),
)  # fmt: skip
CAUGHT_BY: Final = {
    "key-written-at-once": "key-on-one-server",
    "keys-not-recorded": "key-rotated-without-controllers",
    "removed-key-accepted": "key-removed-early",
    "started-without-key": "key-removed-early",
    "secrets-not-told-apart": "key-of-same-name",
    "key-not-migrated": "key-rotated",
    "keys-of-values-ignored": "key-rotated-without-controllers",
    "keys-of-servers-ignored": "key-without-objects",
    "removal-unchecked": "key-rotated-without-controllers",
    "status-without-keys": "key-rotated-without-controllers",
}
"""The scenario that detects each mutant."""
SHOWN_IN: Final = {"key-not-fenced": ("rotated-under-late-writes", 1)}
"""For each other mutant: the varied scenario that detects it, and the index of its plan."""
