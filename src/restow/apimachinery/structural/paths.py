"""Field paths in objects and schemas, as strings: `spec.items[0].name`, `spec.labels[a/b]`.

The empty string is the object itself. Not here: parsing field paths (`cel.field_paths`).
"""

from __future__ import annotations


def child(path: str, name: str) -> str:
    """Return the path of an object's field."""
    return f"{path}.{name}" if path else name


def key(path: str, name: str) -> str:
    """Return the path of a map value."""
    return f"{path}[{name}]"


def index(path: str, number: int) -> str:
    """Return the path of a list item."""
    return f"{path}[{number}]"
