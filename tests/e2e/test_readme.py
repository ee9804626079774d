"""Runs the commands of README.md as they are printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.documents import (
    ROOT,
    Block,
    Foreground,
    Shell,
    behind_make,
    blocks_of,
    make_clone,
)

pytestmark = pytest.mark.area("documents")

SECONDS_MAX: Final = 240
README: Final = ROOT / "README.md"
BLOCKS: Final = blocks_of(README)


def _lines(block: Block) -> Iterator[str]:
    """Returns the commands of a block, without the comments."""
    for line in block.commands.splitlines():
        yield line.partition(" #")[0].strip()


def _block(beginning: str) -> Block:
    found = [block for block in BLOCKS if block.commands.startswith(beginning)]
    assert len(found) == 1, f"one block of the page begins with {beginning!r}"
    return found[0]


@pytest.mark.timeout(SECONDS_MAX)
def test_two_commands(tmp_path: Path) -> None:
    """`make up` runs a cluster, on which the commands for the other terminal work."""
    environment = make_clone(tmp_path)
    up, test = (
        behind_make(line, tmp_path, environment=environment) for line in _lines(_block("make up"))
    )
    assert up.split() == [".venv/bin/restow", "up", "--data-dir", ".restow"]
    assert test.split()[0] == ".venv/bin/pytest"
    with (
        Foreground(up, tmp_path, environment=environment) as cluster,
        Shell(tmp_path, environment=environment) as shell,
    ):
        cluster.wait_ready()
        assert "/dashboard/login#" in cluster.output
        said = shell.run(_block("export KUBECONFIG"))
        assert "configmap/greeting created" in said
        assert re.search(r"^configmaps +v1 .* 3 agree", said, re.MULTILINE)
        assert re.search(r"^configmaps +v1 +json .* ok$", said, re.MULTILINE)
        assert cluster.stop() == 0, cluster.output


@pytest.mark.timeout(SECONDS_MAX)
def test_rolling_upgrade_in_five_lines(tmp_path: Path) -> None:
    """The servers disagree, agree, and roll back, as the comments beside the commands say."""
    environment = make_clone(tmp_path)
    up, *others = _lines(_block(".venv/bin/restow up"))
    assert len(others) == 4
    with (
        Foreground(up, tmp_path, environment=environment) as cluster,
        Shell(tmp_path, environment=environment) as shell,
    ):
        cluster.wait_ready()
        said = [shell.run(Block(commands=line, shown=())) for line in others]
        assert cluster.stop() == 0, cluster.output
    _, paused, done, back = said
    assert "no agreement" in paused
    assert re.search(r"^all +example.com/v2", done, re.MULTILINE)
    assert re.search(r"^all +example.com/v1", back, re.MULTILINE)
