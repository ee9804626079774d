"""The disk of a cluster is full for a while, under load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.ledger.stage import LedgerStage
from tests.e2e.localcluster.running import wait_for
from tests.sizes import SIZES
from tests.support.fire.stores import CannotBeMade, SqliteStore


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SqliteStore]:
    """A small file system."""
    small = SqliteStore(tmp_path, is_small=True)
    try:
        asyncio.run(small.open())
    except CannotBeMade as error:
        pytest.skip(f"{error}: the attack on a full disk is not made")
    yield small
    asyncio.run(small.close())


def test_a_full_disk(tmp_path: Path, disk: SqliteStore) -> None:
    """Writes are refused with 503 and the reason, an upgrade is refused and leaves state.json
    unchanged; when there is space again everything continues by itself, and no acknowledged
    write is lost."""
    data_dir = disk.file.parent / "d"
    with LedgerStage(tmp_path, data_dir=data_dir, per_second=SIZES.ledger_per_second) as stage:
        for _ in range(SIZES.ledger_rounds):
            stage.wait_writes(SIZES.ledger_writes)
            state = (data_dir / "state.json").read_bytes()
            asyncio.run(disk.fill())
            wait_for(lambda: refusals(stage), "writes are refused", log=lambda: stage.up.output)
            refused = stage.up.run("upgrade", "--to=x+2", "--yes")
            assert refused.returncode in (1, 3), refused.stdout
            assert "Traceback" not in refused.stderr
            assert (data_dir / "state.json").read_bytes() == state
            asyncio.run(disk.free())
            stage.wait_ready()
            stage.wait_writes(SIZES.ledger_writes)
            stage.upgrade("--to=x+2")
            stage.upgrade("--to=x+1")
        stage.finish().check("full disk on sqlite")


def refusals(stage: LedgerStage) -> bool:
    """Returns whether the API reports that the store is full."""
    body = {"metadata": {"generateName": "full-"}, "data": {"text": "x" * 100_000}}
    reply = stage.request("POST", "/api/v1/namespaces/default/configmaps", body)
    assert reply.status in (201, 503, 504), reply.body
    return reply.status == 503 and "full" in reply.message
