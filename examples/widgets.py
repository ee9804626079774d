"""A custom kind in two versions, served by restow.

Run it with `.venv/bin/python examples/widgets.py`, then:

    kubectl --kubeconfig .widgets/kubeconfig get widgets
    kubectl --kubeconfig .widgets/kubeconfig get widgets.v1.example.com -o yaml
"""

import asyncio
from pathlib import Path
from typing import Any

from restow.apiserver import ServeOptions, declare_kind, serve

# The field `width` of version 1 is `size` in version 2. A conversion must lose nothing, so
# version 1 accepts no other field.
SCHEMA_V2 = {
    "type": "object",
    "required": ["spec"],
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
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["width"],
            "properties": {"width": {"type": "integer", "minimum": 1}},
            "additionalProperties": False,
        }
    },
}


def up(widget: dict[str, Any]) -> dict[str, Any]:
    """Convert a widget from version 1 to version 2."""
    return {**widget, "spec": {"size": widget["spec"]["width"]}}


def down(widget: dict[str, Any]) -> dict[str, Any]:
    """Convert a widget from version 2 to version 1."""
    return {**widget, "spec": {"width": widget["spec"]["size"]}}


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
    asyncio.run(serve(ServeOptions(data_dir=Path(".widgets"), port=6444), kinds=[WIDGETS]))
