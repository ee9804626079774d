"""Mutants without one rule about encryption keys: a random scenario detects each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from restow.registry.resource import Resource
from restow.storageversion import changes, registrar, registration_planner, rules
from restow.storageversion.records import Encoder, encode_encoder
from restow.storageversion.registrar import Registrar
from restow.storageversion.registration_planner import KeyUse, ReportPlanner
from restow.storageversion.rules import StorageVersionEntry
from tests.scenarios.chaos import check_history, random_scenario
from tests.scenarios.cluster import open_cluster
from tests.scenarios.runner import Runner, Scenario

pytestmark = pytest.mark.area("coordination")

Mutate = Callable[[pytest.MonkeyPatch], None]


def _writes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server writes with its preferred key, whether or not others can read it."""

    def key_use(self: ReportPlanner, resource: Resource, _living: object) -> KeyUse:
        keys, name = self._keys, resource.kind.group_resource
        if keys is None or resource.kind.pinned:
            return KeyUse("", "")
        return KeyUse(keys.write_key(name), keys.write_key(name), keys.readable(name))

    monkeypatch.setattr(ReportPlanner, "key_use", key_use)


def _fences_versions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder key does not include the encryption key."""

    def encoder_of(entry: StorageVersionEntry) -> bytes:
        return encode_encoder(Encoder(entry.encoding_version))

    for module in (changes, registration_planner):
        monkeypatch.setattr(module, "encoder_of", encoder_of)


def _reads_whatever_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server registers despite other servers' keys, or values, that it cannot read."""
    monkeypatch.setattr(registrar, "is_readable", lambda *_: True)
    monkeypatch.setattr(registrar, "_check_opened", lambda *_: None)


def _keeps_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state does not list the keys."""
    after = rules.state_after

    def state_after(before: Any, **facts: Any) -> Any:
        return after(before, **{**facts, "keys": ()})

    monkeypatch.setattr(changes, "state_after", state_after)


def _never_looks_at_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored values of unknown versions are not scanned."""

    async def check_stored(_self: Registrar, _resource: Resource, _listed: object) -> None:
        return None

    monkeypatch.setattr(Registrar, "_check_stored", check_stored)


MUTANTS: dict[Mutate, int] = {
    _writes_at_once: 0,
    _fences_versions_only: 0,
    _reads_whatever_is_written: 2,
    _keeps_no_record: 0,
    _never_looks_at_the_store: 2,
}
"""Each mutant with a seed that detects it."""


async def play(seed: int, directory: Path) -> None:
    text = random_scenario(seed, mode="report", steps=40, with_keys=True)
    async with open_cluster(directory, seed=seed) as cluster:
        await Runner(cluster).play(Scenario.of_text(f"seed {seed}", f"{text}heal\n"))
        check_history(cluster, is_fenced=True)


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
async def test_a_cluster_without_the_rule_violates_an_invariant(
    mutate: Mutate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed that detects the mutant finds no violation in the real implementation."""
    seed = MUTANTS[mutate]
    await play(seed, tmp_path)
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        await play(seed, tmp_path)
