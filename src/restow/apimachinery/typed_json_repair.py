"""The thorough pass of `typed_json`: a canonical copy, the unknown fields, or an error.

Each struct is compiled once to a set of closures, one per field, which hold the names for error
messages. They return the canonical value, or ABSENT if the field is omitted. A path is a linked
list, formatted only if it is reported.

Not here: the fast test, which most objects pass.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any, Final, NamedTuple, NoReturn

from restow.apimachinery.quantity import WRONG_FORMAT, canonical, is_quantity
from restow.apimachinery.status import BadRequest, bad_request
from restow.apimachinery.type_values import (
    ABSENT,
    FLOAT_EXACT_MAX,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    decode_base64,
    encode_base64,
    fresh,
    parse_duration,
    parse_time,
    write_duration,
    write_micro_time,
    write_time,
    zero_of_field,
    zero_of_struct,
    zero_of_type,
)
from restow.apimachinery.types import (
    SCHEMA_NAME,
    Field,
    ListOf,
    MapOf,
    Scalar,
    Special,
    Struct,
    StructRef,
    Type,
)

# Nested structs; only schemas can nest without limit. Far above realistic objects, and far below
# Python's recursion limit.
DEPTH_MAX: Final = 100
# More unknown fields are pruned, but not listed, to limit the number of warnings.
UNKNOWN_FIELDS_MAX: Final = 100
# Structs in one object. An empty one takes two bytes in a body and hundreds in memory.
STRUCTS_MAX: Final = 200_000

_COMPILED: Final = "typed_json.repair"


class FieldPath(NamedTuple):
    """A position in an object: a step (a key or an index) below its parent."""

    parent: "FieldPath | None"
    step: str | int
    depth: int


class RepairPass:
    """The state of one pass."""

    __slots__ = ("structs_left", "unknown")

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.structs_left = STRUCTS_MAX


# Converts a non-null value, given the path of the object that contains it, to its canonical form.
Repair = Callable[[Any, "FieldPath | None", RepairPass], Any]


class FieldLocation(NamedTuple):
    """The location of a field in error messages: its struct, its name, and its Go type."""

    struct: str
    field: str
    go_type: str


def repair(struct: Struct, value: object) -> tuple[dict[str, Any], list[str]]:
    """Return a canonical copy, and the unknown fields that were removed.

    Raises BadRequest if a type is wrong.
    """
    run = RepairPass()
    try:
        if not isinstance(value, dict):
            raise bad_request(
                f"json: cannot unmarshal {_json_name(value)} into Go value of type "
                f"{_go_name(struct.name)}"
            )
        repaired: dict[str, Any] = _struct_repair(struct)(value, None, run)
    except BadRequest as error:
        kind = struct.short_name
        raise bad_request(
            f'{kind} in version "{struct.version}" cannot be handled as a {kind}: {error}'
        ) from error
    return repaired, run.unknown


def _struct_repair(struct: Struct) -> Repair:
    """Return the repair of a struct at the given path, rather than in it."""
    compiled: Repair | None = struct.compiled.get(_COMPILED)
    if compiled is not None:
        return compiled
    repairs: dict[str, Repair] = {}
    zeros = zero_of_struct(struct)
    strings = frozenset(field.json for field in struct if field.type is Scalar.STRING)

    def repair_struct(value: Any, path: FieldPath | None, run: RepairPass) -> Any:
        run.structs_left -= 1
        if run.structs_left < 0:
            raise bad_request(f"the object has more than {STRUCTS_MAX} nested objects")
        if path is not None and path.depth > DEPTH_MAX:
            raise bad_request(f"the object is nested deeper than {DEPTH_MAX} levels")
        repaired = {}
        for key, item in value.items():
            if type(item) is str and item and key in strings:
                repaired[key] = item
                continue
            repair_field = repairs.get(key)
            if repair_field is None:
                if len(run.unknown) < UNKNOWN_FIELDS_MAX:
                    run.unknown.append(_with_indexes(path, key))
            elif item is not None:
                canonical = repair_field(item, path, run)
                if canonical is not ABSENT:
                    repaired[key] = canonical
        for key, zero in zeros.items():
            if key not in repaired:
                repaired[key] = fresh(zero)
        return repaired

    # Set before the fields are compiled: schemas contain schemas.
    struct.compiled[_COMPILED] = repair_struct
    for field in struct:
        repairs[field.json] = _field_repair(struct, field)
    return repair_struct


def _field_repair(struct: Struct, field: Field) -> Repair:
    location = FieldLocation(struct.short_name, field.json, _go_type(field.type))
    repair_value = _type_repair(struct, field.type, location)
    is_kept = field.pointer or zero_of_field(struct, field) is not ABSENT
    if is_kept or (isinstance(field.type, Special) and field.type != Special.INT_OR_STRING):
        return repair_value

    def repair_or_drop(value: Any, path: FieldPath | None, run: RepairPass) -> Any:
        # All falsy values in Python are zero values in Go: "", 0, False, [] and {}.
        return repair_value(value, path, run) or ABSENT

    def repair_or_drop_number(value: Any, path: FieldPath | None, run: RepairPass) -> Any:
        repaired = repair_value(value, path, run)
        return ABSENT if repaired == 0 else repaired

    # The zero value of the union is the number 0, not the empty string.
    return repair_or_drop_number if field.type == Special.INT_OR_STRING else repair_or_drop


def _type_repair(struct: Struct, type_: Type, location: FieldLocation) -> Repair:
    match type_:
        case Scalar():
            return _leaf_repair(_SCALARS[type_], location)
        case Special.RAW_EXTENSION | Special.FIELDS_V1 | Special.JSON:
            return _keep
        case Special.SCHEMA_OR_ARRAY | Special.SCHEMA_OR_BOOL | Special.SCHEMA_OR_STRINGS:
            return _union_repair(struct, type_, location)
        case Special():
            return _leaf_repair(_SPECIALS[type_], location)
        case StructRef(name):
            return _ref_repair(struct.table.struct(name), location)
        case ListOf(item):
            return _list_repair(struct, item, location)
        case MapOf(item):
            return _map_repair(struct, item, location)


def _keep(value: Any, path: FieldPath | None, run: RepairPass) -> Any:  # noqa: ARG001 - a Repair
    return value


def _leaf_repair(leaf: Callable[[Any], Any], location: FieldLocation) -> Repair:
    """Wrap a leaf, which returns the canonical value, or raises TypeError or ValueError."""

    def repair_leaf(value: Any, path: FieldPath | None, run: RepairPass) -> Any:  # noqa: ARG001
        try:
            return leaf(value)
        except TypeError:
            _refuse_type(value, path, location)
        except ValueError as error:
            raise bad_request(f"{_dotted(path, location.field)}: {error}") from error

    return repair_leaf


def _ref_repair(struct: Struct, location: FieldLocation) -> Repair:
    repair_struct = _struct_repair(struct)

    def repair_ref(value: Any, path: FieldPath | None, run: RepairPass) -> Any:
        if type(value) is not dict:
            _refuse_type(value, path, location)
        return repair_struct(value, FieldPath(path, location.field, _depth(path) + 1), run)

    return repair_ref


def _list_repair(struct: Struct, item_type: Type, location: FieldLocation) -> Repair:
    item_struct = struct.table.struct(item_type.name) if isinstance(item_type, StructRef) else None
    repair_struct = _struct_repair(item_struct) if item_struct else None
    location = location._replace(go_type=_go_type(ListOf(item_type)))
    item_location = location._replace(go_type=_go_type(item_type))
    repair_item = _type_repair(struct, item_type, item_location)
    zero = zero_of_type(struct, item_type)

    def repair_list(value: Any, path: FieldPath | None, run: RepairPass) -> Any:
        if type(value) is not list:
            _refuse_type(value, path, location)
        if repair_struct is None:
            return [
                zero if item is None else _null_if_absent(repair_item(item, path, run))
                for item in value
            ]
        here = FieldPath(path, location.field, _depth(path))
        repaired = []
        for index, item in enumerate(value):
            if item is None:
                item = {}  # noqa: PLW2901 - null is the empty struct, with its zero values
            elif type(item) is not dict:
                _refuse_type(item, path, item_location)
            repaired.append(repair_struct(item, FieldPath(here, index, here.depth + 1), run))
        return repaired

    return repair_list


def _map_repair(struct: Struct, item_type: Type, location: FieldLocation) -> Repair:
    item_struct = struct.table.struct(item_type.name) if isinstance(item_type, StructRef) else None
    repair_struct = _struct_repair(item_struct) if item_struct else None
    location = location._replace(go_type=_go_type(MapOf(item_type)))
    item_location = location._replace(go_type=_go_type(item_type))
    repair_item = _type_repair(struct, item_type, item_location)
    zero = zero_of_type(struct, item_type)
    is_strings = item_type is Scalar.STRING

    def repair_map(value: Any, path: FieldPath | None, run: RepairPass) -> Any:
        if type(value) is not dict:
            _refuse_type(value, path, location)
        if is_strings and set(map(type, value.values())) == {str}:
            return value
        if repair_struct is None:
            return {
                key: fresh(zero) if item is None else _null_if_absent(repair_item(item, path, run))
                for key, item in value.items()
            }
        here = FieldPath(path, location.field, _depth(path))
        repaired = {}
        for key, item in value.items():
            if item is None:
                item = {}  # noqa: PLW2901 - as in a list
            elif type(item) is not dict:
                _refuse_type(item, path, item_location)
            repaired[key] = repair_struct(item, FieldPath(here, key, here.depth + 1), run)
        return repaired

    return repair_map


def _null_if_absent(value: Any) -> Any:
    """Return null for an absent value, as Go does in lists and maps, where none can be omitted."""
    return None if value is ABSENT else value


def _union_repair(struct: Struct, type_: Special, location: FieldLocation) -> Repair:
    """Repair a schema, or the union's alternative: schemas, a boolean, or strings."""
    repair_schema = _ref_repair(struct.table.struct(SCHEMA_NAME), location)
    repair_schemas = _list_repair(struct, StructRef(SCHEMA_NAME), location)
    repair_strings = _list_repair(struct, Scalar.STRING, location)

    def repair_union(value: Any, path: FieldPath | None, run: RepairPass) -> Any:
        if type(value) is dict:
            return repair_schema(value, path, run)
        if type(value) is list and type_ == Special.SCHEMA_OR_ARRAY:
            return repair_schemas(value, path, run) or ABSENT
        if type(value) is list and type_ == Special.SCHEMA_OR_STRINGS:
            return repair_strings(value, path, run) or ABSENT
        if type(value) is bool and type_ == Special.SCHEMA_OR_BOOL:
            return value
        _refuse_type(value, path, location)

    return repair_union


