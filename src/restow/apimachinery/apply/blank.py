"""Empty objects of a kind: the zero values that Go has before any field is set.

Nested structs always exist, and so do lists and strings that Go always serializes. The creator of
an object owns the fields that differ from it, so fields with zero values have no owner.

Not here: defaults of fields, which do have an owner.
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
    """Return the empty object of a struct's type. It is shared: never modify it."""
    found: dict[str, Any] | None = struct.compiled.get(_COMPILED)
    if found is None:
        found = struct.compiled[_COMPILED] = {
            each.json: _blank(struct, each) for each in struct.fields if _is_serialized(each)
        }
    return found


def _is_serialized(field: Field) -> bool:
    # Go never omits a struct, even with omitempty.
    return not field.omitempty or (isinstance(field.type, StructRef) and not field.pointer)


def _blank(struct: Struct, field: Field) -> Any:
    if field.pointer:
        return None
    if isinstance(field.type, StructRef):
        return blank(struct.table.struct(field.type.name))
    return _ZEROS.get(field.type)
