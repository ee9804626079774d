"""The page about clients, as it is printed: its commands run, and print what it shows.

Not here: what the page says of each client; that is what the tests of `tests/e2e/clients` are.
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
    """Whoever copies the commands sees a conflict, takes a field over, and leaves nothing."""
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
