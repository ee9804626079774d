"""Starts passes in separate processes, and reads their results."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class PassDone:
    """The result that a migrator reports."""

    objects: int
    seconds: float
    in_flight: int
    memory_mb: float

    @property
    def rate(self) -> float:
        """Objects per second."""
        return self.objects / self.seconds


class Migrator:
    """A process that is ready to begin."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self) -> tuple[PassDone, list[dict[str, Any]]]:
        """Run its pass; also return its reports of each page."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        pages: list[dict[str, Any]] = []
        while True:
            found = json.loads(await self.line())
            if "seconds" in found:
                return PassDone(**found), pages
            pages.append(found)

    async def line(self) -> bytes:
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS_MAX):
            line = await self._process.stdout.readline()
        if not line:
            raise SystemExit("the migrator has ended before its pass")
        return line


@asynccontextmanager
async def migrator(kubeconfig: Path, way: str, *arguments: str) -> AsyncIterator[Migrator]:
    """Start one; it is ended with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "benchmarks.migration.migrator", "--wait"),
        *("--kubeconfig", str(kubeconfig), "--way", way, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    made = Migrator(process)
    try:
        await made.line()
        yield made
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
