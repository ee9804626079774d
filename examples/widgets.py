"""A kind of one's own, in two versions, served by restow.

Run it with `python examples/widgets.py`, then:

    kubectl --kubeconfig .widgets/kubeconfig get widgets
    kubectl --kubeconfig .widgets/kubeconfig get widgets.v1.example.com -o yaml
"""

import asyncio
from pathlib import Path
from typing import Any

from restow.apiserver import ServeOptions, declare_kind, serve

# Version 2 has a size; version 1 had width and height, always equal.
SCHEMA_V2 = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {"size": {"type": "integer", "minimum": 1}},
        }
    },
}
SCHEMA_V1 = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["width", "height"],
            "properties": {"width": {"type": "integer"}, "height": {"type": "integer"}},
        }
    },
}


def up(widget: dict[str, Any]) -> dict[str, Any]:
    """A widget of version 1, as version 2 says it."""
    spec = widget.get("spec", {})
    return {**widget, "spec": {"size": spec.get("width")}}


def down(widget: dict[str, Any]) -> dict[str, Any]:
    """A widget of version 2, as version 1 says it."""
    size = widget.get("spec", {}).get("size")
    return {**widget, "spec": {"width": size, "height": size}}


WIDGETS = declare_kind(
    group="example.com",
    kind="Widget",
    plural="widgets",
    versions={"v2": SCHEMA_V2, "v1": SCHEMA_V1},
    storage="v1",
    to_hub={"v1": up},
    from_hub={"v1": down},
)


if __name__ == "__main__":
    asyncio.run(serve(ServeOptions(data_dir=Path(".widgets")), kinds=[WIDGETS]))