def _string(value: Any) -> Any:
    if type(value) is not str:
        raise TypeError
    return value


def _bool(value: Any) -> Any:
    if type(value) is not bool:
        raise TypeError
    return value


def _int32(value: Any) -> Any:
    if type(value) is not int or not INT32_MIN <= value <= INT32_MAX:
        raise TypeError
    return value


def _int64(value: Any) -> Any:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise TypeError
    return value


def _float64(value: Any) -> Any:
    if type(value) is int:
        if -FLOAT_EXACT_MAX <= value <= FLOAT_EXACT_MAX:
            return value
        try:
            value = float(value)
        except OverflowError as error:
            raise ValueError("the number is too large") from error
    if type(value) is not float:
        raise TypeError
    # Non-finite numbers are not JSON, but YAML allows them.
    if not isfinite(value):
        raise ValueError("the number is not finite")
    # Go writes 2.0 as 2.
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


def _bytes(value: Any) -> Any:
    return encode_base64(decode_base64(_string(value)))


def _time(value: Any) -> Any:
    return write_time(parse_time(_string(value)))


def _micro_time(value: Any) -> Any:
    return write_micro_time(parse_time(_string(value)))


def _duration(value: Any) -> Any:
    return write_duration(parse_duration(_string(value)))


def _quantity(value: Any) -> Any:
    # Clients compare strings, so all equal quantities are stored in one form, numbers included.
    if type(value) is int:
        text = str(value) if abs(value) < 2**64 else ""
    elif type(value) is float:
        text = str(int(value)) if value.is_integer() and abs(value) < 2**64 else repr(value)
    else:
        text = _string(value).strip()
    if not is_quantity(text):
        raise ValueError(WRONG_FORMAT)
    return canonical(text)


