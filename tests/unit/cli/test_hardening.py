"""A process with keys protects its memory and its files."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import ctypes, os, resource
from restow.cli.hardening import harden
harden()
print(resource.getrlimit(resource.RLIMIT_CORE)[0], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
      oct(os.umask(0)))
"""


def said(**environ: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, **environ},
    )
    return result.stdout.strip()


def test_no_dumps_and_private_files() -> None:
    """No core file, no debugger, and new files are private."""
    assert said() == "0 0 0o77"


def test_memory_inspection_can_be_allowed() -> None:
    """Then the memory can be inspected; files are private anyway."""
    assert said(RESTOW_ALLOW_CORE_DUMPS="1").endswith(" 1 0o77")
