"""The page about rotating keys: its commands run, and print what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import yaml

from restow.encryption.configuration import KmsProvider, read_configuration
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

PAGE: Final = ROOT / "docs" / "how-to" / "rotate-keys.md"
SECONDS_MAX: Final = 300
"""Some twenty commands on real processes; on an idle machine they take a tenth of it."""


@pytest.mark.timeout(SECONDS_MAX)
def test_the_page(tmp_path: Path) -> None:
    """The commands rotate a key under load, and no request fails."""
    keys, up, *others, clean_up = blocks_of(PAGE)
    environment = make_clone(tmp_path)
    assert up.commands.startswith("make up")
    command = behind_make(up.commands.strip(), tmp_path, environment=environment)
    with Shell(tmp_path, environment=environment) as shell, _load_ends(tmp_path):
        shell.run(keys)
        with Foreground(command, tmp_path, environment=environment) as cluster:
            cluster.wait_ready()
            assert missing(up.shown, cluster.output) == []
            for block in others:
                shell.run(block)
            assert cluster.stop() == 0, cluster.output
        shell.run(clean_up)
    assert not (tmp_path / ".restow").exists()


def test_the_file_of_a_plugin() -> None:
    """The example for a KMS plug-in is a valid configuration."""
    (example,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert yaml.safe_load(example)["kind"] == "EncryptionConfiguration"
    (plugin,) = read_configuration(example.encode()).plugins()
    assert plugin == KmsProvider("vault", "/run/kms/vault.sock", 3.0)


@contextmanager
def _load_ends(place: Path) -> Iterator[None]:
    """If a command fails, the load must not outlive its shell."""
    try:
        yield
    finally:
        (place / "load.run").unlink(missing_ok=True)
