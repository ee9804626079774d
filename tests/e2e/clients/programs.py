"""Runs programs that use a client; their output lists the checks that passed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
SECONDS_MAX: Final = 90.0


def passed(
    command: Sequence[str | Path], *, home: Path, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Runs a program, which must succeed; returns the names of the checks that passed."""
    printed = run(command, home=home, environment=environment)
    return [line[3:] for line in printed.splitlines() if line.startswith("ok ")]


def run(
    command: Sequence[str | Path], *, home: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Runs a program with a home directory of its own, which must succeed; returns its output."""
    done = subprocess.run(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **(environment or {})},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
