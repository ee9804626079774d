"""Background tasks of a server that run until its end are loops, whose failures are recorded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "restow"
CLIENTS = frozenset({"cli", "client", "localcluster", "migration", "testing"})
"""Packages of other processes: a failed task ends these, and the supervisor restarts them."""
PACKAGES = sorted(
    path.name
    for path in SOURCE.iterdir()
    if path.name not in CLIENTS and (path / "__init__.py").exists()
)
ENDLESS = frozenset(
    {
        *("run", "_run", "follow", "_follow", "_follow_files", "repeat", "run_worker", "_keep"),
        *("_run_repeatedly", "_fetch_periodically", "_collect", "_reload"),
    }
)
"""Names of coroutine functions that usually do not end by themselves."""
ENDING = {
    "aio/leader_election.py": "a leadership, which the task ends when it fails",
    "aggregator/proxy.py": "an answer that is passed on",
    "aggregator/connection_upgrade.py": "a tunnel of one client",
    "endpoints/handlers/long_encodings.py": "one event, for all watches that wait for it",
    "endpoints/handlers/watch_conversion.py": "a conversion, for all who wait for it",
    "httpserver/response_writer.py": "the answer to a request",
    "storage/etcd/reader.py": "one question, for all who wait for it",
}
"""Exceptions with such a name whose task ends, with reasons."""


def spawned(path: Path, method: str) -> Iterator[str]:
    """Returns the functions whose coroutines a module starts by this method."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(attr=attr), args=[_, ast.Call(func=function)]) if (
                attr == method
            ):
                yield (
                    function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
                )


@pytest.mark.parametrize("package", PACKAGES)
def test_tasks_that_do_not_end_are_loops(package: str) -> None:
    """A task without an end is started by `spawn_loop`, which records failures."""
    silent = {
        str(path.relative_to(SOURCE))
        for path in sorted((SOURCE / package).rglob("*.py"))
        if ENDLESS & set(spawned(path, "spawn"))
    }
    assert silent - ENDING.keys() == set()


def test_loops_are_found() -> None:
    """The check finds a loop."""
    assert {"registry", "storage", "storageversion"} < set(PACKAGES)
    assert "_follow" in set(spawned(SOURCE / "registry" / "caches.py", "spawn_loop"))
