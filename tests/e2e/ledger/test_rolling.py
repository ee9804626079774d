"""Releases are rolled up and down while processes are killed and paused and CRDs change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.ledger.stage import LedgerStage
from tests.sizes import SIZES


@pytest.mark.parametrize("store", SIZES.ledger_stores)
def test_releases_roll_with_kills_and_pauses(store: str, tmp_path: Path) -> None:
    """x+1 to x+2 and back, kill -9 of controllers and servers, pauses longer than a lease,
    storage versions of two CRDs changed constantly: no acknowledged write is lost, and
    everything is migrated in the end."""
    with LedgerStage(tmp_path, store=store, per_second=SIZES.ledger_per_second) as stage:
        with stage.flips():
            for number in range(SIZES.ledger_rounds):
                for release in ("x+2", "x+1"):
                    roll(stage, release, victim=f"server-{number % len(stage.ports)}")
                stage.pause(f"server-{number % len(stage.ports)}")
                stage.wait_writes(SIZES.ledger_writes)
            stage.upgrade("--to=x+2")
        outcome = stage.finish()
    outcome.check(f"rolling, kills, pauses on {store}")
    assert outcome.acknowledged > 4 * SIZES.ledger_writes * SIZES.ledger_rounds
    assert outcome.flips > 0
    written = ("example.com/v1", "example.com/v2", "ledger.example.org/v1", "ledger.example.org/v2")
    assert all(outcome.versions[each] for each in written), outcome.versions


def roll(stage: LedgerStage, release: str, *, victim: str) -> None:
    """Upgrades to a release, and kills the controllers meanwhile and a server afterwards."""
    rolling = stage.begin_upgrade(f"--to={release}")
    stage.kill("controllers")
    rolling.wait()
    stage.upgrade(f"--to={release}")  # the rest, if a step was refused
    assert set(stage.releases) == {release}
    stage.kill(victim)
    stage.wait_writes(SIZES.ledger_writes)
