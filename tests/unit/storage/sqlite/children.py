"""Starts child processes of a test, and always ends them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Child:
    """A running `tests.support.sqlite_child`."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.support.sqlite_child", *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode()

    def wait_open(self) -> int:
        """Wait until it has opened the store; return its revision."""
        line = self.read_line()
        if not line.startswith("open "):
            raise AssertionError(f"no store was opened: {line!r} {self.finish()[1]}")
        return int(line.split()[1])

    def go(self) -> None:
        """Send the line of input that it waits for."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()

    def finish(self) -> tuple[str, str]:
        """Wait for its exit; return its remaining output and errors."""
        output, errors = self._process.communicate(timeout=60)
        return output.decode(), errors.decode()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@contextmanager
def child(*arguments: object) -> Iterator[Child]:
    process = Child(*arguments)
    try:
        yield process
    finally:
        process.end()


def acknowledged(output: str) -> dict[int, int]:
    """The numbers that a `write` child has acknowledged, each with its revision."""
    done: dict[int, int] = {}
    for line in output.splitlines(keepends=True):
        words = line.split()
        if line.endswith("\n") and words[0] == "done":
            done[int(words[1])] = int(words[2])
    return done


def socket_names(path: Path) -> list[str]:
    """The sockets in the peers' directory of a store."""
    return sorted(entry.name for entry in Path(f"{path}-peers").glob("*.sock"))