def _int_or_string(value: Any) -> Any:
    return value if type(value) is str else _int32(value)


_SCALARS: Final[dict[Scalar, Callable[[Any], Any]]] = {
    Scalar.STRING: _string,
    Scalar.BOOL: _bool,
    Scalar.INT32: _int32,
    Scalar.INT64: _int64,
    Scalar.FLOAT64: _float64,
    Scalar.BYTES: _bytes,
}
_SPECIALS: Final[dict[Special, Callable[[Any], Any]]] = {
    Special.TIME: _time,
    Special.MICRO_TIME: _micro_time,
    Special.DURATION: _duration,
    Special.QUANTITY: _quantity,
    Special.INT_OR_STRING: _int_or_string,
}


_SHOWN_MAX: Final = 10**30
_NUMBERS: Final = frozenset(("int32", "int64", "float64"))


def _refuse_type(value: Any, path: FieldPath | None, location: FieldLocation) -> NoReturn:
    raise bad_request(
        f"json: cannot unmarshal {_json_name(value, location.go_type)} into Go struct field "
        f"{location.struct}.{_dotted(path, location.field)} of type {location.go_type}"
    )


def _json_name(value: object, go_type: str = "") -> str:
    """Return the name of a value's type in Go's decoder; numbers that do not fit are included."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        # Python refuses to format integers with thousands of digits.
        is_shown = go_type in _NUMBERS and abs(value) < _SHOWN_MAX
        return f"number {value}" if is_shown else "number"
    if isinstance(value, str):
        return "string"
    if value is None:
        return "null"
    return "array" if isinstance(value, list) else "object"


def _go_type(type_: Type) -> str:
    match type_:
        case Scalar.BYTES:
            return "[]uint8"
        case Scalar():
            return str(type_.value)
        case Special.TIME | Special.MICRO_TIME | Special.DURATION:
            return "string"
        case Special():
            return _go_name(type_.value)
        case StructRef(name):
            return _go_name(name)
        case ListOf(item):
            return f"[]{_go_type(item)}"
        case MapOf(item):
            return f"map[string]{_go_type(item)}"


def _go_name(name: str) -> str:
    """Return the last package and the type: `v1.PodSpec`."""
    return ".".join(name.split(".")[-2:])


def _depth(path: FieldPath | None) -> int:
    return 0 if path is None else path.depth


def _dotted(path: FieldPath | None, field: str) -> str:
    """Format a path as Go's decoder does: names of fields only."""
    steps = [field]
    while path is not None:
        if isinstance(path.step, str):
            steps.append(path.step)
        path = path.parent
    return ".".join(reversed(steps))


def _with_indexes(path: FieldPath | None, field: str) -> str:
    """Format a path for warnings, with indexes: `spec.containers[0].foo`."""
    text = field
    while path is not None:
        is_index = text.startswith("[")
        step = path.step
        joint = "" if is_index else "."
        text = f"[{step}]{joint}{text}" if isinstance(step, int) else f"{step}{joint}{text}"
        path = path.parent
    return text
