"""A server with a skewed clock: `restow` with its wall clock shifted by the value in a file.

    python -m tests.support.fire.skewed_server FILE serve --data-dir ...

All of restow reads the time of day through `SystemClock.wall`, which the linter enforces, so
shifting that shifts all; the file is read every time, so a clock can jump while the server runs.
The program itself has no code for this. Not shifted: the monotonic clock, which no system shifts,
and the time that C libraries read, such as for certificate validity in TLS.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from restow.aio import SystemClock
from restow.cli.main import main as restow
from tests.support.server_process import ServerProcess


class SkewedServerProcess(ServerProcess):
    """A server whose wall clock can be set."""

    def command(self) -> list[str]:
        command = super().command()
        words = command[command.index("restow") + 1 :]
        module = "tests.support.fire.skewed_server"
        return [sys.executable, "-m", module, str(self._skew_file), *words]

    @property
    def _skew_file(self) -> Path:
        return self.data_dir / "skew"

    def set_skew(self, seconds: float) -> None:
        """Make its clock jump; 0 is the correct time."""
        self._skew_file.write_text(str(seconds))


def skewed_wall(file: Path) -> datetime:
    """The time of day, shifted by the value in the file."""
    try:
        seconds = float(file.read_text())
    except (OSError, ValueError):
        seconds = 0.0  # not written yet, or being written
    return datetime.now(UTC) + timedelta(seconds=seconds)


def main(words: Sequence[str]) -> int:
    file, *rest = words

    def wall(self: SystemClock) -> datetime:
        return skewed_wall(Path(file))

    SystemClock.wall = wall  # type: ignore[method-assign]
    sys.argv = ["restow", *rest]
    return restow(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
