"""Code that a request runs before it has a task of its own does not need one."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2] / "src" / "restow"
NEED_A_TASK: Final = {"TaskGroup", "timeout", "timeout_at"}
"""Functions of asyncio that cancel the task in which they were entered."""
OUTSIDE: Final = ("cli", "localcluster", "migration", "testing")
"""Packages without request handlers."""
BACKGROUND: Final = {
    "aggregator/connection_upgrade.py": "a tunnel has a task of its own",
    "aggregator/documents.py": "asks backends in the background",
    "aio/leader_election.py": "runs in a task of its controller",
    "apiserver/aggregated_namespaces.py": "follows the cluster in the background",
    "apiserver/aggregated_trust.py": "follows the cluster in the background",
    "controllers/manager.py": "runs controllers in the background",
    "endpoints/revocation.py": "checks running requests in the background",
    "registry/reconcile_loops.py": "runs controllers in the background",
    "storage/restore.py": "is run by commands",
    "storageversion/coordinator.py": "registers in the background",
    "storageversion/garbage_collector.py": "collects in the background",
}


def test_task_groups_and_timeouts_of_requests() -> None:
    """A module that a request may reach waits for its task before it enters a task group or a
    timeout; the others are listed, and the list has no unnecessary entries."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(OUTSIDE):
            continue
        text = path.read_text()
        if not any(f"asyncio.{each}" in text for each in NEED_A_TASK):
            continue
        tree = ast.parse(text)
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        needs = any(
            isinstance(call, ast.Attribute)
            and call.attr in NEED_A_TASK
            and isinstance(call.value, ast.Name)
            and call.value.id == "asyncio"
            for call in calls
        )
        if needs:
            waits = any(isinstance(call, ast.Name) and call.id == "in_task" for call in calls)
            found[name] = waits
    assert {name for name, waits in found.items() if not waits} == set(BACKGROUND)
