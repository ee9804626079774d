"""Objects of which nothing was said yet: what Go has of a kind before anybody writes a field.

A struct inside another is there from the start, and so are lists and texts that are always written.
Who creates an object owns what differs from that, so those are not owned for being there alone.

Not here: the defaults of fields, which somebody does own.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.types import Field, Scalar, Struct, StructRef

_COMPILED: Final = "blank"
_ZEROS: Final[dict[Any, Any]] = {
    Scalar.STRING: "",
    Scalar.BOOL: False,
    Scalar.INT32: 0,
    Scalar.INT64: 0,
    Scalar.FLOAT64: 0,
}


def blank(struct: Struct) -> dict[str, Any]:
    """An object of a struct's type with nothing in it. It is shared: never change it."""
    found: dict[str, Any] | None = struct.compiled.get(_COMPILED)
    if found is None:
        found = struct.compiled[_COMPILED] = {
            each.json: _blank(struct, each) for each in struct.fields if _is_there(each)
        }
    return found


def _is_there(field: Field) -> bool:
    # Go never leaves out a struct, whatever its field says.
    return not field.omitempty or (isinstance(field.type, StructRef) and not field.pointer)


def _blank(struct: Struct, field: Field) -> Any:
    if field.pointer:
        return None
    if isinstance(field.type, StructRef):
        return blank(struct.table.struct(field.type.name))
    return _ZEROS.get(field.type)
