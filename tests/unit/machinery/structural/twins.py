"""The rules of structural schemas once more, as plainly as they can be said.

Nothing here is fast, and nothing is shared with the code that is tested: raw JSON schemas go in.
Also strategies for schemas, and for objects that nearly fit them.
"""

import copy
import re
from typing import Any

from hypothesis import strategies as st

Raw = dict[str, Any]

NAMES = ("a", "b", "c-d", "e")
META = ("apiVersion", "kind", "metadata")


def member_schema(schema: Raw | None, name: str) -> Raw | None:
    """The schema of a member of an object."""
    if schema is None:
        return None
    if name in schema.get("properties", {}):
        found: Raw = schema["properties"][name]
        return found
    additional = schema.get("additionalProperties")
    return additional if isinstance(additional, dict) else None


def twin_nulls(value: Any, schema: Raw | None) -> Any:
    """Without nulls that have no place."""
    if isinstance(value, dict):
        kept = {}
        for name, each in value.items():
            known = member_schema(schema, name)
            is_unwanted = known is not None and not known.get("nullable")
            if each is None and is_unwanted and known is not None and known.get("default") is None:
                continue
            kept[name] = twin_nulls(each, known)
        return kept
    if isinstance(value, list):
        items = (schema or {}).get("items")
        return [twin_nulls(each, items) for each in value]
    return value


def twin_default(value: Any, schema: Raw | None) -> Any:
    """With defaults."""
    if schema is None:
        return value
    if isinstance(value, dict):
        filled = dict(value)
        for name, known in schema.get("properties", {}).items():
            default = known.get("default")
            is_null = name in filled and filled[name] is None and not known.get("nullable")
            if default is not None and (name not in filled or is_null):
                filled[name] = copy.deepcopy(default)
        for name, member in list(filled.items()):
            known = member_schema(schema, name)
            is_value = known is not None and name not in schema.get("properties", {})
            if is_value and member is None and not (known or {}).get("nullable"):
                filled[name] = twin_default(copy.deepcopy((known or {}).get("default")), known)
            else:
                filled[name] = twin_default(member, known)
        return filled
    if isinstance(value, list) and "items" in schema:
        items = schema["items"]
        is_strict = not items.get("nullable")
        replaced = [
            copy.deepcopy(items.get("default")) if each is None and is_strict else each
            for each in value
        ]
        return [twin_default(each, items) for each in replaced]
    return value


def twin_prune(
    value: Any, schema: Raw | None, path: str = "", *, keeps_meta: bool = True, keeps: bool = False
) -> tuple[Any, list[str]]:
    """Without unknown fields, and their paths. `keeps` is true below what preserves."""
    unknown: list[str] = []
    keeps = keeps or bool(schema and schema.get("x-kubernetes-preserve-unknown-fields"))
    if isinstance(value, dict):
        kept = {}
        for name, each in value.items():
            below = f"{path}.{name}" if path else name
            if keeps_meta and name in META:
                kept[name] = each
            elif schema and name in schema.get("properties", {}):
                known = schema["properties"][name]
                is_object = bool(known.get("x-kubernetes-embedded-resource"))
                kept[name], more = twin_prune(each, known, below, keeps_meta=is_object)
                unknown += more
            elif schema and "additionalProperties" in schema:
                known = member_schema(schema, name)
                kept[name], more = twin_prune(each, known, below, keeps_meta=False)
                unknown += more
            elif keeps:
                kept[name] = each
            elif path or name not in META:
                unknown.append(below)
        return kept, unknown
    if isinstance(value, list):
        items = (schema or {}).get("items")
        pruned = []
        for index, each in enumerate(value):
            below = f"{path}[{index}]"
            if keeps and items is None:
                pruned.append(each)
                continue
            one, more = twin_prune(each, items, below, keeps_meta=False, keeps=keeps)
            pruned.append(one)
            unknown += more
        return pruned, unknown
    return value, unknown


def twin_valid(value: Any, schema: Raw) -> bool:
    """Whether a value is what a schema says."""
    if value is None:
        may_be = schema.get("nullable") or not twin_types(schema)
        return bool(may_be) and not schema.get("enum")
    return all(check(value, schema) for check in _CHECKS)


