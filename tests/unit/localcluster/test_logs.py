"""Log rotation, and splitting into lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.localcluster.logs import LOGS_KEPT, TAIL_LINES, LineBuffer, RotatingLog

FULL = Path("/dev/full")
"""Opens like a file, but every write fails with a full disk."""


def test_a_log_is_put_aside_when_it_grows(tmp_path: Path) -> None:
    """No file exceeds the limit, the newest output is in the main file, and few files are kept."""
    path = tmp_path / "logs" / "one.log"
    log = RotatingLog(path, bytes_max=100)
    for number in range(100):
        log.write(f"line {number:03}\n".encode())
    log.close()
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["one.log"] + [
        f"one.log.{number}" for number in range(1, LOGS_KEPT + 1)
    ]
    assert all(file.stat().st_size <= 100 for file in files)
    assert path.read_text().endswith("line 099\n")
    assert path.with_name("one.log.1").read_text() < path.read_text()


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    """A second start appends, and counts the existing bytes."""
    path = tmp_path / "one.log"
    path.write_bytes(b"x" * 60)
    log = RotatingLog(path, bytes_max=100)
    log.write(b"y" * 50)
    log.close()
    assert path.read_bytes() == b"y" * 50


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_lines_do_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    """Lines do not depend on how the bytes are split."""
    lines = LineBuffer()
    found = [line for piece in pieces for line in lines.feed(piece)]
    whole = b"".join(pieces)
    assert found == [line.decode(errors="replace") for line in whole.split(b"\n")[:-1]]
    lines.end()
    rest = whole.rpartition(b"\n")[2]
    expected = found + ([rest.decode(errors="replace")] if rest else [])
    assert list(lines.tail) == expected[-TAIL_LINES:]


def test_a_full_disk_costs_words_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """Output that cannot be written is lost, with one warning; callers get no error."""
    log = RotatingLog(FULL)
    log.write(b"one\n")
    log.write(b"two\n")
    log.close()
    assert [record.getMessage() for record in caplog.records] == [
        "/dev/full cannot be written: No space left on device"
    ]


def test_a_log_that_cannot_be_put_aside_is_written_on(tmp_path: Path) -> None:
    """If rotation fails, output is appended to the old file."""
    path = tmp_path / "one.log"
    log = RotatingLog(path, bytes_max=10)
    log.write(b"12345678\n")
    path.with_name(f"one.log.{LOGS_KEPT}").mkdir()
    path.with_name(f"one.log.{LOGS_KEPT - 1}").touch()
    log.write(b"9\n")
    log.write(b"10\n")
    log.close()
    assert path.read_bytes() == b"12345678\n9\n10\n"
