"""Shared by the tests of aggregated servers: kinds in files, requests and waiting.

Not here: processes, which each module starts for itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from restow.apis.names import STORES_ANNOTATION
from tests.support.server_process import ServerProcess

GROUP: Final = "parts.example.com"
EVE_TOKEN: Final = "token-of-eve"
"""Of a user of the main server without permissions."""
WAIT_SECONDS_MAX: Final = 60.0
"""For eventual conditions: a busy machine is no failure."""
_POLL_SECONDS: Final = 0.05

T = TypeVar("T")


def definition(storage: str, *, group: str = GROUP) -> dict[str, Any]:
    """A kind with two versions, one of them stored."""
    spec = {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "minimum": 0},
            "colour": {"type": "string", "default": "grey"},
        },
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    column = {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"parts.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": "Part", "plural": "parts", "shortNames": ["pt"]},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": name,
                    "served": True,
                    "storage": name == storage,
                    "schema": schema,
                    "additionalPrinterColumns": [column],
                }
                for name in ("v1", "v1beta1")
            ],
        },
    }


def kinds_file(directory: Path, storage: str, *, group: str = GROUP) -> Path:
    """Writes a release of the server: the same kind, with the given storage version."""
    path = directory / f"{group}-{storage}.yaml"
    path.write_text(json.dumps(definition(storage, group=group)))
    return path


def part(name: str, size: int = 1, *, group: str = GROUP) -> dict[str, Any]:
    return {
        "apiVersion": f"{group}/v1",
        "kind": "Part",
        "metadata": {"name": name},
        "spec": {"size": size},
    }


def parts_path(*, version: str = "v1", name: str = "", group: str = GROUP) -> str:
    path = f"/apis/{group}/{version}/namespaces/default/parts"
    return f"{path}/{name}" if name else path


def ask(server: ServerProcess, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Sends a request; returns status and parsed body."""
    code, text = server.request(method, path, body)
    return code, json.loads(text) if text.startswith("{") else text


def until(look: Callable[[], T | None]) -> T:
    """Polls until the result is not None; fails after a time limit."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not (found := look()):
        assert time.monotonic() < deadline, f"never seen; last: {found!r}"
        time.sleep(_POLL_SECONDS)
    return found


def is_available(server: ServerProcess, version: str = "v1", *, group: str = GROUP) -> bool:
    """Returns whether the main server proxies requests, and the backend responds."""
    return ask(server, "GET", parts_path(version=version, group=group))[0] == 200


def entries(server: ServerProcess, *, group: str = GROUP) -> dict[str, str]:
    """Returns the version that each server reports."""
    path = f"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{group}.parts"
    code, found = ask(server, "GET", path)
    if code == 404:
        return {}
    listed = found["status"]["storageVersions"]
    return {each["apiServerID"]: each["encodingVersion"] for each in listed}


def stores(server: ServerProcess, *, group: str = GROUP) -> dict[str, str]:
    """Returns the store that each server reports for its objects."""
    path = f"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{group}.parts"
    _, found = ask(server, "GET", path)
    said: dict[str, str] = json.loads(found["metadata"]["annotations"].get(STORES_ANNOTATION, "{}"))
    return said


def endpoints(server: ServerProcess, component: str) -> set[int]:
    """Returns the ports of a component's servers in the main server's endpoints."""
    _, found = ask(server, "GET", f"/api/v1/namespaces/kube-system/endpoints/{component}")
    return {port["port"] for subset in found.get("subsets") or () for port in subset["ports"]}
