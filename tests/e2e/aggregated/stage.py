"""What the tests of aggregated servers share: kinds in files, and how to ask and wait.

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
"""Of a user of the main server who may do nothing."""
WAIT_SECONDS_MAX: Final = 60.0
"""For whatever must happen sooner or later: a busy machine is no failure."""
_POLL_SECONDS: Final = 0.05

T = TypeVar("T")


def definition(storage: str, *, group: str = GROUP) -> dict[str, Any]:
    """A kind in two versions, of which one is stored."""
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
    """A release of the server: the same kind, stored in a version of its choice."""
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
    """Status and body of one request, read as JSON."""
    code, text = server.request(method, path, body)
    return code, json.loads(text) if text.startswith("{") else text


def until(look: Callable[[], T | None]) -> T:
    """What a look shows once it shows something; fails when that takes too long."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not (found := look()):
        assert time.monotonic() < deadline, f"never seen; last: {found!r}"
        time.sleep(_POLL_SECONDS)
    return found


def is_available(server: ServerProcess, version: str = "v1", *, group: str = GROUP) -> bool:
    """Whether the main server passes requests on, and the backend answers."""
    return ask(server, "GET", parts_path(version=version, group=group))[0] == 200


def entries(server: ServerProcess, *, group: str = GROUP) -> dict[str, str]:
    """Which server says that it writes which version."""
    path = f"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{group}.parts"
    code, found = ask(server, "GET", path)
    if code == 404:
        return {}
    listed = found["status"]["storageVersions"]
    return {each["apiServerID"]: each["encodingVersion"] for each in listed}


def stores(server: ServerProcess, *, group: str = GROUP) -> dict[str, str]:
    """Which server has said that it keeps the objects in which store of its own."""
    path = f"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{group}.parts"
    _, found = ask(server, "GET", path)
    said: dict[str, str] = json.loads(found["metadata"]["annotations"].get(STORES_ANNOTATION, "{}"))
    return said


def endpoints(server: ServerProcess, component: str) -> set[int]:
    """The ports at which the main server looks for the servers of a component."""
    _, found = ask(server, "GET", f"/api/v1/namespaces/kube-system/endpoints/{component}")
    return {port["port"] for subset in found.get("subsets") or () for port in subset["ports"]}
