"""Programs that use a client, run as programs; what each of them has checked is on its output."""

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
    """Run a program to its good end; the names of the checks that it says have passed."""
    printed = run(command, home=home, environment=environment)
    return [line[3:] for line in printed.splitlines() if line.startswith("ok ")]


def run(
    command: Sequence[str | Path], *, home: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program to its good end, in a home of its own; what it has printed."""
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
