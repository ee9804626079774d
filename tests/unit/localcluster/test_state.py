"""The stored state of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from restow.localcluster.errors import ClusterRefused
from restow.localcluster.state import ClusterState, EtcdState, ServerState, read_state, write_state


def test_state_round_trip(tmp_path: Path) -> None:
    """The file is complete, and private."""
    state = ClusterState(
        store="etcd",
        bind="::1",
        front_port=6443,
        servers=(ServerState(port=1, release="x"), ServerState(port=2, release="x+1")),
        etcd=(EtcdState(client_port=3, peer_port=4, health_port=5),),
        server_options=("--coordination=vote",),
    )
    path = tmp_path / "state.json"
    write_state(path, state)
    assert read_state(path) == state
    assert path.stat().st_mode & 0o777 == 0o600


def test_there_is_none_at_first(tmp_path: Path) -> None:
    """A directory without the file has no state."""
    assert read_state(tmp_path / "state.json") is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a valid state file"),
        (b"{}", "is not a valid state file"),
        (
            b'{"version":9,"store":"sqlite","bind":"b","front_port":1,"servers":[]}',
            "another version of restow",
        ),
        (b" " * (1024 * 1024 + 1), "too large"),
    ],
)
def test_invalid_state_files_are_rejected(tmp_path: Path, content: bytes, words: str) -> None:
    """A damaged or unrelated file is named, with a remedy."""
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(ClusterRefused, match=words) as caught:
        read_state(path)
    assert str(path) in str(caught.value)
    assert "start with a new state" in str(caught.value)
