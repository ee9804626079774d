"""The page about users and RBAC: its commands run, and print what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.e2e.documents import (
    ROOT,
    Foreground,
    Shell,
    behind_make,
    blocks_of,
    make_clone,
    missing,
)

pytestmark = pytest.mark.area("documents")

PAGE: Final = ROOT / "docs" / "how-to" / "users-and-rights.md"
SECONDS_MAX: Final = 180
"""Some twenty commands on one real server; on an idle machine they take a tenth of it."""


@pytest.mark.timeout(SECONDS_MAX)
def test_the_page(tmp_path: Path) -> None:
    """The commands give a user and a service account access, and revoke it."""
    tokens, up, *others, clean_up = blocks_of(PAGE)
    environment = make_clone(tmp_path)
    with Shell(tmp_path, environment=environment) as shell:
        shell.run(tokens)
        command = behind_make(up.commands.strip(), tmp_path, environment=environment)
        with Foreground(command, tmp_path, environment=environment) as cluster:
            cluster.wait_ready()
            assert missing(up.shown, cluster.output) == []
            for block in others:
                shell.run(block)
            assert cluster.stop() == 0, cluster.output
        shell.run(clean_up)
    assert not (tmp_path / ".restow").exists()
