"""The order in which servers start and stop, and cleaning up after a failed start."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from restow.aio import Runtime
from restow.apiserver import aggregated, server
from restow.apiserver.options import ServeOptions
from restow.apiserver.server import ApiServer
from restow.apiserver.shutdown import STOP, Shutdown
from restow.apiserver.startup import PARTICIPATION, StartStep

STOP_NAMES: Final = [step.name for step in STOP]
OPENS: Final = {"open_store(": "store", "load_encryption(": "encryption"}
"""Functions that register what they open."""


def registered(step: StartStep[Any]) -> list[str]:
    """The stop steps whose parts a start step registers."""
    calls = re.findall(
        r"shutdown\.add\(\s*\"([^\"]+)\"|(?<!def )\b(open_store\(|load_encryption\()",
        inspect.getsource(step.run),
    )
    return [name or OPENS[call] for name, call in calls]


def test_the_order_of_a_start() -> None:
    """Keys and store first; nothing is served before all is loaded; the address comes last."""
    assert [step.name for step in server.START] == [
        *("keys", "authenticators", "store", "audit", "build", "assembly", "listener"),
        *("background", "participation", "controllers", "front port", "address"),
    ]
    assert [step.name for step in aggregated.START] == [
        *("main servers", "store", "forgotten stores", "reviews", "audit", "build", "assembly"),
        *("listener", "participation", "background", "registration"),
    ]


def test_startup_registers_before_reporting() -> None:
    """KEP-2339: membership, then registration, which opens the barrier, then readiness."""
    assert [step.name for step in PARTICIPATION] == [
        *("membership", "events", "custom resources", "registration", "stored CRDs"),
        *("encryption keys", "readiness"),
    ]


@pytest.mark.parametrize("start", [server.START, aggregated.START])
def test_a_stop_mirrors_the_start(start: tuple[StartStep[Any], ...]) -> None:
    """Parts are stopped in reverse order. Entries are withdrawn after the listener has stopped,
    although the coordinator is created before the listener, and joins afterwards."""
    started = [name for step in start for name in registered(step)]
    assert started
    assert [name for name in STOP_NAMES if name in started] == started[::-1]


def test_every_step_has_a_reason_and_a_part() -> None:
    """Each position in the order has a reason, and each stop step is used by a start."""
    starts: list[StartStep[Any]] = [*server.START, *aggregated.START]
    assert all(step.reason for step in (*starts, *PARTICIPATION))
    assert all(step.reason for step in STOP)
    started = {name for step in starts for name in registered(step)}
    assert started == set(STOP_NAMES)
    assert len(STOP_NAMES) == len(set(STOP_NAMES))


async def test_a_step_that_fails_does_not_keep_others_from_running() -> None:
    """All parts are stopped in order, once; then the error is raised."""
    stopped: list[str] = []
    shutdown = Shutdown()

    def stop(name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            stopped.append(name)
            if name == "listener":
                raise OSError(name)

        return run

    for name in ("store", "controllers", "listener"):
        shutdown.add(name, stop(name))
    with pytest.raises(OSError, match="listener"):
        await shutdown.run()
    await shutdown.run()
    assert stopped == ["controllers", "listener", "store"]


async def test_a_start_that_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step fails, the parts that were started before are stopped, in order."""
    options = ServeOptions(data_dir=tmp_path, store="memory:", port=0, grace_seconds=1)
    stopped: list[str] = []
    add, steps = Shutdown.add, server.START

    def recording(self: Shutdown, name: str, stop: Callable[[], Awaitable[object]]) -> None:
        async def run() -> None:
            stopped.append(name)
            await stop()

        add(self, name, run)

    async def fail(_start: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(Shutdown, "add", recording)
    for number, step in enumerate(steps):
        stopped.clear()
        before = asyncio.all_tasks()
        failing = (*steps[:number], replace(step, run=fail), *steps[number + 1 :])
        monkeypatch.setattr(server, "START", failing)
        with pytest.raises(OSError, match="no"):
            await ApiServer.start(options, Runtime.system())
        started = [name for each in steps[:number] for name in registered(each)]
        wanted = [name for name in reversed(started) if name not in ("audit", "encryption")]
        assert stopped == wanted, step.name
        assert asyncio.all_tasks() == before, step.name
