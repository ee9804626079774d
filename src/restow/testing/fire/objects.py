"""The kind that is written under fire, and what of an object is compared.

An object says in `spec.token` which write made it what it is, and in `spec.counts` what each writer
wrote into it last: an update that overwrote another one unseen leaves a count behind. Not here: who
writes what (`writers`), and what must hold (`replay_check`).
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import orjson

from restow.storage.interface import Key

NAMESPACES: Final = tuple(f"fire-{number}" for number in range(8))
NAMES: Final = tuple(f"w-{number}" for number in range(40))
END: Final = "end"
"""The name of what is written last, in every namespace, when all writers have stopped."""
KIND: Final = "Widget"
GROUP: Final = "example.com"
VERSIONS: Final = ("v1", "v2")
RESOURCE_NAME: Final = f"{GROUP}.widgets"
ROOT: Final = f"/registry/{GROUP}/widgets/"
Spec = dict[str, Any]


def path_of(version: str, namespace: str = "", name: str = "") -> str:
    """Where an object, or a list, is asked for."""
    inside = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{GROUP}/{version}/{inside}widgets" + (f"/{name}" if name else "")


def key_of(namespace: str, name: str) -> Key:
    """Where an object is stored."""
    return Key(f"{ROOT}{namespace}/{name}")


def body_of(version: str, name: str, spec: Spec, revision: int = 0) -> dict[str, Any]:
    """What is sent; with a revision, it is the one that must be replaced."""
    metadata = {"name": name} | ({"resourceVersion": str(revision)} if revision else {})
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": KIND,
        "metadata": metadata,
        "spec": spec,
    }


def merged(spec: Spec, patch: Spec) -> Spec:
    """What a merge patch of a spec makes of it."""
    return spec | patch | {"counts": spec.get("counts", {}) | patch.get("counts", {})}


def content_of(uid: str, spec: Spec) -> str:
    """What is compared of an object, whatever version it is shown or stored in."""
    whole = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
    return f"{uid}/{spec.get('token')}/{zlib.crc32(whole):x}"


def shown_content(shown: dict[str, Any]) -> str:
    """The same of an object as the API shows it."""
    return content_of(shown["metadata"]["uid"], shown.get("spec", {}))


def stored_content(value: bytes) -> str:
    """The same of a stored value."""
    return shown_content(orjson.loads(value))
