"""The output of workers on one port, as the parent copies it."""

from __future__ import annotations

import pytest

from restow.localcluster.workers import _OutputSink


def test_words_of_workers_are_marked(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """However the bytes are split, each line has a prefix: only the parent prints `ready`."""
    voice = _OutputSink("worker-1")
    for piece in (b"one\nre", b"ady: two\n", b"", b"ready\nthree"):
        voice.write(piece)
    assert capsysbinary.readouterr().err == (
        b"worker-1: one\nworker-1: ready: two\nworker-1: ready\nworker-1: three"
    )
