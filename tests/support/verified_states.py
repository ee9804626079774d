"""StorageStates narrowed by servers, for tests that need known ones and run no controllers.

Only servers narrow a state, after a clean pass. Not here: migrations that are tested themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Ask = Callable[[str, str, object], Any]
"""A request by method, path and body, and its answer, which must be a success."""

_BASE: Final = "/apis/migration.k8s.io/v1alpha1"
_PASSES_MAX: Final = 2
_OBJECTS_MAX: Final = 10_000


def verify_states(ask: Ask, *, but: str = "") -> None:
    """Have servers verify every resource that has a StorageState, but for one."""
    for state in ask("GET", f"{_BASE}/storagestates", None)["items"]:
        if state["metadata"]["name"] != but:
            verify_state(ask, state)


def verify_state(ask: Ask, state: dict[str, Any]) -> None:
    """Have a server rewrite all objects of one resource, of which there are few, and verify it."""
    name, resource = state["metadata"]["name"], state["spec"]["resource"]
    spec = {"resource": {"version": "v1", **resource}}
    path = f"{_BASE}/storageversionmigrations"
    ask("POST", path, {"metadata": {"name": f"verify-{name}"}, "spec": spec})
    passes = (
        ask("POST", f"{path}/verify-{name}/rewrite", {"limit": _OBJECTS_MAX})
        for _ in range(_PASSES_MAX)
    )
    assert any(each["verified"] for each in passes), f"{name} is not verified"
    ask("DELETE", f"{path}/verify-{name}", None)
