"""Controllers that are paused during an upgrade, under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.ledger.stage import CUSTOM, LedgerStage
from tests.sizes import SIZES
from tests.support.fire.objects import WIDGETS

STALE_FOUND = 3
"""The exit code of a census that finds objects in old versions."""


@pytest.mark.parametrize("store", SIZES.ledger_stores)
def test_controllers_stopped_across_an_upgrade(store: str, tmp_path: Path) -> None:
    """x+1 to x+2 and back with paused controllers leaves objects in both versions. When they
    resume, all objects are migrated; no acknowledged write is lost."""
    with LedgerStage(tmp_path, store=store, per_second=SIZES.ledger_per_second) as stage:
        for _ in range(SIZES.ledger_rounds):
            for kind in (WIDGETS, *CUSTOM):  # a migration of any kind blocks the upgrade
                stage.wait_verified(kind)
            with stage.paused("controllers"):
                stage.upgrade("--to=x+2")
                stage.wait_writes(SIZES.ledger_writes)
                stage.upgrade("--rollback")
                assert stage.census().returncode == STALE_FOUND
            stage.wait_migrated()
        stage.finish().check(f"controllers stopped across an upgrade on {store}")
