"""`restow demo`, run as a user does: every step is printed, and no file or process remains."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from tests.sizes import SIZES

RESTOW: Final = (sys.executable, "-P", "-m", "restow")
WAIT_SECONDS_MAX: Final = SIZES.test_seconds_max * 0.9
POLL_SECONDS: Final = 0.05

ALL_V1: Final = (
    r"0 +(not )?ready +x\+1 +v1",
    r"1 +(not )?ready +x\+1 +v1",
    r"2 +(not )?ready +x\+1 +v1",
)
ALL_V2: Final = (
    r"0 +(not )?ready +x\+2 +v2",
    r"1 +(not )?ready +x\+2 +v2",
    r"2 +(not )?ready +x\+2 +v2",
)
TRANSCRIPT: Final = (
    r"restow demo: a rolling upgrade",
    r"  D: /.*",
    r"  dashboard: https://127\.0\.0\.1:\d+/dashboard/.+",
    r"\[1/8\] Start three servers of release x\+1",
    r"  \$ restow up --servers 3 --release x\+1",
    *ALL_V1,
    r"  agreed on: v1; may be stored as: v1; migration: ",
    r"  ok: all three write v1",
    r"\[2/8\] Create 300 widgets",
    r"  census: 300 as v1$",
    r"\[3/8\] Upgrade server 0 to x\+2",
    r"  \$ restow upgrade --to x\+2 --server 0",
    r"0 +(not )?ready +x\+2 +v2",
    r"1 +(not )?ready +x\+1 +v1",
    r"2 +(not )?ready +x\+1 +v1",
    r"  agreed on: nothing; may be stored as: v1, v2; migration: none$",
    r"  ok: no migration was created$",
    r"\[4/8\] Upgrade server 1 to x\+2",
    r"  \$ restow controllers .*--rate=\d+.* # slow",
    r"0 +(not )?ready +x\+2 +v2",
    r"1 +(not )?ready +x\+2 +v2",
    r"2 +(not )?ready +x\+1 +v1",
    r"  agreed on: nothing; may be stored as: v1, v2; migration: none$",
    r"  census: 310 as v1, 20 as v2$",
    r"  ok: no migration was created$",
    r"\[5/8\] Upgrade server 2 to x\+2",
    *ALL_V2,
    r"  agreed on: v2; may be stored as: v1, v2; migration: Running \(\d+ of about 330 objects",
    r"  ok: the servers agree on v2, and one migration was created$",
    r"  census: \d+ as v1, \d+ as v2$",
    r"\[6/8\] Roll back server 2 during the migration$",
    r"  \$ restow upgrade --rollback --server 2",
    r"0 +(not )?ready +x\+2 +v2",
    r"1 +(not )?ready +x\+2 +v2",
    r"2 +(not )?ready +x\+1 +v1",
    r"  agreed on: nothing; may be stored as: v1, v2; migration: (none|Failed \(.+\))$",
    r"  ok: the migration is aborted, and did not succeed$",
    r"  ok: no persisted version was removed: objects may be stored as v1 and v2$",
    r"  census: \d+ as v1, \d+ as v2$",
    r"  ok: some widgets are rewritten, others are not$",
    r"  ok: x\+3 is not safe$",
    r"\[7/8\] Upgrade server 2 to x\+2 again$",
    *ALL_V2,
    r"  agreed on: v2; may be stored as: ",
    r"  ok: the servers agree again, and a new migration starts",
    r"\[8/8\] The migration completes$",
    *ALL_V2,
    r"  agreed on: v2; may be stored as: v2; migration: Succeeded \(all 330 objects",
    r"  ok: v1 was removed from the persisted versions only after verification$",
    r"  census: 330 as v2$",
    r"  ok: x\+3 is safe$",
    r"All checks passed:",
    r"  before: 300 widgets stored as v1",
    r"  after: 330 widgets stored as v2, none as v1",
    r"Next steps:",
    r"  \$ restow up --release x\+1",
)
"""Patterns that must be printed, in this order; other lines may stand between."""


class Demo:
    """One run of `restow demo`, with its own directory for temporary files."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.temporary = directory / "temporary"
        self.temporary.mkdir()
        self._output = directory / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*RESTOW, "demo", "--fast", "--plain", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def output(self) -> str:
        return self._output.read_text()

    def wait(self) -> int:
        return self.process.wait(WAIT_SECONDS_MAX)

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, f"it does not come that {what}:\n{self.output}"
            time.sleep(POLL_SECONDS)

    def processes(self) -> list[str]:
        """Returns the command lines of all processes that use its files."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it has just ended
            if str(self.temporary) in words:
                found.append(words)
        return found


def first_missing(output: str) -> str | None:
    """Returns the first pattern of the transcript without a matching line after the one before."""
    lines = iter(output.splitlines())
    for pattern in TRANSCRIPT:
        if not any(re.match(r" *" + pattern.lstrip(" "), line) for line in lines):
            return pattern
    return None


def test_the_walk_through(tmp_path: Path) -> None:
    """Every step has the result that the walk-through describes, and no process or file is left."""
    with Demo(tmp_path) as demo:
        code = demo.wait()
        missing = first_missing(demo.output)
        assert missing is None, f"{missing} is not told:\n{demo.output}"
        assert code == 0, demo.output
        assert "\x1b" not in demo.output
        demo.wait_for(lambda: not demo.processes(), "no process is left")
        assert list(demo.temporary.iterdir()) == []


def test_an_interrupt_cleans_up(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a step ends every process and removes every file."""
    with Demo(tmp_path, "--seed=1") as demo:
        demo.wait_for(
            lambda: "[3/8]" in demo.output or demo.process.poll() is not None, "the upgrade begins"
        )
        assert demo.processes()
        demo.process.send_signal(signal.SIGINT)
        assert demo.wait() == 130
        assert "interrupted; all processes were stopped" in demo.output
        demo.wait_for(lambda: not demo.processes(), "no process is left")
        assert list(demo.temporary.iterdir()) == []
