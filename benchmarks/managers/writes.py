"""The measured writes: bodies of a small ConfigMap and of a typical Deployment.

Each number gives a different content, and none adds or removes a field, like most writes of
programs. An update is sent in two ways: as a manifest without managers, and as the object was last
read, with its managedFields if there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from benchmarks.api.requests import NAMESPACE

Object = dict[str, Any]
Answer = Object
"""The object as it was last read."""

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json"
KEYS: Final = 5
_CONFIG_MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One kind of write."""

    what: str
    method: str
    path: str
    """Path of the collection."""
    suffix: str = ""
    form: str = JSON
    body: Callable[[str, int, Answer], Object]
    """Body from the name of the object, a number, and the current object."""

    def url(self, name: str) -> str:
        return self.path if self.method == "POST" else f"{self.path}/{name}{self.suffix}"

    def content(self, name: str, number: int, found: Answer) -> bytes:
        return orjson.dumps(self.body(name, number, found))


def config_map(name: str, number: int) -> Object:
    data = {f"key-{each}": f"{'x' * 40}-{number}" for each in range(KEYS)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": data}


def deployment(name: str, number: int) -> Object:
    labels = {"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": name}
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 5}
    container = {
        "name": "web",
        "image": f"registry.example.org/web:{number}",
        "args": ["--verbose", "--port=8080"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": "MODE", "value": "fast"}, {"name": "LEVEL", "value": "info"}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "readinessProbe": probe,
    }
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def _status(name: str, number: int) -> Object:
    found = {"observedGeneration": number, "replicas": 3, "readyReplicas": number % 4}
    return {**deployment(name, 0), "status": found}


def _changed_data(_name: str, number: int, found: Answer) -> Object:
    return {**found, "data": {**found["data"], "key-0": f"read-{number}"}}


def _changed_image(_name: str, number: int, found: Answer) -> Object:
    [container] = found["spec"]["template"]["spec"]["containers"]
    container["image"] = f"registry.example.org/web:read-{number}"
    return found


def _data_patch(_name: str, number: int, _found: Answer) -> Object:
    return {"data": {"key-0": f"patched-{number}"}}


def _replicas_patch(_name: str, number: int, _found: Answer) -> Object:
    return {"spec": {"replicas": number % 1_000 + 1}}


def _image_patch(_name: str, number: int, _found: Answer) -> Object:
    container = {"name": "web", "image": f"registry.example.org/web:patched-{number}"}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


def _writes(kind: str, path: str, whole: Callable[[str, int], Object]) -> list[Write]:
    is_small = path == _CONFIG_MAPS

    def manifest(name: str, number: int, _found: Answer) -> Object:
        return whole(name, number)

    merge = _data_patch if is_small else _replicas_patch
    strategic = _data_patch if is_small else _image_patch
    again = _changed_data if is_small else _changed_image
    return [
        Write(what=f"{kind}: update", method="PUT", path=path, body=manifest),
        Write(what=f"{kind}: update as read", method="PUT", path=path, body=again),
        Write(what=f"{kind}: merge patch", method="PATCH", path=path, form=MERGE, body=merge),
        Write(
            what=f"{kind}: strategic patch",
            method="PATCH",
            path=path,
            form=STRATEGIC,
            body=strategic,
        ),
        Write(what=f"{kind}: create", method="POST", path=path, body=manifest),
    ]


def all_writes() -> list[Write]:
    """All writes; those that create objects come last of their kind."""
    status = Write(
        what="Deployment: status",
        method="PUT",
        path=_DEPLOYMENTS,
        suffix="/status",
        body=lambda name, number, _found: _status(name, number),
    )
    return [
        *_writes("ConfigMap", _CONFIG_MAPS, config_map),
        status,
        *_writes("Deployment", _DEPLOYMENTS, deployment),
    ]
