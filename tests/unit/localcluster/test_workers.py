"""What the workers of one port say, as their parent passes it on."""

from __future__ import annotations

import pytest

from restow.localcluster.workers import _Voice


def test_words_of_workers_are_marked(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """However the bytes come, each line says whose it is, so that `ready` is said by one only."""
    voice = _Voice("worker-1")
    for piece in (b"one\nre", b"ady: two\n", b"", b"ready\nthree"):
        voice.write(piece)
    assert capsysbinary.readouterr().err == (
        b"worker-1: one\nworker-1: ready: two\nworker-1: ready\nworker-1: three"
    )
