"""Has servers verify StorageStates, for tests that need known ones and run no controllers.

Only servers narrow a state, after a clean pass. Not here: tests of migrations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Send = Callable[[str, str, object], Any]
"""A request by method, path and body; returns its response, which must be a success."""

_BASE: Final = "/apis/migration.k8s.io/v1alpha1"
_PASSES_MAX: Final = 2
_OBJECTS_MAX: Final = 10_000


def verify_states(send: Send, *, but: str = "") -> None:
    """Make servers verify every resource that has a StorageState, except one."""
    for state in send("GET", f"{_BASE}/storagestates", None)["items"]:
        if state["metadata"]["name"] != but:
            verify_state(send, state)


def verify_state(send: Send, state: dict[str, Any]) -> None:
    """Make a server rewrite all objects of one resource, which are few, and verify it."""
    name, resource = state["metadata"]["name"], state["spec"]["resource"]
    spec = {"resource": {"version": "v1", **resource}}
    path = f"{_BASE}/storageversionmigrations"
    send("POST", path, {"metadata": {"name": f"verify-{name}"}, "spec": spec})
    passes = (
        send("POST", f"{path}/verify-{name}/rewrite", {"limit": _OBJECTS_MAX})
        for _ in range(_PASSES_MAX)
    )
    assert any(each["verified"] for each in passes), f"{name} is not verified"
    send("DELETE", f"{path}/verify-{name}", None)