def twin_types(schema: Raw) -> list[str]:
    """The types that a value may have."""
    if schema.get("x-kubernetes-int-or-string"):
        return ["integer", "string"]
    return [schema["type"]] if schema.get("type") else []


def _has_type(value: Any, schema: Raw) -> bool:
    names = {bool: ["boolean"], str: ["string"], list: ["array"], dict: ["object"]}
    found = names.get(type(value))
    if found is None:
        is_whole = float(value).is_integer()
        found = ["number", "integer"] if is_whole else ["number"]
    types = twin_types(schema)
    return not types or any(each in types for each in found)


def _text_fits(value: Any, schema: Raw) -> bool:
    if not isinstance(value, str):
        return True
    low, high = schema.get("minLength", 0), schema.get("maxLength", len(value))
    return low <= len(value) <= high and bool(re.search(schema.get("pattern", ""), value))


def _number_fits(value: Any, schema: Raw) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return True
    if "minimum" in schema:
        low = schema["minimum"]
        if value < low or (schema.get("exclusiveMinimum") and value == low):
            return False
    if "maximum" in schema:
        high = schema["maximum"]
        if value > high or (schema.get("exclusiveMaximum") and value == high):
            return False
    return value % schema.get("multipleOf", 1) == 0 if "multipleOf" in schema else True


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _is_listed(value: Any, schema: Raw) -> bool:
    return "enum" not in schema or any(_same(value, each) for each in schema["enum"])


def _list_fits(value: Any, schema: Raw) -> bool:
    if not isinstance(value, list):
        return True
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return False
    return "items" not in schema or all(twin_valid(each, schema["items"]) for each in value)


def _object_fits(value: Any, schema: Raw) -> bool:
    if not isinstance(value, dict):
        return True
    low, high = schema.get("minProperties", 0), schema.get("maxProperties", len(value))
    if not low <= len(value) <= high or any(
        name not in value for name in schema.get("required", [])
    ):
        return False
    for name, each in value.items():
        known = member_schema(schema, name)
        if known is not None and not twin_valid(each, known):
            return False
        if schema.get("additionalProperties") is False and name not in schema.get("properties", {}):
            return False
    return True


def _junctors_fit(value: Any, schema: Raw) -> bool:
    if not all(twin_valid(value, each) for each in schema.get("allOf", [])):
        return False
    if "anyOf" in schema and not any(twin_valid(value, each) for each in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(twin_valid(value, each) for each in schema["oneOf"]) != 1:
        return False
    return "not" not in schema or not twin_valid(value, schema["not"])


_CHECKS = (
    _has_type,
    _text_fits,
    _number_fits,
    _is_listed,
    _list_fits,
    _object_fits,
    _junctors_fit,
)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.5, 2.0, -1.5]),
    st.sampled_from(["", "a", "ab", "abc1", "ÄÖ"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.sampled_from((*NAMES, "z")), below, max_size=3),
    ),
    max_leaves=8,
)


@st.composite
def restrictions(draw: st.DrawFn, skeleton: Raw, depth: int = 1) -> Raw:
    """What may stand below a junctor: no types, and only names that the skeleton has."""
    made: Raw = {}
    for name, values in (
        ("minimum", st.integers(-2, 3)),
        ("maxLength", st.integers(0, 3)),
        ("pattern", st.sampled_from(["^a", "b", "^[a-c]+$"])),
        ("maxItems", st.integers(0, 2)),
        ("enum", st.lists(SCALARS.filter(lambda each: each is not None), min_size=1, max_size=3)),
        ("maxProperties", st.integers(0, 3)),
        ("required", st.lists(st.sampled_from(NAMES), max_size=2, unique=True)),
    ):
        if draw(st.integers(0, 5)) == 0:
            made[name] = draw(values)
    properties = skeleton.get("properties", {})
    if properties and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(properties)))
        made["properties"] = {name: draw(restrictions(properties[name], depth - 1))}
    if depth > 0:
        made.update(draw(junctors(skeleton, depth - 1)))
    return made


