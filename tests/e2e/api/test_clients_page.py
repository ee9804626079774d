"""The page about clients: its commands run, and print what it shows.

Not here: its statements about each client, which are tested in `tests/e2e/clients`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.api.conftest import Shared
from tests.e2e.documents import ROOT, Shell, blocks_of

pytestmark = pytest.mark.area("documents")

PAGE: Final = ROOT / "docs" / "how-to" / "clients.md"


def test_the_page(shared: Shared, tmp_path: Path) -> None:
    """The commands cause a conflict, force ownership of a field, and clean up."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "KUBECONFIG": str(shared.on("sqlite").kubeconfig),
    }
    blocks = blocks_of(PAGE)
    assert blocks
    with Shell(tmp_path, environment=environment) as shell:
        for block in blocks:
            shell.run(block)
    assert not list(tmp_path.glob("*.yaml"))
