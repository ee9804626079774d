"""The kinds that a load writes, and the compared parts of an object.

The `token` of an object identifies its last write, and its `counts` have the last write of each
writer: an update that overwrote another one leaves an old count. Kinds that are defined by a
release or a CRD have both in `spec`; ConfigMaps and Secrets have them in `data`.

Not here: the operations (`writers`), and the invariants (`replay_check`, `ledger`).
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any, Final

import orjson

from restow.storage.interface import Key

NAMESPACES: Final = tuple(f"fire-{number}" for number in range(8))
NAMES: Final = tuple(f"w-{number}" for number in range(40))
END: Final = "end"
"""The name of the last object in every namespace, written when all writers have stopped."""
Spec = dict[str, Any]
_OF_SERVERS: Final = frozenset({"kube-root-ca.crt"})
"""Names of objects that servers create in every namespace."""
_TOKEN: Final = "token"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind that a load writes."""

    group: str
    plural: str
    kind: str
    versions: tuple[str, ...]
    """Versions in which it is requested."""
    content: str = "spec"
    """The field that holds the token and the counts: `spec`, `data`, or `base64` for the data of a
    Secret."""
    is_custom: bool = False
    """Whether a CRD defines it."""

    @property
    def name(self) -> str:
        """The name of its StorageState: `widgets.example.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def resource_name(self) -> str:
        """The name of its StorageVersion: `example.com.widgets`."""
        return f"{self.group or 'core'}.{self.plural}"

    @property
    def root(self) -> str:
        """The prefix of all its keys."""
        return (
            f"/registry/{self.group}/{self.plural}/" if self.group else f"/registry/{self.plural}/"
        )

    def path_of(self, version: str, namespace: str = "", name: str = "") -> str:
        """The path of an object, or of a list."""
        api = f"/apis/{self.group}/{version}" if self.group else f"/api/{version}"
        inside = f"namespaces/{namespace}/" if namespace else ""
        return f"{api}/{inside}{self.plural}" + (f"/{name}" if name else "")

    def key_of(self, namespace: str, name: str) -> Key:
        """The key that an object is stored at."""
        return Key(f"{self.root}{namespace}/{name}")

    def fields_of(self, spec: Spec) -> dict[str, Any]:
        """The field of an object, or of a merge patch, that holds a spec."""
        if self.content == "spec":
            return {"spec": spec}
        texts = {name: str(count) for name, count in spec.get("counts", {}).items()}
        texts |= {_TOKEN: spec[_TOKEN]} if _TOKEN in spec else {}
        if self.content == "base64":
            texts = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        return {"data": texts}

    def spec_of(self, shown: dict[str, Any]) -> Spec:
        """The spec in an object, as returned by the API or stored."""
        if self.content == "spec":
            found: Spec = shown.get("spec", {})
            return found
        texts: dict[str, str] = dict(shown.get("data", {}))
        if self.content == "base64":
            texts = {name: base64.b64decode(text).decode() for name, text in texts.items()}
        token = texts.pop(_TOKEN, None)
        counts = {name: int(text) for name, text in texts.items()}
        return {_TOKEN: token, "counts": counts} if token is not None else {}

    def body_of(self, version: str, name: str, spec: Spec, revision: int = 0) -> dict[str, Any]:
        """The request body; with a revision, it is the precondition."""
        metadata = {"name": name} | ({"resourceVersion": str(revision)} if revision else {})
        return {
            "apiVersion": f"{self.group}/{version}" if self.group else version,
            "kind": self.kind,
            "metadata": metadata,
            **self.fields_of(spec),
        }

    def content_of(self, shown: dict[str, Any]) -> str:
        """The compared parts of an object, as returned by the API or stored."""
        return content_of(shown["metadata"]["uid"], self.spec_of(shown))


WIDGETS: Final = Kind("example.com", "widgets", "Widget", ("v1", "v2"))
"""Stored in v1 by the release x+1, in v2 by x+2."""
CONFIG_MAPS: Final = Kind("", "configmaps", "ConfigMap", ("v1",), "data")
SECRETS: Final = Kind("", "secrets", "Secret", ("v1",), "base64")
GADGETS: Final = Kind("ledger.example.org", "gadgets", "Gadget", ("v1", "v2"), is_custom=True)
GIZMOS: Final = Kind("ledger.example.org", "gizmos", "Gizmo", ("v1", "v2"), is_custom=True)
KINDS: Final = {
    each.resource_name: each for each in (WIDGETS, CONFIG_MAPS, SECRETS, GADGETS, GIZMOS)
}
"""All kinds that a load can write, by the name of their StorageVersion."""
_BY_KIND: Final = {each.kind: each for each in KINDS.values()}


def written_kind(key: str) -> Kind | None:
    """The kind of an object that a load writes, by its key; None for all other keys."""
    if not key.startswith("/registry/"):
        return None
    for kind in KINDS.values():
        if key.startswith(kind.root):
            namespace, _, name = key.removeprefix(kind.root).partition("/")
            return kind if namespace in NAMESPACES and is_written(name) else None
    return None


def is_written(name: str) -> bool:
    """Whether an object of this name, in a namespace of the load, is one of the load."""
    return name not in _OF_SERVERS


def merged(spec: Spec, patch: Spec) -> Spec:
    """Apply a merge patch to a spec."""
    return spec | patch | {"counts": spec.get("counts", {}) | patch.get("counts", {})}


def content_of(uid: str, spec: Spec) -> str:
    """The compared parts of an object, whatever its version."""
    whole = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
    return f"{uid}/{spec.get(_TOKEN)}/{zlib.crc32(whole):x}"


def stored_spec(value: bytes) -> Spec:
    """The spec of a stored object of one of the kinds."""
    stored = orjson.loads(value)
    return _BY_KIND[stored["kind"]].spec_of(stored)


def stored_content(value: bytes) -> str:
    """The compared parts of a stored value."""
    stored = orjson.loads(value)
    return _BY_KIND[stored["kind"]].content_of(stored)


def crd_of(kind: Kind, *, storage: str) -> dict[str, Any]:
    """The CRD of a custom kind."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.name},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "kind": kind.kind},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == storage,
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in kind.versions
            ],
        },
    }
