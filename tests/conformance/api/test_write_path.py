"""The path of a write from the listener to the store: few modules, the same for each store."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from restow.storage.interface import Outcome, Transaction
from tests.conformance.api.servers import CONFIG_MAPS, RunningServer

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "architecture" / "write-path.md"
PACKAGE = str(ROOT / "src" / "restow") + "/"
LISTENER = "httpserver/"

MODULES_MAX = 12
"""Between the listener and the driver."""
LINES_MAX = 300
CALLED_MAX = 54
"""Modules that run at all during a PUT, most of them for one check of the object."""


def config_map(value: str) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "data": {"x": value}}


def documented() -> list[str]:
    """Returns the modules in the first table of the page."""
    rows = re.findall(r"^\| `src/restow/([\w/.]+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert rows
    return [str(row) for row in rows]


def modules_of(frame: FrameType | None) -> list[str]:
    """Returns restow's modules on the stack between the listener and the caller, each once."""
    found: list[str] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            module = name.removeprefix(PACKAGE)
            if module.startswith(LISTENER):
                break
            if module not in found:
                found.append(module)
        frame = frame.f_back
    return found[::-1]


@pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
async def test_modules_on_the_stack_of_a_put(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PUT passes the modules that the page lists, in that order, with every store: at most
    twelve, each of limited length."""
    await server.client.post(CONFIG_MAPS, config_map("0"))
    commit = server.storage.commit
    paths: list[list[str]] = []

    async def traced(transaction: Transaction) -> Outcome:
        if any(each.key.endswith("/configmaps/default/a") for each in transaction.writes):
            paths.append(modules_of(sys._getframe(1)))
        return await commit(transaction)

    monkeypatch.setattr(server.storage, "commit", traced)
    reply = await server.client.put(f"{CONFIG_MAPS}/a", config_map("1"))
    assert reply.status == 200
    [path] = paths
    assert path == documented()
    assert len(path) <= MODULES_MAX
    lengths = {each: len((Path(PACKAGE) / each).read_text().splitlines()) for each in path}
    assert {each: lines for each, lines in lengths.items() if lines > LINES_MAX} == {}


@pytest.mark.parametrize("driver", ["memory"], indirect=True)
async def test_the_modules_that_run_before_the_commit(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Including decoding, validation and encoding of the object, a bounded number of modules
    runs."""
    await server.client.post(CONFIG_MAPS, config_map("0"))
    await server.client.put(f"{CONFIG_MAPS}/a", config_map("1"))
    called: set[str] = set()
    commit = server.storage.commit

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            called.add(name.removeprefix(PACKAGE))

    async def traced(transaction: Transaction) -> Outcome:
        sys.setprofile(None)
        return await commit(transaction)

    monkeypatch.setattr(server.storage, "commit", traced)
    sys.setprofile(note)
    try:
        reply = await server.client.put(f"{CONFIG_MAPS}/a", config_map("2"))
    finally:
        sys.setprofile(None)
    assert reply.status == 200
    called = {each for each in called if not each.startswith(LISTENER)}
    assert set(documented()) < called
    assert len(called) <= CALLED_MAX
