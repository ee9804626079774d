"""Mutants with the feature gate off, each without one rule: a scenario detects each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from restow.apis import migration_v1alpha1
from restow.storage.interface import Put, Write
from restow.storageversion import changes, coordinator, object_codec, rules
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.membership import Membership
from restow.storageversion.records import MODES_KEY
from tests.scenarios.cluster import open_cluster
from tests.scenarios.runner import Runner, scenarios_of

pytestmark = pytest.mark.area("coordination")

DIRECTORY = Path(__file__).parent / "storageversion"
Mutate = Callable[[pytest.MonkeyPatch], None]


def _leaves_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with mode off joins without a persistent mark."""

    def marks(self: Membership, *, changes_modes: bool) -> tuple[Write, ...]:
        return (Put(MODES_KEY, self.id.encode()),) if changes_modes else ()

    monkeypatch.setattr(Membership, "_marks", marks)


def _marks_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes before the states list "Unknown"."""

    async def mark_states(*_: object) -> None:
        return None

    monkeypatch.setattr(coordinator, "mark_states", mark_states)


def _compares_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that reports does not compare the mark with that of the state."""
    after = rules.state_after

    def state_after(before: Any, **facts: Any) -> Any:
        return after(before, **{**facts, "unreported": ""})

    monkeypatch.setattr(changes, "state_after", state_after)


def _keeps_agreements(monkeypatch: pytest.MonkeyPatch) -> None:
    """It neither waits until agreements are unset, nor unsets them."""

    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(Coordinator, "_wait_for_no_agreement", nothing)
    monkeypatch.setattr(Coordinator, "_collect", nothing)


def _reads_empty_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state without hashes is read as "nothing is stored"."""

    def persisted_hashes(found: Any) -> tuple[str, ...]:
        return tuple(found or ())

    monkeypatch.setattr(object_codec, "persisted_hashes", persisted_hashes)
    assert migration_v1alpha1.persisted_hashes([]) == ("Unknown",)


MUTANTS: dict[Mutate, str] = {
    _leaves_no_mark: "gate_off_narrowed",
    _marks_no_state: "gate_off",
    _compares_no_mark: "gate_off_narrowed",
    _keeps_agreements: "gate_off",
    _reads_empty_as_nothing: "recreated_state",
}
"""Each mutant with the scenario that detects it."""


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
async def test_a_missing_rule_is_detected(
    mutate: Mutate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least one combination of its scenario fails."""
    mutate(monkeypatch)
    failures = 0
    for number, scenario in enumerate(scenarios_of(DIRECTORY / f"{MUTANTS[mutate]}.txt")):
        directory = tmp_path / str(number)
        directory.mkdir()
        try:
            async with open_cluster(directory, seed=scenario.seed) as cluster:
                await Runner(cluster).play(scenario)
        except AssertionError:
            failures += 1
            break
    assert failures
