"""Fixtures for the tests of the SQLite driver: directories, and how a process is started."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def fast_path(tmp_path: Path) -> Iterator[Path]:
    """A directory where a sync costs nothing, for tests that inject their own faults."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="restow-test-", dir=MEMORY))
    yield directory
    shutil.rmtree(directory)
