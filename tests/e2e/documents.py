"""Runs the commands of a page in order, and compares their output with what the page shows.

    ```sh      commands, run by one shell from the first block to the last
    ```        directly after it: expected lines, in this order; others may be printed between

`…` in an expected line matches anything, and runs of blanks count as one. Not here: which pages.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

ROOT: Final = Path(__file__).parents[2]
ANYTHING: Final = "…"
WAIT_SECONDS_MAX: Final = 120.0
POLL_SECONDS: Final = 0.05
MARK: Final = "-- the block has ended:"

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Commands of a page, and the lines that it shows for them."""

    commands: str
    shown: tuple[str, ...]


def blocks_of(document: Path) -> list[Block]:
    """Returns all blocks of commands, each with the output shown before the next one."""
    found: list[Block] = []
    for language, text in _FENCE.findall(document.read_text()):
        if language == "sh":
            found.append(Block(commands=text, shown=()))
        elif not language and found and not found[-1].shown:
            found[-1] = Block(commands=found[-1].commands, shown=tuple(text.splitlines()))
    return found


def missing(shown: tuple[str, ...], output: str) -> list[str]:
    """Returns the expected lines that were not printed, or not in this order."""
    left = iter(_plain(line) for line in output.splitlines())
    return [line for line in shown if _plain(line) != ANYTHING and not _is_among(line, left)]


def _is_among(line: str, printed: Iterator[str]) -> bool:
    parts = [re.escape(part.strip()) for part in _plain(line).split(ANYTHING)]
    pattern = re.compile(r"\s*.*?\s*".join(parts))
    return any(pattern.fullmatch(each) for each in printed)


def _plain(line: str) -> str:
    return " ".join(_COLOURS.sub("", line).split())


class Shell:
    """A shell session: variables exported in one block exist in the next."""

    def __init__(self, place: Path, *, environment: Mapping[str, str]) -> None:
        self._place = place
        self._environment = environment

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self._place,
            env=dict(self._environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, block: Block) -> str:
        """Returns the output of the commands. The last one must succeed."""
        script = self._place / "block.sh"
        script.write_text(block.commands)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"source ./{script.name} < /dev/null; echo; echo '{MARK}' $?\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith(MARK):
                code = int(line.removeprefix(MARK))
                break
            lines.append(line)
        else:
            raise AssertionError(f"the shell has ended:\n{''.join(lines)}")
        output = "".join(lines)
        assert code == 0, f"exit code {code} of:\n{block.commands}\n{output}"
        lacking = missing(block.shown, output)
        assert not lacking, f"not printed: {lacking}\nby:\n{block.commands}\n{output}"
        return output


class Foreground:
    """A command that runs in its own terminal until Ctrl-C."""

    def __init__(self, command: str, place: Path, *, environment: Mapping[str, str]) -> None:
        self._command = command
        self._place = place
        self._environment = environment
        self._file = place / "foreground.out"

    def __enter__(self) -> Self:
        with self._file.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {self._command}"],
                cwd=self._place,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def output(self) -> str:
        return self._file.read_text()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not re.search("^ready", self.output, re.MULTILINE):
            assert self._process.poll() is None, f"it has ended:\n{self.output}"
            assert time.monotonic() < deadline, f"it does not get ready:\n{self.output}"
            time.sleep(POLL_SECONDS)

    def stop(self) -> int:
        """Sends SIGINT; returns the exit code."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(WAIT_SECONDS_MAX)


def behind_make(command: str, place: Path, *, environment: Mapping[str, str]) -> str:
    """Returns the last command that `make …` runs, after it has prepared its own environment.

    The tests may run under make themselves; its variables are not set for a user.
    """
    done = subprocess.run(
        ["bash", "-c", f"{command} --dry-run"],
        cwd=place,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS_MAX,
    )
    return done.stdout.splitlines()[-1].removeprefix("exec ")


def make_clone(place: Path) -> dict[str, str]:
    """Creates a directory that looks like a clone after its first `make`; returns its
    environment."""
    bin_dir = place / ".venv" / "bin"
    bin_dir.mkdir(parents=True)
    (place / "Makefile").symlink_to(ROOT / "Makefile")
    restow = bin_dir / "restow"
    restow.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m restow "$@"\n')
    restow.chmod(0o755)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, "HOME": str(place), "PYTHONUTF8": "1"}
