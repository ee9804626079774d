"""Validation errors of objects, and what an update may leave invalid."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.structural.compiled import CompiledSchema
from restow.apimachinery.structural.fast_validator import compile_fast_check
from restow.apimachinery.structural.formats import format_check
from restow.apimachinery.structural.patterns import compile_pattern, is_plain
from restow.apimachinery.structural.schema import read_schema
from tests.unit.apimachinery.structural.twins import Raw

X = "x-kubernetes-"


def compiled(**properties: Raw) -> CompiledSchema:
    return CompiledSchema(read_schema({"type": "object", "properties": properties}))


def errors_of(schema: CompiledSchema, obj: Raw, old: Raw | None = None) -> list[str]:
    return [str(each) for each in schema.problems(obj, old).causes]


WRONG: list[tuple[Raw, Any, str]] = [
    (
        {"type": "integer"},
        "a",
        'a: Invalid value: "string": a in body must be of type integer: "string"',
    ),
    (
        {"type": "integer"},
        1.5,
        'a: Invalid value: "number": a in body must be of type integer: "number"',
    ),
    (
        {"type": "integer", "format": "int32"},
        True,
        'a: Invalid value: "": a in body must be of type int32: ""',
    ),
    (
        {"type": "integer", "format": "int32"},
        2**31,
        '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in a',
    ),
    (
        {"type": "string"},
        None,
        'a: Invalid value: "null": a in body must be of type string: "null"',
    ),
    ({"type": "string", "maxLength": 1}, "ab", "a: Too long: may not be more than 1 bytes"),
    (
        {"type": "string", "minLength": 2},
        "a",
        'a: Invalid value: "a": a in body should be at least 2 chars long',
    ),
    (
        {"type": "string", "pattern": "^b"},
        "a",
        "a: Invalid value: \"a\": a in body should match '^b'",
    ),
    (
        {"type": "string", "format": "ipv4"},
        "x",
        'a: Invalid value: "x": a in body must be of type ipv4: "x"',
    ),
    (
        {"type": "string", "enum": ["b", "c"]},
        "a",
        'a: Unsupported value: "a": supported values: "b", "c"',
    ),
    (
        {"type": "number", "minimum": 2},
        1,
        "a: Invalid value: 1: a in body should be greater than or equal to 2",
    ),
    (
        {"type": "number", "maximum": 2, "exclusiveMaximum": True},
        2,
        "a: Invalid value: 2: a in body should be less than 2",
    ),
    (
        {"type": "number", "multipleOf": 2},
        3,
        "a: Invalid value: 3: a in body should be a multiple of 2",
    ),
    (
        {"type": "array", "items": {"type": "string"}, "maxItems": 1},
        ["a", "b"],
        "a: Too many: 2: must have at most 1 item",
    ),
    (
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        [],
        "a: Invalid value: 0: a in body should have at least 1 items",
    ),
    (
        {"type": "array", "items": {"type": "string"}},
        ["a", 1],
        'a[1]: Invalid value: "integer": a[1] in body must be of type string: "integer"',
    ),
    ({"type": "object", "required": ["b"]}, {}, "a.b: Required value"),
    (
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"b": 1},
        'a.b: Invalid value: "integer": a.b in body must be of type string: "integer"',
    ),
    (
        {"type": "object", "additionalProperties": False},
        {"b": 1},
        'a: Invalid value: "b": a.b in body is a forbidden property',
    ),
    (
        {f"{X}int-or-string": True},
        [],
        'a: Invalid value: "array": a in body must be of type integer,string: "array"',
    ),
    (
        {"type": "object", "oneOf": [{"required": ["b"]}, {"required": ["c"]}]},
        {},
        (
            '<nil>: Invalid value: "": "a" must validate one and only one schema (oneOf). Found '
            "none valid"
        ),
    ),
    (
        {"type": "string", "anyOf": [{"pattern": "b"}, {"pattern": "c"}]},
        "a",
        '<nil>: Invalid value: "": "a" must validate at least one schema (anyOf)',
    ),
    (
        {"type": "string", "not": {"enum": ["a"]}},
        "a",
        '<nil>: Invalid value: "": "a" must not validate the schema (not)',
    ),
    (
        {"type": "string", "allOf": [{"minLength": 2}]},
        "a",
        '<nil>: Invalid value: "": "a" must validate all the schemas (allOf). None validated',
    ),
]


@pytest.mark.parametrize(("schema", "value", "expected"), WRONG)
def test_errors_have_the_wording_of_kubernetes(schema: Raw, value: Any, expected: str) -> None:
    """The type is checked first, and messages start with the path."""
    assert expected in errors_of(compiled(a=schema), {"a": value})


def test_an_update_may_keep_invalid_parts_unchanged() -> None:
    """Tightening a schema does not make stored objects unwritable."""
    schema = compiled(a={"type": "string", "maxLength": 1}, b={"type": "string", "maxLength": 1})
    old = {"a": "long", "b": "x"}
    assert errors_of(schema, {"a": "long", "b": "y"}, old) == []
    assert errors_of(schema, {"a": "longer", "b": "y"}, old) == [
        "a: Too long: may not be more than 1 bytes"
    ]
    assert errors_of(schema, {"a": "long", "b": "xy"}, old) == [
        "b: Too long: may not be more than 1 bytes"
    ]


def test_no_ratcheting_in_junctors() -> None:
    """Junctors restrict the whole value, including its unchanged parts."""
    either = CompiledSchema(
        read_schema(
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "anyOf": [
                    {"properties": {"a": {"enum": [1]}}},
                    {"properties": {"b": {"enum": [2]}}},
                ],
            }
        )
    )
    assert errors_of(either, {"a": 3, "b": 2}) == []
    assert errors_of(either, {"a": 3, "b": 5}, {"a": 3, "b": 2})
    neither = CompiledSchema(
        read_schema(
            {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "integer"},
                    "old": {"type": "string"},
                },
                "not": {"properties": {"a": {"enum": [1]}}},
            }
        )
    )
    assert errors_of(neither, {"a": 2, "b": 2, "old": 7}, {"a": 2, "b": 1, "old": 7}) == []


def test_the_fast_check_is_not_stricter_below_not() -> None:
    """Below `not`, where accepting less would accept more."""
    schema = compiled(a={"type": "number", "not": {"format": "float", "minimum": 0}})
    assert errors_of(schema, {"a": 1e20})
    assert not schema.accepts({"a": 1e20})


def test_metadata_does_not_unsettle_an_object() -> None:
    """Most CRDs declare metadata as an object without listing its fields."""
    schema = compiled(metadata={"type": "object"}, spec={"type": "object"})
    assert not schema.coerce_stored(
        {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}, "spec": {}}
    )
    assert schema.coerce_stored({"metadata": {"name": "a"}, "spec": {"unknown": 1}})


def test_items_of_map_lists_are_matched_by_their_keys() -> None:
    """A map list may grow around an invalid item; an atomic list must be valid as a whole."""
    item = {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"type": "string"}, "v": {"type": "integer", "maximum": 1}},
    }
    keyed = compiled(
        l={"type": "array", f"{X}list-type": "map", f"{X}list-map-keys": ["n"], "items": item}
    )
    atomic = compiled(l={"type": "array", "items": item})
    old = {"l": [{"n": "a", "v": 5}]}
    new = {"l": [{"n": "b", "v": 1}, {"n": "a", "v": 5}]}
    assert errors_of(keyed, new, old) == []
    assert len(errors_of(atomic, new, old)) == 1
    assert errors_of(atomic, old, old) == []


def test_sets_and_map_lists_have_no_item_twice() -> None:
    """Each duplicate is reported once; an object that had duplicates before may keep them."""
    schema = compiled(
        s={"type": "array", f"{X}list-type": "set", "items": {"type": "string"}},
        m={
            "type": "array",
            f"{X}list-type": "map",
            f"{X}list-map-keys": ["n", "p"],
            "items": {
                "type": "object",
                "required": ["n", "p"],
                "properties": {"n": {"type": "string"}, "p": {"type": "integer"}},
            },
        },
    )
    bad = {
        "s": ["a", "b", "a", "a"],
        "m": [{"n": "a", "p": 1}, {"n": "a", "p": 2}, {"n": "a", "p": 1}],
    }
    assert errors_of(schema, bad) == [
        's[2]: Duplicate value: "a"',
        'm[2]: Duplicate value: {"n":"a","p":1}',
    ]
    assert errors_of(schema, {"s": ["c", "c"]}, bad) == []
    assert errors_of(schema, {"s": ["a", "b"], "m": [{"n": "a", "p": 1}, {"n": "b", "p": 1}]}) == []


def test_embedded_objects_are_objects() -> None:
    """They need apiVersion and kind, and their metadata is validated."""
    schema = compiled(
        t={"type": "object", f"{X}embedded-resource": True, f"{X}preserve-unknown-fields": True}
    )
    assert errors_of(schema, {"t": {"kind": "1x"}}) == [
        "t.apiVersion: Required value",
        (
            't.kind: Invalid value: "1x": may have mixed case, but should otherwise match: a '
            "DNS-1035 label must "
            "consist of lower case alphanumeric characters or '-', start with an alphabetic "
            "character, and end with an "
            "alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
            " '[a-z]([-a-z0-9]*[a-z0-9])?')"
        ),
    ]
    obj = {
        "t": {"apiVersion": "v1", "kind": "A", "metadata": {"labels": {"-": "a"}, "odd": 1}, "x": 1}
    }
    assert schema.coerce(obj) == ["t.metadata.odd"]
    assert obj["t"]["x"] == 1
    assert [each.split(":")[0] for each in errors_of(schema, obj)] == ["t.metadata.labels"]


def test_pruned_fields_are_listed_by_their_paths() -> None:
    """As warnings show them; a preserving node keeps its unknown fields, but not those deeper."""
    schema = compiled(
        a={"type": "object", "properties": {"b": {"type": "array", "items": {"type": "object"}}}},
        p={
            "type": "object",
            f"{X}preserve-unknown-fields": True,
            "properties": {"q": {"type": "object", "properties": {}}},
        },
    )
    obj = {
        "apiVersion": "g/v1",
        "kind": "A",
        "metadata": {"name": "a"},
        "a": {"b": [{"x": 1}], "y": 2},
        "p": {"any": {"thing": 1}, "q": {"z": 1}},
        "w": 1,
    }
    assert schema.coerce(obj) == ["a.b[0].x", "a.y", "p.q.z", "w"]
    assert obj["p"] == {"any": {"thing": 1}, "q": {}}


def test_defaults_are_copies() -> None:
    """Objects never share a default value."""
    schema = compiled(
        a={"type": "object", "default": {}, "additionalProperties": {"type": "string"}}
    )
    one: Raw = {}
    other: Raw = {}
    schema.coerce(one)
    schema.coerce(other)
    one["a"]["x"] = "y"
    assert other == {"a": {}}


FORMS: list[tuple[str, list[str], list[str]]] = [
    ("ipv4", ["1.2.3.4", "01.2.3.4"], ["1.2.3", "256.1.1.1", "a"]),
    ("ipv6", ["::1", "fe80::1"], ["1.2.3.4", ":::", "fe80::1%eth0"]),
    ("cidr", ["10.0.0.0/8", "::/0"], ["10.0.0.0", "10.0.0.0/33"]),
    ("date", ["2026-02-28"], ["2026-02-30", "2026-2-1"]),
    (
        "date-time",
        ["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.123+01:00"],
        ["2026-01-02", "2026-01-02T25:00:00Z"],
    ),
    ("duration", ["1h30m", "2 weeks", "0"], ["", "x", "h"]),
    ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123"]),
    ("uuid4", ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]),
    ("email", ["a@b.c", "A <a@b>"], ["a", "@b"]),
    ("hostname", ["example.com", "a"], ["-a", "a..b", "x" * 256]),
    ("uri", ["http://a/b", "/a"], ["a b", "%zz", ""]),
    ("mac", ["01:23:45:67:89:ab", "0123.4567.89ab"], ["01:23", "01-23:45:67:89:ab"]),
    ("byte", ["aGVsbG8="], ["a", "===="]),
    ("isbn", ["0321751043", "978-0321751041"], ["123"]),
    ("creditcard", ["4111 1111 1111 1111"], ["4111 1111 1111 1112"]),
    ("hexcolor", ["#fff", "aabbcc"], ["#ff"]),
    ("rgbcolor", ["rgb(1, 2, 255)"], ["rgb(1,2,256)"]),
    ("ssn", ["111-22-3333"], ["11-22-3333"]),
    ("bsonobjectid", ["507f1f77bcf86cd799439011"], ["x"]),
    ("password", ["", "anything"], []),
    ("k8s-short-name", ["a-b"], ["A", "a.b", "-a"]),
    ("k8s-long-name", ["a.b-c"], ["a..b"]),
]


@pytest.mark.parametrize(("name", "good", "bad"), FORMS, ids=[form[0] for form in FORMS])
def test_formats_are_checked(name: str, good: list[str], bad: list[str]) -> None:
    """Each known format accepts valid values; an unknown format has no effect."""
    check = format_check(name)
    assert check is not None
    assert [each for each in good if not check(each)] == []
    assert [each for each in bad if check(each)] == []
    assert format_check("of-my-own") is None


NEARLY_TIMES = st.from_regex(
    r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})?\Z"
)


@given(NEARLY_TIMES)
def test_the_library_accepts_no_time_that_we_refuse(text: str) -> None:
    """Times are checked by the library first, which may only be stricter."""
    check = format_check("date-time")
    assert check is not None
    if compile_fast_check(read_schema({"type": "string", "format": "date-time"}))(text):
        assert check(text)


PATTERNS = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            "[a-c]",
            "[^a]",
            ".",
            "\\d",
            "\\w",
            "\\.",
            "(a|b)",
            "(?:ab)",
            "*",
            "+",
            "?",
            "{2}",
            "{1,}",
            "^",
            "$",
            "-",
            "[a-]",
        ]
    ),
    min_size=1,
    max_size=6,
).map("".join)


@given(PATTERNS, st.text(alphabet="abcd19.-é\n ", max_size=6))
def test_plain_patterns_mean_the_same_to_both_engines(pattern: str, text: str) -> None:
    """Patterns that are passed to the library match exactly like RE2."""
    try:
        expected = compile_pattern(pattern).found_in(text)
    except ValueError:
        return
    accepts = compile_fast_check(read_schema({"type": "string", "pattern": pattern}))
    if is_plain(pattern):
        assert accepts(text) is expected or accepts(text) is False


@pytest.mark.parametrize(
    "pattern", [r"\s", r"\bx", "(?i)a", "[a&&b]", "[[:alpha:]]", "[+--]", r"\pL", "a{,2}", r"\<"]
)
def test_unusual_patterns_are_left_to_re2(pattern: str) -> None:
    """Engines differ in these; RE2 decides, in the fast check as well."""
    assert not is_plain(pattern)
    accepts = compile_fast_check(read_schema({"type": "string", "pattern": pattern}))
    for text in ("a", "x", " ", "\u00a0", "&", "é", "<", "a{,2}", "-"):
        assert accepts(text) is compile_pattern(pattern).found_in(text)


def test_a_pattern_takes_linear_time() -> None:
    """A pattern with exponential time in backtracking engines is matched at once."""
    schema = compiled(a={"type": "string", "pattern": "^(a+)+$"})
    assert len(errors_of(schema, {"a": "a" * 100_000 + "b"})) == 1
