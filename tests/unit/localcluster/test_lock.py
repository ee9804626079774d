"""The lock of a data directory: who holds it can be queried without taking it."""

import os
from pathlib import Path

import pytest

from restow.localcluster.errors import ClusterRuns
from restow.localcluster.layout import Layout
from restow.localcluster.lock import locked, supervisor_of


def test_the_supervisor_is_found_while_it_runs(tmp_path: Path) -> None:
    """The lock counts, not the file: the lock is released with the process."""
    layout = Layout(tmp_path)
    assert supervisor_of(layout) is None
    assert not layout.lock.exists(), "looking creates nothing"
    with locked(layout):
        assert supervisor_of(layout) == str(os.getpid())
        with pytest.raises(ClusterRuns, match=f"process {os.getpid()}"), locked(layout):
            pass
        layout.lock.write_text("")
        assert supervisor_of(layout) == "?"
    assert layout.lock.exists()
    assert supervisor_of(layout) is None
