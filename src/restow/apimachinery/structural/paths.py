"""How places in objects and schemas are written: `spec.items[0].name`, `spec.labels[a/b]`.

A place is plain text here: the empty text is the object itself. Not here: reading such texts
(`cel.field_paths`).
"""

from __future__ import annotations


def child(path: str, name: str) -> str:
    """A field of an object."""
    return f"{path}.{name}" if path else name


def key(path: str, name: str) -> str:
    """A value of a map."""
    return f"{path}[{name}]"


def index(path: str, number: int) -> str:
    """An item of a list."""
    return f"{path}[{number}]"
