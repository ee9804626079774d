"""Concurrent operators, and commands that are killed, under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.ledger.stage import LedgerStage
from tests.e2e.localcluster.running import wait_for
from tests.sizes import SIZES
from tests.support.fire.objects import WIDGETS

TARGETS = ("x+2", "x")
"""Targets of the two operators. x cannot read what x+2 writes."""


@pytest.mark.parametrize("store", SIZES.ledger_stores)
def test_two_operators_and_killed_commands(store: str, tmp_path: Path) -> None:
    """Two `restow upgrade` at once, kill -9 of `restow upgrade` in the middle of a step, kill -9
    of `restow up`: no acknowledged write is lost, no process is left over, state.json has the
    running releases, and the next upgrade succeeds."""
    with LedgerStage(tmp_path, store=store, per_second=SIZES.ledger_per_second) as stage:
        for _ in range(SIZES.ledger_rounds):
            stage.wait_verified(WIDGETS)
            roll_at_once(stage)
            kill_in_a_step(stage, "x+1")
            before = stage.releases
            stage.kill_supervisor()
            assert stage.releases == before
            stage.upgrade("--to=x+1")
            assert set(stage.releases) == {"x+1"}
            stage.wait_writes(SIZES.ledger_writes)
        stage.finish().check(f"two operators, killed commands on {store}")


def roll_at_once(stage: LedgerStage) -> None:
    """Two operators with different targets: each gets the reason if its upgrade is refused."""
    operators = [stage.begin_upgrade(f"--to={release}") for release in TARGETS]
    said = [operator.communicate()[0] for operator in operators]
    for operator, text in zip(operators, said, strict=True):
        assert "Traceback" not in text
        assert operator.returncode in (0, 1, 3), text
        if operator.returncode:
            assert any(word in text for word in ("wait", "not safe", "cannot be reached")), text
    assert set(stage.releases) < {"x+1", *TARGETS}, said
    stage.wait_ready()
    stage.wait_writes(SIZES.ledger_writes)


def kill_in_a_step(stage: LedgerStage, target: str) -> None:
    """kill -9 of `restow upgrade` while a server is being replaced."""
    marks = ("stopping", "starting")
    known = len(stage.up.output)
    operator = stage.begin_upgrade(f"--to={target}")
    wait_for(
        lambda: (
            any(mark in stage.up.output[known:] for mark in marks) or operator.poll() is not None
        ),
        "a step is begun",
        log=lambda: stage.up.output,
    )
    operator.kill()
    operator.wait()
    stage.wait_writes(SIZES.ledger_writes)
