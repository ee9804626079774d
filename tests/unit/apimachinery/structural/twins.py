"""Reference implementations of the structural schema rules, as simple as possible.

Nothing here is fast, and no code is shared with the tested modules: raw JSON schemas go in. Also
`Making`, a generator of schemas and of objects that nearly match them.
"""

import copy
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Raw = dict[str, Any]

NAMES = ("a", "b", "c-d", "e")
META = ("apiVersion", "kind", "metadata")


def member_schema(schema: Raw | None, name: str) -> Raw | None:
    """Return the schema of an object's member."""
    if schema is None:
        return None
    if name in schema.get("properties", {}):
        found: Raw = schema["properties"][name]
        return found
    additional = schema.get("additionalProperties")
    return additional if isinstance(additional, dict) else None


def twin_nulls(value: Any, schema: Raw | None) -> Any:
    """Return the value without disallowed nulls."""
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
    """Return the value with defaults."""
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
    """Return the value without unknown fields, and their paths.

    `keeps` is true below a node that preserves unknown fields.
    """
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
                kept[name], more = twin_prune(each, known, below, keeps_meta=is_embedded(known))
                unknown += more
            elif schema and "additionalProperties" in schema:
                known = member_schema(schema, name)
                kept[name], more = twin_prune(each, known, below, keeps_meta=is_embedded(known))
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
            keeps_meta = is_embedded(items)
            one, more = twin_prune(each, items, below, keeps_meta=keeps_meta, keeps=keeps)
            pruned.append(one)
            unknown += more
        return pruned, unknown
    return value, unknown


def is_embedded(schema: Raw | None) -> bool:
    """Report whether a value is an embedded object."""
    return bool(schema and schema.get("x-kubernetes-embedded-resource"))


# Metadata, the metadata after coercion, and whether it is valid.
METADATA: tuple[tuple[Any, Any, bool], ...] = (
    ({}, {}, True),
    ({"name": "x", "labels": {"a": "b"}}, {"name": "x", "labels": {"a": "b"}}, True),
    ({"name": "x", "odd": 1}, {"name": "x"}, True),
    ({"name": "x", "labels": None}, {"name": "x"}, True),
    ({"labels": {"a": 1}}, {"labels": {"a": 1}}, False),
    ({"labels": {"a b": "c"}}, {"labels": {"a b": "c"}}, False),
    ({"finalizers": ["bare"]}, {"finalizers": ["bare"]}, True),
    ({"name": "a/b", "odd": 1}, {"name": "a/b"}, False),
    (7, 7, False),
)
# Types of an embedded object, and whether they are valid.
VERSIONS = (("v1", True), ("g/v1", True), ("a/b/c", False), ("", False), (1, False))
KINDS = (("Pod", True), ("P_d", False), ("", False), (1, False))


def twin_embedded(value: Any, schema: Raw | None) -> tuple[Any, bool]:
    """Return the value with known metadata only, and whether all embedded objects are valid."""
    if isinstance(value, dict):
        kept, right = {}, True
        for name, each in value.items():
            kept[name], is_right = twin_embedded(each, member_schema(schema, name))
            right = right and is_right
        if is_embedded(schema):
            right = (
                right and _is_own(value, "apiVersion", VERSIONS) and _is_own(value, "kind", KINDS)
            )
            for given, left, is_right in METADATA:
                if value.get("metadata") == given:
                    kept["metadata"] = copy.deepcopy(left)
                    right = right and is_right
        return kept, right
    if isinstance(value, list):
        found = [twin_embedded(each, (schema or {}).get("items")) for each in value]
        return [each for each, _ in found], all(is_right for _, is_right in found)
    return value, True


def _is_own(value: Raw, name: str, table: tuple[tuple[Any, bool], ...]) -> bool:
    return name in value and any(_same(value[name], each) and good for each, good in table)


def twin_lists(value: Any, schema: Raw | None) -> bool:
    """Report whether no set has duplicate items, and no map list duplicate keys."""
    if isinstance(value, dict):
        return all(twin_lists(each, member_schema(schema, name)) for name, each in value.items())
    if not isinstance(value, list):
        return True
    schema = schema or {}
    keys = schema.get("x-kubernetes-list-map-keys", [])
    parts: list[Any] = list(value)
    if schema.get("x-kubernetes-list-type") == "map":
        if not all(each is None or isinstance(each, dict) for each in value):
            return False
        parts = [{key: each[key] for key in keys if key in (each or {})} for each in value]
    is_distinct = schema.get("x-kubernetes-list-type") not in ("set", "map") or not any(
        _same_all(one, other) for index, one in enumerate(parts) for other in parts[index + 1 :]
    )
    return is_distinct and all(twin_lists(each, schema.get("items")) for each in value)


