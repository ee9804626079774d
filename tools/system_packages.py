"""Finds programs that are not Python packages on PATH, or installs them from Debian when root.

Quiet when all are installed. Standard library only: this runs before anything is installed.

    python -m tools.system_packages             # all of the table
    python -m tools.system_packages --for bench
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

UPDATE_ATTEMPTS_MAX = 3
UPDATE_SECONDS_MAX = 180
INSTALL_ATTEMPTS_MAX = 2
INSTALL_SECONDS_MAX = 900
RETRY_SECONDS = 5
LOCK_SECONDS_MAX = 120
LOG_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program: any one of `commands` is sufficient."""

    commands: tuple[str, ...]
    debian: str
    needed_for: str
    why: str

    def found(self) -> bool:
        return any(shutil.which(command) for command in self.commands)


PROGRAMS = (
    Program(
        commands=("kubectl",),
        debian="kubernetes-client",
        needed_for="test",
        why="the standard client, tested against restow",
    ),
    Program(
        commands=("chromium", "chromium-browser", "google-chrome"),
        debian="chromium",
        needed_for="test",
        why="the dashboard is tested in a real browser",
    ),
    Program(
        commands=("chromedriver",),
        debian="chromium-driver",
        needed_for="test",
        why="drives that browser",
    ),
    Program(
        commands=("wrk",),
        debian="wrk",
        needed_for="bench",
        why="HTTP load generator that is faster than the server under test",
    ),
)


class SetupError(Exception):
    """Set-up cannot continue; the message says what to do."""


def missing(programs: Sequence[Program]) -> list[Program]:
    return [program for program in programs if not program.found()]


def ensure(programs: Sequence[Program]) -> None:
    """Make every program available, or raise SetupError with the command to run."""
    absent = missing(programs)
    if not absent:
        return
    install([program.debian for program in absent], purpose="missing programs")
    still_absent = missing(absent)
    if still_absent:
        names = ", ".join(program.commands[0] for program in still_absent)
        raise SetupError(f"installed, but still not on PATH: {names}")


def install(packages: Sequence[str], *, purpose: str) -> None:
    """Install Debian packages as root, or raise SetupError with the command to run."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise SetupError(f"{purpose}: install what Debian calls: {names}")
    if os.geteuid() != 0:
        raise SetupError(
            f"{purpose}. Run this, then try again:\n"
            f"  sudo apt-get update && sudo apt-get install --no-install-recommends {names}"
        )
    print(f"==> apt-get install {names}", flush=True)
    options = [
        *("-o", "Acquire::Retries=3"),
        *("-o", f"DPkg::Lock::Timeout={LOCK_SECONDS_MAX}"),
    ]
    _run_with_retries(
        ["apt-get", *options, "update", "--quiet"],
        attempts_max=UPDATE_ATTEMPTS_MAX,
        seconds_max=UPDATE_SECONDS_MAX,
    )
    _run_with_retries(
        ["apt-get", *options, "install", "--yes", "--quiet", "--no-install-recommends", *packages],
        attempts_max=INSTALL_ATTEMPTS_MAX,
        seconds_max=INSTALL_SECONDS_MAX,
        # An earlier install may have been interrupted.
        before_retry=["dpkg", "--configure", "-a"],
    )


def _run_with_retries(
    command: list[str],
    *,
    attempts_max: int,
    seconds_max: float,
    before_retry: list[str] | None = None,
) -> None:
    for attempt in range(1, attempts_max + 1):
        log = _run(command, seconds_max=seconds_max)
        if log is None:
            return
        shown = "\n".join(log.splitlines()[-LOG_LINES_SHOWN:])
        message = f"`{' '.join(command)}` failed ({attempt} of {attempts_max}):\n{shown}"
        if attempt == attempts_max:
            raise SetupError(message)
        print(message, file=sys.stderr, flush=True)
        time.sleep(RETRY_SECONDS)
        if before_retry is not None:
            _run(before_retry, seconds_max=seconds_max)


def _run(command: list[str], *, seconds_max: float) -> str | None:
    """Run a command quietly. Return None if it worked, its output if it did not."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds_max,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return f"timeout after {seconds_max} seconds"
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Find or install the programs that restow needs.")
    parser.add_argument(
        "--for",
        dest="needed_for",
        choices=sorted({program.needed_for for program in PROGRAMS}),
        help="only what this target needs (default: all)",
    )
    needed_for = parser.parse_args().needed_for
    programs = [p for p in PROGRAMS if needed_for in {None, p.needed_for}]
    try:
        ensure(programs)
    except SetupError as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
