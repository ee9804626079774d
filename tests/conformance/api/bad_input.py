"""Builders for requests that a careless or hostile client may send."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tests.conformance.api.servers import CONFIG_MAPS
from tests.support.api_client import JSON, MERGE_PATCH

MIB: Final = 1024 * 1024
CONFIG_MAP: Final = f"{CONFIG_MAPS}/a"
ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and its expected status code."""

    name: str
    code: int | tuple[int, ...]
    method: str = "POST"
    target: str = CONFIG_MAPS
    body: Any = None
    content_type: str | None = JSON
    headers: dict[str, str] = field(default_factory=dict)


def create(name: str, code: int, body: Any, content_type: str | None = JSON) -> Case:
    return Case(f"create {name}", code, body=body, content_type=content_type)


def named(name: str, code: int, metadata: dict[str, Any]) -> Case:
    return Case(f"metadata {name}", code, body={"metadata": {"name": "x", **metadata}})


def patched(name: str, code: int, body: Any, content_type: str = MERGE_PATCH) -> Case:
    return Case(
        f"patch {name}", code, method="PATCH", target=CONFIG_MAP, body=body,
        content_type=content_type,
    )  # fmt: skip


def read(name: str, code: int | tuple[int, ...], target: str, **headers: str) -> Case:
    return Case(f"read {name}", code, method="GET", target=target, headers=headers)


def nested(depth: int, opening: bytes, closing: bytes, inside: bytes = b"1") -> bytes:
    return opening * depth + inside + closing * depth


def in_data(value: bytes) -> bytes:
    return b'{"metadata":{"name":"x"},"data":' + value + b"}"
