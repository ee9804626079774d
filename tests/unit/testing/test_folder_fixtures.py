"""Fixtures that tests of a folder share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
TOP: Final = """
import pytest

from tests.folder_fixtures import FolderFixtures


def pytest_configure(config):
    config.pluginmanager.register(FolderFixtures())


@pytest.fixture(scope="session")
def top():
    print("[top begins]")
    yield
    print("[top ends]")
"""
FOLDER: Final = """
import pytest


@pytest.fixture(scope="session")
def server(top):
    print("[{name} begins]")
    yield
    print("[{name} ends]")


@pytest.fixture(scope="module")
def user(server):
    yield
    print("[a user of {name} ends]")
"""
TEST: Final = """
def test_it(user):
    pass
"""
TOLD: Final = [
    "top begins",
    "a begins",
    "a user of a ends",
    "a user of a ends",
    "a user of a ends",
    "a ends",
    "b begins",
    "a user of b ends",
    "b ends",
    "top ends",
]


def test_they_end_with_their_folder(tmp_path: Path) -> None:
    """A fixture of the scope `session` is set up once for all files of its folder and those below,
    outlives its users, and is torn down before the next folder's."""
    (tmp_path / "conftest.py").write_text(TOP)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "conftest.py").write_text(FOLDER.format(name=name))
    (tmp_path / "a" / "deeper").mkdir()
    for name in ("a/test_one.py", "a/deeper/test_two.py", "a/test_three.py", "b/test_four.py"):
        (tmp_path / name).write_text(TEST)
    command = ["-m", "pytest", "-q", "-s", "--import-mode=importlib", "-p", "no:cacheprovider"]
    plugins = ["-p", "no:xdist", "-p", "no:anyio", "-p", "no:schemathesis"]
    ran = subprocess.run(
        [sys.executable, *command, *plugins, "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = [line.partition("]")[0] for line in ran.stdout.split("[")[1:]]
    assert [line for line in told if line.endswith(("begins", "ends"))] == TOLD
