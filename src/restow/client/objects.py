"""Objects as received from a server, and accessors of their metadata.

Objects are plain dictionaries, because a client must preserve fields that it does not know.

Not here: typed kinds (`restow.apis`), and requests.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Object: TypeAlias = dict[str, Any]


class ObjectKey(NamedTuple):
    """Namespace and name of an object; the namespace is empty for cluster-scoped ones."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def metadata_of(value: Object) -> dict[str, Any]:
    """The metadata; empty if missing or not a mapping."""
    found = value.get("metadata")
    return found if isinstance(found, dict) else {}


def key_of(value: Object) -> ObjectKey:
    """The key of an object."""
    metadata = metadata_of(value)
    return ObjectKey(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))


def version_of(value: Object) -> str:
    """The resource version of an object or a list; empty if there is none."""
    return str(metadata_of(value).get("resourceVersion") or "")


def uid_of(value: Object) -> str:
    """The uid of an object; empty if there is none."""
    return str(metadata_of(value).get("uid") or "")
