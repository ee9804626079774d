"""Creates `.venv`: the locked packages with their hashes, and restow itself, editable.

    python -m tools.python_environment run     # packages for running restow: requirements-run.lock
    python -m tools.python_environment test    # tests and checks too: requirements.lock

A `.venv` of level `test` is also one of level `run`; one of level `run` is completed in place. Does
nothing when the stamp inside `.venv` matches. The stamp is removed first and written last, so an
interrupted run starts again from an empty `.venv`. Standard library only, and valid syntax for a
Python that is too old, which gets a clear message.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PYTHON_MIN = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".restow-stamp.json"
LOCKS = {"run": ROOT / "requirements-run.lock", "test": ROOT / "requirements.lock"}
"""By level; each contains the packages of the one before it, in the same versions."""
PROJECT = ROOT / "pyproject.toml"
INSTALL_SECONDS_MAX = 1200
DOWNLOAD_RETRIES_MAX = 5


class SetupError(Exception):
    """Set-up cannot continue; the message says what to do."""


def main() -> int:
    if sys.version_info < PYTHON_MIN:
        wanted = ".".join(map(str, PYTHON_MIN))
        found = sys.version.split()[0]
        print(
            f"restow needs Python {wanted} or newer; this is {found} ({sys.executable}).\n"
            f"Give another one: make PYTHON=/path/to/python{wanted} ...",
            file=sys.stderr,
        )
        return 1
    parser = argparse.ArgumentParser(prog="python -m tools.python_environment")
    parser.add_argument("level", choices=list(LOCKS), nargs="?", default="test")
    level = parser.parse_args().level
    try:
        with _one_at_a_time():
            bring_up_to_date(level)
    except SetupError as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("set-up interrupted; the next run starts it again", file=sys.stderr)
        return 130
    return 0


def bring_up_to_date(level: str) -> None:
    """Install the missing packages of a level. Packages installed beyond it stay."""
    found = _read_stamp()
    installed = _installed_level(found)
    wanted = max(level, installed or level, key=list(LOCKS).index)
    if found == _stamp(wanted):
        return
    started = time.monotonic()
    STAMP.unlink(missing_ok=True)
    if installed != wanted:
        lock = LOCKS[wanted]
        print(f"==> set-up: .venv from {lock.name}", flush=True)
        if installed is None:
            _make_empty_venv()
        _pip("install", "--require-hashes", "--only-binary=:all:", "--no-compile", "-r", str(lock))
    if installed is None or found["project"] != _digest(PROJECT):
        print("==> set-up: restow itself, editable", flush=True)
        _pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    _write_stamp(_stamp(wanted))
    print(f"==> set-up: done in {time.monotonic() - started:.0f} s", flush=True)


def _stamp(level: str) -> dict[str, str]:
    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor} {sys.base_prefix}",
        "root": str(ROOT),
        "level": level,
        "lock": _digest(LOCKS[level]),
        "project": _digest(PROJECT),
    }


def _installed_level(found: dict[str, str]) -> str | None:
    """The level whose packages are installed; None: none, or of an older lock or another Python."""
    level = found.get("level", "")
    if level not in LOCKS or {**found, "project": _digest(PROJECT)} != _stamp(level):
        return None
    return level


def _make_empty_venv() -> None:
    if importlib.util.find_spec("ensurepip") is None:
        # Debian packages it separately.
        from tools import system_packages  # noqa: PLC0415 - rarely needed

        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        try:
            system_packages.install([package], purpose="this Python cannot make environments")
        except system_packages.SetupError as error:
            raise SetupError(str(error)) from error
    try:
        # In a separate process: this one may have been started without ensurepip.
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(VENV)],
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=INSTALL_SECONDS_MAX,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise SetupError(f"cannot make {VENV}: {error}") from error


def _pip(*arguments: str) -> None:
    command = [
        *(str(VENV / "bin" / "python"), "-m", "pip"),
        *("-qq", "--no-input", "--disable-pip-version-check"),
        *("--retries", str(DOWNLOAD_RETRIES_MAX)),
        *arguments,
    ]
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS_MAX)
    except (subprocess.SubprocessError, OSError) as error:
        raise SetupError(f"pip: {error}") from error


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """With two concurrent `make`, the second waits, then finds the work done."""
    with PROJECT.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_stamp() -> dict[str, str]:
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _write_stamp(stamp: dict[str, str]) -> None:
    draft = STAMP.with_suffix(".draft")
    draft.write_text(json.dumps(stamp, indent=2) + "\n")
    os.replace(draft, STAMP)  # noqa: PTH105 - says that it is atomic


if __name__ == "__main__":
    sys.exit(main())