def _same_all(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_all(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_all, one, other))
    return _same(one, other)


def twin_valid(value: Any, schema: Raw) -> bool:
    """Report whether a value matches a schema."""
    if value is None:
        may_be = schema.get("nullable") or not twin_types(schema)
        return bool(may_be) and not schema.get("enum")
    return all(check(value, schema) for check in _CHECKS)


def twin_types(schema: Raw) -> list[str]:
    """Return the allowed types of a value."""
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


ALL_SCALARS = (None, True, False, *range(-3, 13), 0.5, 2.0, -1.5, "", "a", "ab", "abc1", "ÄÖ")
SCALARS = tuple(each for each in ALL_SCALARS if each is not None)


class Making:
    """Generates schemas and values from a seed.

    Drawing them with Hypothesis would take a hundred times longer than all the tests, and failures
    are rarely found by few cases, even if each is simple.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.chance = self._random.random

    def one_of(self, some: Sequence[Any]) -> Any:
        return self._random.choice(some)

    def some_of(self, some: Sequence[Any], count_max: int, *, count_min: int = 0) -> list[Any]:
        return self._random.sample(some, self._random.randint(count_min, count_max))

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def value(self, depth: int = 2) -> Any:
        """Return an arbitrary value."""
        match self.number(0, 5) if depth else 0:
            case 4:
                return [self.value(depth - 1) for _ in range(self.number(0, 3))]
            case 5:
                return {name: self.value(depth - 1) for name in self.some_of((*NAMES, "z"), 3)}
        return self.one_of(ALL_SCALARS)

    # Schemas.

    def restrictions(self, skeleton: Raw, depth: int = 1) -> Raw:
        """Return a schema that is allowed below a junctor: no types, and only names of the
        skeleton.
        """
        makers: dict[str, Callable[[], Any]] = {
            "minimum": lambda: self.number(-2, 3),
            "maxLength": lambda: self.number(0, 3),
            "pattern": lambda: self.one_of(["^a", "b", "^[a-c]+$"]),
            "maxItems": lambda: self.number(0, 2),
            "enum": lambda: self.some_of(SCALARS, 3, count_min=1),
            "maxProperties": lambda: self.number(0, 3),
            "required": lambda: self.some_of(NAMES, 2),
        }
        made: Raw = {name: make() for name, make in makers.items() if self.chance() < 1 / 6}
        properties = skeleton.get("properties", {})
        if properties and self.chance() < 0.5:
            name = self.one_of(sorted(properties))
            made["properties"] = {name: self.restrictions(properties[name], depth - 1)}
        return made | self.junctors(skeleton, depth - 1) if depth > 0 else made

    def junctors(self, skeleton: Raw, depth: int = 1) -> Raw:
        """Return at most one of allOf, anyOf, oneOf and not."""
        kind = self.one_of([*[""] * 8, "allOf", "anyOf", "oneOf", "not"])
        if kind == "not":
            return {"not": self.restrictions(skeleton, depth)}
        if kind:
            return {kind: [self.restrictions(skeleton, depth) for _ in range(self.number(1, 3))]}
        return {}

    def schema(self, depth: int = 3, *, is_root: bool = True) -> Raw:
        """Return a structural schema; its defaults match no schema in particular."""
        kinds = ["string", "integer", "number", "boolean", "int-or-string"]
        if depth:
            kinds += ["object", "object", "map", "array", "array", "open", "loose"]
            kinds += ["set", "keyed", "embedded"]
        kind = "object" if is_root else self.one_of(kinds)
        made: Raw = {"type": kind}
        match kind:
            case "int-or-string":
                made = {"x-kubernetes-int-or-string": True}
            case "string":
                made |= self._limits("minLength", "maxLength")
                if self.chance() < 0.2:
                    made["pattern"] = self.one_of(["^a", "b$", "^[a-z]*$", "^a?(b|c)+"])
            case "integer" | "number":
                made |= self._limits("minimum", "maximum")
                for name in self.some_of(["exclusiveMinimum", "exclusiveMaximum"], 1):
                    made[name] = True
                if self.chance() < 0.2:
                    made["multipleOf"] = self.one_of([1, 2, 3])
            case "map" | "array" | "set" | "keyed" | "loose":
                made = self._container(kind, depth)
            case "embedded" | "open":
                made = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                if kind == "embedded":
                    made["x-kubernetes-embedded-resource"] = True
                    if self.chance() < 0.5:
                        made |= {"properties": {"e": {"type": "string"}}}
                        del made["x-kubernetes-preserve-unknown-fields"]
        if kind in ("object", "open", "embedded"):
            fields = self._fields(depth)
            fields["properties"] |= made.get("properties", {})
            made |= fields
        if not is_root:
            made |= self._extras(kind)
        return made | self.junctors(made)

    def _container(self, kind: str, depth: int) -> Raw:
        match kind:
            case "map":
                made = {"type": "object", **self._limits("minProperties", "maxProperties")}
                return made | {"additionalProperties": self.schema(depth - 1, is_root=False)}
            case "loose":
                return {"type": "object", "additionalProperties": True}
            case "array":
                made = {"type": "array", **self._limits("minItems", "maxItems")}
                return made | {"items": self.schema(depth - 1, is_root=False)}
            case "set":
                items: Raw = {"type": self.one_of(["string", "number"])}
                return {"type": "array", "items": items, "x-kubernetes-list-type": "set"}
        keys: Raw = {"a": {"type": "string"}, "b": {"type": "integer"}}
        return {
            "type": "array",
            "items": {"type": "object", "properties": keys, "required": ["a"]},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": self.one_of([["a"], ["a", "b"]]),
        }

    def _fields(self, depth: int) -> Raw:
        names = self.some_of(NAMES, 3)
        return {
            "properties": {name: self.schema(depth - 1, is_root=False) for name in names},
            "required": [name for name in names if self.chance() < 0.25],
        }

    def _extras(self, kind: str) -> Raw:
        made: Raw = {}
        if self.chance() < 0.2:
            made["nullable"] = True
        if self.chance() < 0.2:
            made["default"] = self.value()
            if made["default"] is None:
                del made["default"]
        if kind in ("string", "integer") and self.chance() < 0.2:
            made["enum"] = self.some_of([each for each in SCALARS if each], 3, count_min=1)
        return made

    def _limits(self, low: str, high: str) -> Raw:
        made = {low: self.number(0, 2), high: self.number(1, 6)}
        return {name: made[name] for name in (low, high) if self.chance() < 0.25}

    # Values.

    def value_for(self, schema: Raw) -> Any:
        """Return a value that usually matches a schema."""
        if self.chance() < 0.05:
            return self.value()
        if self.chance() < (0.3 if schema.get("nullable") else 0.03):
            return None
        if "enum" in schema and self.chance() < 0.8:
            return self.one_of(schema["enum"])
        types = twin_types(schema)
        match self.one_of(types) if types else "string":
            case "string":
                return self.one_of(["a", "ab", "abc", "b", "", "x1"])
            case "integer":
                return self.number(-1, 8)
            case "number":
                return self.one_of([0.5, 1, 2.0, 3, -1.5])
            case "boolean":
                return self.chance() < 0.5
            case "array":
                return [self.value_for(schema.get("items", {})) for _ in range(self.number(0, 3))]
        return self._object_for(schema)

    def _object_for(self, schema: Raw) -> Raw:
        made = self._identity() if is_embedded(schema) else {}
        for name, each in schema.get("properties", {}).items():
            if name in schema.get("required", []) or self.chance() < 0.6:
                made[name] = self.value_for(each)
        additional = schema.get("additionalProperties")
        if additional is not None:
            for name in self.some_of(NAMES, 2):
                is_known = isinstance(additional, dict)
                made[name] = self.value_for(additional) if is_known else self.value()
        if self.chance() < 0.1:
            made["z"] = self.value()
        return made

    def _identity(self) -> Raw:
        """Return the type and metadata of an embedded object: mostly valid."""
        made: Raw = {"apiVersion": "v1", "kind": "Pod"}
        for name, table in (("apiVersion", VERSIONS), ("kind", KINDS)):
            if self.chance() < 0.2:
                made[name] = self.one_of(table)[0]
            elif self.chance() < 0.05:
                del made[name]
        if self.chance() < 0.7:
            made["metadata"] = copy.deepcopy(self.one_of(METADATA)[0])
        return made

    def case(self) -> tuple[Raw, Raw]:
        """Return a schema, and an object that nearly matches it."""
        schema = self.schema()
        value = self.value_for(schema)
        return schema, value if isinstance(value, dict) else {"a": value}
