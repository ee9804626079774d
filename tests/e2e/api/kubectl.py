"""Runs kubectl as a user does: arguments in, output and an exit code out.

The tests decide which arguments and outputs a version has.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from tests.support.server_process import ServerProcess

COMMAND_SECONDS_MAX: Final = 60.0
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def binaries() -> list[str]:
    """The kubectl on PATH, and those in RESTOW_KUBECTL (separated by colons)."""
    more = filter(None, os.environ.get("RESTOW_KUBECTL", "").split(":"))
    return [shutil.which("kubectl") or "kubectl", *more]


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class Kubectl:
    """One binary, as the user of one kubeconfig, in one namespace."""

    binary: str
    server: ServerProcess
    home: Path
    namespace: str = "default"
    minor: int = 0
    """The Y of its version 1.Y."""
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    kubeconfig: Path | None = None
    """Of its user; empty for the administrator."""

    @classmethod
    def found(cls, binary: str, server: ServerProcess, home: Path) -> Self:
        """Runs the binary once to find its version."""
        if shutil.which(binary) is None:
            raise FileNotFoundError(f"there is no {binary}: `make setup` installs one")
        home.mkdir(parents=True, exist_ok=True)
        self = cls(binary, server, home)
        version = self.json("version", "--client", "-o", "json")["clientVersion"]
        self.minor = int(re.sub(r"\D.*", "", version["minor"]))
        return self

    def within(self, namespace: str) -> Kubectl:
        """Returns the same for another namespace."""
        return replace(self, namespace=namespace)

    def try_run(self, *words: str, stdin: str = "", env: dict[str, str] | None = None) -> Output:
        """Runs it, and returns the output and exit code."""
        done = subprocess.run(
            self._command(words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            env=self._environment() | (env or {}),
            check=False,
        )
        return Output(done.returncode, _COLOUR.sub("", done.stdout), _COLOUR.sub("", done.stderr))

    def run(self, *words: str, stdin: str = "", env: dict[str, str] | None = None) -> str:
        """Runs it; it must succeed. Returns its output."""
        said = self.try_run(*words, stdin=stdin, env=env)
        assert said.code == 0, f"kubectl {' '.join(words)}: {said}"
        return said.out

    def fail(self, *words: str, stdin: str = "", env: dict[str, str] | None = None) -> str:
        """Runs it; it must fail. Returns its error output."""
        said = self.try_run(*words, stdin=stdin, env=env)
        assert said.code == 1, f"kubectl {' '.join(words)}: {said}"
        return said.err.strip()

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words))

    def apply(self, document: Any, *words: str) -> str:
        return self.run("apply", *words, "-f", "-", stdin=json.dumps(document)).strip()

    def start(self, *words: str) -> Running:
        """Starts it without waiting for its end."""
        return Running(
            subprocess.Popen(
                self._command(words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=self._environment(),
            )
        )

    def _command(self, words: tuple[str, ...]) -> list[str]:
        kubeconfig = str(self.kubeconfig or self.server.kubeconfig)
        place = ["--kubeconfig", kubeconfig, "--namespace", self.namespace]
        return [self.binary, *place, *self.options, *words]

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "KUBECACHEDIR": str(self.home / "cache"),
            "LC_ALL": "C.UTF-8",
        } | self.environment


class Running:
    """A running command, and the lines it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def lines(self) -> list[str]:
        return list(self._lines)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait_for(self, text: str, *, seconds_max: float = COMMAND_SECONDS_MAX) -> None:
        """Waits until a line contains a text."""
        deadline = time.monotonic() + seconds_max
        while not any(text in line for line in self.lines):
            assert time.monotonic() < deadline, f"no {text!r} in {self.lines}"
            assert self._reader.is_alive(), f"it ended without {text!r}: {self.lines}"
            time.sleep(0.01)

    def wait(self) -> int:
        """Waits for its end; returns the exit code."""
        code = self._process.wait(COMMAND_SECONDS_MAX)
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip("\n"))
