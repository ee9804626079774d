"""A strict vote lets servers skip a release, under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.ledger.stage import NOT_SAFE, LedgerStage
from tests.sizes import SIZES
from tests.support.fire.objects import WIDGETS

STRICT = ("--coordination=vote", "--guarantee=strict")


@pytest.mark.parametrize("store", SIZES.ledger_stores)
def test_a_jump_with_a_strict_vote(store: str, tmp_path: Path) -> None:
    """x to x+2 in one step: servers write v1 until all can read v2. The step to x+3 is refused
    before that, and so is the rollback after it; no acknowledged write is lost."""
    with LedgerStage(
        tmp_path, store=store, release="x", options=STRICT, per_second=SIZES.ledger_per_second
    ) as stage:
        stage.wait_writes(SIZES.ledger_writes)
        refuse(stage, "--to=x+3")
        stage.upgrade("--to=x+2", "--pause-after=1")
        refuse(stage, "--to=x+3")
        assert stage.common(WIDGETS) == "example.com/v1", "one server cannot read v2"
        stage.wait_writes(SIZES.ledger_writes)
        stage.upgrade("--rollback")
        stage.upgrade("--to=x+2")
        stage.wait_common(WIDGETS, "example.com/v2")
        stage.wait_writes(SIZES.ledger_writes)
        refuse(stage, "--rollback")
        assert set(stage.releases) == {"x+2"}
        outcome = stage.finish()
    outcome.check(f"strict vote on {store}")
    assert outcome.versions["example.com/v2"]


def refuse(stage: LedgerStage, *words: str) -> None:
    """`restow upgrade` refuses the step."""
    before = stage.releases
    refused = stage.up.run("upgrade", *words, "--yes")
    assert refused.returncode == NOT_SAFE, f"{refused.stdout}{refused.stderr}"
    assert stage.releases == before
