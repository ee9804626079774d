"""Time, randomness and tasks are injected: the linter rejects direct use."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUFF = Path(sys.executable).with_name("ruff")

HIDDEN = (
    "import time",
    "from time import monotonic",
    "import random",
    "import secrets",
    "import sqlite3",
    "import os\nos.urandom(8)",
    "import uuid\nuuid.uuid4()",
    "from uuid import uuid4",
    "import asyncio\nasyncio.sleep(1)",
    "from asyncio import sleep",
    "import asyncio\nasyncio.create_task(None)",
    "import asyncio\nasyncio.ensure_future(None)",
    "import datetime\ndatetime.datetime.now(datetime.UTC)",
    "from datetime import datetime\ndatetime.utcnow()",
    "from datetime import date\ndate.today()",
)


def _is_refused(code: str, *, path: str) -> bool:
    done = subprocess.run(
        [RUFF, "check", "--quiet", "--select=TID251", f"--stdin-filename={path}", "-"],
        input=code + "\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in {0, 1}, done.stderr
    return "TID251" in done.stdout


@pytest.mark.parametrize("code", HIDDEN)
def test_hidden_inputs_are_refused(code: str) -> None:
    """Only runtime may use the process' clock, randomness or unmanaged tasks."""
    assert _is_refused(code, path="src/restow/apimachinery/sample.py")


def test_runtime_may_use_them() -> None:
    """The runtime package may use them all."""
    assert not _is_refused("\n".join(HIDDEN), path="src/restow/aio/sample.py")