@st.composite
def junctors(draw: st.DrawFn, skeleton: Raw, depth: int = 1) -> Raw:
    """At most one of allOf, anyOf, oneOf and not."""
    kind = draw(st.sampled_from(["", "", "", "allOf", "anyOf", "oneOf", "not"]))
    if kind == "not":
        return {"not": draw(restrictions(skeleton, depth))}
    if kind:
        return {kind: draw(st.lists(restrictions(skeleton, depth), min_size=1, max_size=3))}
    return {}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, *, is_root: bool = True) -> Raw:
    """Structural schemas; defaults fit no schema in particular, which pruning must bear."""
    kinds = ["string", "integer", "number", "boolean", "int-or-string"]
    if depth:
        kinds += ["object", "object", "map", "array", "open", "loose"]
    kind = "object" if is_root else draw(st.sampled_from(kinds))
    made: Raw = {"type": kind}
    match kind:
        case "int-or-string":
            made = {"x-kubernetes-int-or-string": True}
        case "string":
            made.update(draw(_limits("minLength", "maxLength")))
            if draw(st.integers(0, 4)) == 0:
                made["pattern"] = draw(st.sampled_from(["^a", "b$", "^[a-z]*$", "^a?(b|c)+"]))
        case "integer" | "number":
            made.update(draw(_limits("minimum", "maximum")))
            if draw(st.integers(0, 5)) == 0:
                made["multipleOf"] = draw(st.sampled_from([1, 2, 3]))
        case "map":
            made = {"type": "object", **draw(_limits("minProperties", "maxProperties"))}
            made["additionalProperties"] = draw(schemas(depth - 1, is_root=False))
        case "loose":
            made = {"type": "object", "additionalProperties": True}
        case "array":
            made.update(draw(_limits("minItems", "maxItems")))
            made["items"] = draw(schemas(depth - 1, is_root=False))
        case "open":
            made = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if kind in ("object", "open"):
        made.update(draw(_fields(depth)))
    if not is_root:
        made.update(draw(_extras(kind)))
    made.update(draw(junctors(made)))
    return made


@st.composite
def _fields(draw: st.DrawFn, depth: int) -> Raw:
    made: Raw = {}
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    if names:
        made["properties"] = {name: draw(schemas(depth - 1, is_root=False)) for name in names}
    made["required"] = [name for name in names if draw(st.integers(0, 3)) == 0]
    return made


@st.composite
def _extras(draw: st.DrawFn, kind: str) -> Raw:
    made: Raw = {}
    if draw(st.integers(0, 4)) == 0:
        made["nullable"] = True
    if draw(st.integers(0, 4)) == 0:
        made["default"] = draw(VALUES.filter(lambda each: each is not None))
    if kind in ("string", "integer") and draw(st.integers(0, 5)) == 0:
        made["enum"] = draw(st.lists(SCALARS.filter(bool), min_size=1, max_size=3))
    return made


def _limits(low: str, high: str) -> st.SearchStrategy[Raw]:
    return st.fixed_dictionaries({}, optional={low: st.integers(0, 2), high: st.integers(1, 6)})


@st.composite
def values_for(draw: st.DrawFn, schema: Raw) -> Any:
    """Values that fit a schema more often than not."""
    if draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    if "enum" in schema and draw(st.booleans()):
        return draw(st.sampled_from(schema["enum"]))
    types = twin_types(schema)
    kind = draw(st.sampled_from(types)) if types else "string"
    match kind:
        case "string":
            return draw(st.sampled_from(["a", "ab", "abc", "b", "", "x1"]))
        case "integer":
            return draw(st.integers(-1, 8))
        case "number":
            return draw(st.sampled_from([0.5, 1, 2.0, 3, -1.5]))
        case "boolean":
            return draw(st.booleans())
        case "array":
            return draw(st.lists(values_for(schema.get("items", {})), max_size=3))
    made = {}
    for name, each in schema.get("properties", {}).items():
        if name in schema.get("required", []) or draw(st.integers(0, 2)):
            made[name] = draw(values_for(each))
    additional = schema.get("additionalProperties")
    if additional is not None:
        below = values_for(additional) if isinstance(additional, dict) else VALUES
        made.update(draw(st.dictionaries(st.sampled_from(NAMES), below, max_size=2)))
    if draw(st.integers(0, 5)) == 0:
        made["z"] = draw(VALUES)
    return made


@st.composite
def cases(draw: st.DrawFn) -> tuple[Raw, Raw]:
    """A schema, and an object that nearly fits it."""
    schema = draw(schemas())
    value = draw(values_for(schema))
    return schema, value if isinstance(value, dict) else {"a": value}
