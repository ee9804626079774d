"""Rejected schemas, and the error messages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.status import BadRequest
from restow.apimachinery.structural.limits import pattern_weight
from restow.apimachinery.structural.schema import SCHEMA_DEPTH_MAX, Schema, read_schema
from restow.apimachinery.structural.schema_rules import Leniency, definition_problems
from tests.unit.apimachinery.structural.twins import Raw

X = "x-kubernetes-"


def spec(schema: Any, **more: Any) -> Raw:
    """Return a schema with one field."""
    return {"type": "object", "properties": {"spec": schema}, **more}


def errors_of(raw: Raw, **options: Any) -> list[str]:
    return [str(each) for each in definition_problems(read_schema(raw), path="s", **options)]


BAD: list[tuple[str, Raw, str]] = [
    (
        "no type",
        spec({}),
        "s.properties[spec].type: Required value: must not be empty for specified object fields",
    ),
    ("no type at root", {}, "s.type: Required value: must not be empty at the root"),
    (
        "wrong root",
        {"type": "string"},
        's.type: Invalid value: "string": must be object at the root',
    ),
    (
        "unknown type",
        spec({"type": "text"}),
        (
            's.properties[spec].type: Unsupported value: "text": supported values: "array", '
            '"boolean", "integer", '
            '"number", "object", "string"'
        ),
    ),
    (
        "no items",
        spec({"type": "array"}),
        "s.properties[spec].items: Required value: must be specified",
    ),
    (
        "list of items",
        spec({"type": "array", "items": [{"type": "string"}]}),
        "s.properties[spec].items: Forbidden: items must be a schema object and not an array",
    ),
    (
        "reference",
        spec({"$ref": "#/x"}),
        "s.properties[spec].$ref: Forbidden: $ref is not supported",
    ),
    (
        "definitions",
        spec({"type": "object", "definitions": {"a": {"type": "string"}}}),
        "s.properties[spec].definitions: Forbidden: definitions is not supported",
    ),
    (
        "pattern properties",
        spec({"type": "object", "patternProperties": {"a": {}}}),
        "s.properties[spec].patternProperties: Forbidden: patternProperties is not supported",
    ),
    (
        "unique items",
        spec({"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (
            "s.properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since "
            "the runtime "
            "complexity becomes quadratic"
        ),
    ),
    (
        "both kinds of properties",
        spec(
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            }
        ),
        (
            "s.properties[spec].additionalProperties: Forbidden: additionalProperties and "
            "properties are mutual exclusive"
        ),
    ),
    (
        "map at the root",
        {"type": "object", "additionalProperties": {"type": "string"}},
        "s.additionalProperties: Forbidden: must not be used at the root",
    ),
    (
        "preserving nothing",
        spec({"type": "object", f"{X}preserve-unknown-fields": False}),
        (
            f"s.properties[spec].{X}preserve-unknown-fields: Invalid value: false: must be true or "
            "undefined"
        ),
    ),
    (
        "type below a junctor",
        spec({"type": "object", "anyOf": [{"type": "object"}]}),
        "s.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural",
    ),
    (
        "default below a junctor",
        spec({"type": "string", "not": {"default": "a"}}),
        "s.properties[spec].not.default: Forbidden: must be undefined to be structural",
    ),
    (
        "restriction of nothing",
        {"type": "object", "allOf": [{"properties": {"b": {"minimum": 1}}}]},
        "s.properties[b]: Required value: because it is defined in s.allOf[0].properties[b]",
    ),
    (
        "metadata",
        {
            "type": "object",
            "properties": {
                "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}
            },
        },
        (
            "s.properties[metadata]: Forbidden: must not specify anything other than name and "
            "generateName, but metadata "
            "is implicitly specified"
        ),
    ),
    (
        "back-reference",
        spec({"type": "string", "pattern": r"(a)\1"}),
        (
            's.properties[spec].pattern: Invalid value: "(a)\\\\1": must be a valid regular '
            "expression, but isn't: "
            "error parsing regexp: invalid escape sequence: `\\1`"
        ),
    ),
    (
        "looking ahead",
        spec({"type": "string", "pattern": "(?=a)"}),
        (
            's.properties[spec].pattern: Invalid value: "(?=a)": must be a valid regular '
            "expression, but isn't: "
            "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"
        ),
    ),
    (
        "exploding pattern",
        spec({"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"}),
        (
            's.properties[spec].pattern: Invalid value: "((a{1,100}){1,100}){1,100}": must be a '
            "valid regular expression, "
            "but isn't: error parsing regexp: invalid repeat count: `{1,100}`"
        ),
    ),
    (
        "map list without keys",
        spec({"type": "array", "items": {"type": "object"}, f"{X}list-type": "map"}),
        (
            f"s.properties[spec].{X}list-map-keys: Required value: must not be empty if "
            f"{X}list-type is map"
        ),
    ),
    (
        "key that may be missing",
        spec(
            {
                "type": "array",
                f"{X}list-type": "map",
                f"{X}list-map-keys": ["a"],
                "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            }
        ),
        (
            "s.properties[spec].items.properties[a].default: Required value: this property is in "
            f"{X}list-map-keys, so it must have a default or be a required property"
        ),
    ),
    (
        "set of objects",
        spec({"type": "array", f"{X}list-type": "set", "items": {"type": "object"}}),
        (
            f"s.properties[spec].items.{X}map-type: Invalid value: null: must be atomic as item of "
            "a list with "
            f"{X}list-type=set"
        ),
    ),
    (
        "unknown list type",
        spec({"type": "array", f"{X}list-type": "bag", "items": {"type": "string"}}),
        (
            f's.properties[spec].{X}list-type: Unsupported value: "bag": supported values: '
            '"atomic", "set", "map"'
        ),
    ),
    (
        "list type of a text",
        spec({"type": "string", f"{X}list-type": "set"}),
        (
            f's.properties[spec].type: Invalid value: "string": must be array if {X}list-type is '
            "specified"
        ),
    ),
    (
        "default of a wrong type",
        spec({"type": "integer", "default": "a"}),
        (
            's.properties[spec].default: Invalid value: "string":  in body must be of type '
            'integer: "string"'
        ),
    ),
    (
        "default with unknown fields",
        spec({"type": "object", "default": {"a": 1}}),
        's.properties[spec].default: Invalid value: {"a":1}: must not have unknown fields',
    ),
    (
        "default of metadata",
        {"type": "object", "properties": {"kind": {"type": "string", "default": "A"}}},
        "s.properties[kind].default: Forbidden: must not be set in top-level kind",
    ),
    (
        "nullable root",
        {"type": "object", "nullable": True},
        "s.nullable: Forbidden: nullable cannot be true at the root",
    ),
    (
        "type null",
        spec({"type": "null"}),
        (
            "s.properties[spec].type: Forbidden: type cannot be set to null, use nullable as an "
            "alternative"
        ),
    ),
    (
        "embedded without fields",
        spec({"type": "object", f"{X}embedded-resource": True}),
        (
            "s.properties[spec].properties: Required value: must not be empty if "
            f"{X}embedded-resource is true without "
            f"{X}preserve-unknown-fields"
        ),
    ),
    (
        "two meanings",
        spec({f"{X}int-or-string": True, f"{X}preserve-unknown-fields": True}),
        (
            f"s.properties[spec].{X}preserve-unknown-fields: Invalid value: true: must be false if "
            f"{X}int-or-string is true"
        ),
    ),
]


@pytest.mark.parametrize(
    ("raw", "expected"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_bad_schemas_are_refused_in_the_words_that_clients_know(raw: Raw, expected: str) -> None:
    """Each error has its path and message."""
    found = errors_of(raw)
    assert any(each.startswith(expected) for each in found), found


RULES: list[tuple[str, Raw, str]] = [
    ("no rule", {"rule": " "}, "rule: Required value: rule is not specified"),
    (
        "empty message",
        {"rule": "true", "message": " "},
        'message: Invalid value: " ": must be non-empty if specified',
    ),
    (
        "unknown reason",
        {"rule": "true", "reason": "Odd"},
        (
            'reason: Unsupported value: "Odd": supported values: "FieldValueDuplicate", '
            '"FieldValueForbidden", '
            '"FieldValueInvalid", "FieldValueRequired"'
        ),
    ),
    (
        "bad path",
        {"rule": "true", "fieldPath": ".nope"},
        'fieldPath: Invalid value: ".nope": must be a valid path',
    ),
    (
        "unknown field",
        {"rule": "self.nope == 1"},
        (
            'rule: Invalid value: {"rule":"self.nope == 1"}: compilation failed: ERROR: '
            "<input>:1:5: undefined field "
            "'nope'\n | self.nope == 1\n | ....^"
        ),
    ),
    (
        "wrong types",
        {"rule": "self.n == 'a'"},
        (
            'rule: Invalid value: {"rule":"self.n == \'a\'"}: compilation failed: ERROR: '
            "<input>:1:8: found no matching "
            "overload for '_==_' applied to '(int, string)'\n | self.n == 'a'\n | .......^"
        ),
    ),
    (
        "no bool",
        {"rule": "self.n"},
        'rule: Invalid value: {"rule":"self.n"}: cel expression must evaluate to a bool',
    ),
    (
        "no text",
        {"rule": "true", "messageExpression": "1"},
        (
            'messageExpression: Invalid value: {"rule":"true","messageExpression":"1"}: '
            "messageExpression must evaluate to "
            "a string"
        ),
    ),
    (
        "optional without use",
        {"rule": "true", "optionalOldSelf": True},
        "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
    ),
    (
        "too costly",
        {"rule": "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c > 0)))"},
        (
            "rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try "
            "simplifying the rule, or "
            "adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
            "declared)"
        ),
    ),
]


@pytest.mark.parametrize(
    ("rule", "expected"), [case[1:] for case in RULES], ids=[case[0] for case in RULES]
)
def test_bad_rules_are_refused_with_their_schema(rule: Raw, expected: str) -> None:
    """Rules that do not compile, or cost too much, are rejected with the schema."""
    fields = {"n": {"type": "integer"}, "l": {"type": "array", "items": {"type": "integer"}}}
    raw = spec({"type": "object", "properties": fields, f"{X}validations": [rule]})
    found = errors_of(raw)
    assert any(each == f"s.properties[spec].{X}validations[0].{expected}" for each in found), found


def test_old_values_can_be_used_only_where_there_are_some() -> None:
    """Items of an atomic list have no old value; those of a map list do."""
    item = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "string"}},
        f"{X}validations": [{"rule": "self.a == oldSelf.a"}],
    }
    atomic = spec({"type": "array", "maxItems": 9, "items": item})
    assert (
        errors_of(atomic)
        == [
            (
                f's.properties[spec].items.{X}validations[0].rule: Invalid value: "self.a == '
                'oldSelf.a": oldSelf cannot be '
                "used on the uncorrelatable portion of the schema within s.properties[spec]"
            ),
            f"s.properties[spec].items.{X}validations[0].rule: Forbidden",
        ][:1]
    )
    keyed = spec(
        {
            "type": "array",
            "maxItems": 9,
            f"{X}list-type": "map",
            f"{X}list-map-keys": ["a"],
            "items": item,
        }
    )
    assert errors_of(keyed) == []


def test_a_rule_that_runs_often_costs_more() -> None:
    """The cost of a rule is multiplied by the maximum number of values that it runs on."""
    rule = [{"rule": "self.matches('^a+$')"}]
    text = {"type": "string", "maxLength": 1000, f"{X}validations": rule}
    few = spec({"type": "array", "maxItems": 10, "items": text})
    assert errors_of(few) == []
    many = spec({"type": "array", "items": text})
    assert "estimated rule cost exceeds budget" in errors_of(many)[0]


def test_a_good_schema_has_no_problems() -> None:
    """A schema that uses all features."""
    raw = spec(
        {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "maxLength": 20, "pattern": "^[a-z]+$"},
                "port": {
                    f"{X}int-or-string": True,
                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                },
                "labels": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "maxProperties": 5,
                },
                "raw": {"type": "object", f"{X}preserve-unknown-fields": True},
                "tags": {"type": "array", f"{X}list-type": "set", "items": {"type": "string"}},
                "at": {"type": "string", "format": "date-time", "nullable": True},
                "template": {
                    "type": "object",
                    f"{X}embedded-resource": True,
                    f"{X}preserve-unknown-fields": True,
                },
                "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
            },
            "oneOf": [{"required": ["port"]}, {"required": ["labels"]}],
            f"{X}validations": [
                {
                    "rule": "self.mode == 'A' || has(self.port)",
                    "messageExpression": "'no port in mode ' + self.mode",
                    "reason": "FieldValueRequired",
                    "fieldPath": ".port",
                },
                {
                    "rule": "!oldSelf.hasValue() || oldSelf.value().name == self.name",
                    "optionalOldSelf": True,
                },
            ],
        }
    )
    assert errors_of(raw) == []


def test_existing_crds_keep_their_leniency() -> None:
    """Validation rules that were added later do not apply to existing CRDs."""
    raw = spec({"type": "array", f"{X}list-type": "set", "items": {"type": "object"}})
    assert errors_of(raw, leniency=Leniency(sets_of_anything=True)) == []
    raw = spec({"type": "object", "default": {"a": 1}})
    assert errors_of(raw, leniency=Leniency(unpruned_defaults=True)) == []


def test_a_status_leaves_little_at_the_root() -> None:
    """With a status subresource, only some fields are allowed at the root."""
    raw = {"type": "object", "properties": {"status": {"type": "object"}}, "minProperties": 1}
    assert "fields are allowed at the root of the schema" in errors_of(raw, has_status=True)[0]
    assert (
        errors_of({"type": "object", "properties": {"status": {"type": "object"}}}, has_status=True)
        == []
    )


def test_depth_and_types_are_bounded_when_a_schema_is_read() -> None:
    """A schema that is too deep, or of a wrong type, is rejected while it is parsed."""
    raw: Raw = {"type": "object"}
    for _ in range(SCHEMA_DEPTH_MAX + 1):
        raw = {"type": "object", "properties": {"a": raw}}
    with pytest.raises(BadRequest, match="nested deeper than"):
        read_schema(raw)
    wrong: list[Any] = [
        [],
        "a",
        {"type": 1},
        {"properties": []},
        {"required": [1]},
        {"maxLength": True},
    ]
    for bad in wrong:
        with pytest.raises(BadRequest, match="must be of type"):
            read_schema(bad)


NODES = st.recursive(
    st.dictionaries(
        st.sampled_from(
            ["type", "pattern", "default", "enum", "nullable", "maximum", "$ref", "required"]
        ),
        st.one_of(
            st.text(max_size=3), st.booleans(), st.integers(-1, 2), st.just([]), st.just(["a"])
        ),
        max_size=3,
    ),
    lambda below: st.one_of(
        st.fixed_dictionaries(
            {"properties": st.dictionaries(st.sampled_from("ab"), below, max_size=2)}
        ),
        st.fixed_dictionaries({"items": below, "type": st.just("array")}),
        st.fixed_dictionaries({"additionalProperties": below, f"{X}list-type": st.just("set")}),
        st.fixed_dictionaries({"allOf": st.lists(below, max_size=2), "not": below}),
        st.fixed_dictionaries(
            {f"{X}validations": st.just([{"rule": "self.a"}]), "properties": st.just({})}
        ),
    ),
    max_leaves=6,
)


@given(NODES)
def test_any_schema_is_either_refused_or_read(raw: Raw) -> None:
    """Any input leads to a list of errors or a BadRequest."""
    try:
        schema = read_schema(raw)
    except BadRequest:
        return
    assert isinstance(schema, Schema)
    for cause in definition_problems(schema):
        assert cause.reason
        assert cause.message


def many(count: int, **members: Any) -> Raw:
    fields = {f"f{index}": {"type": "string", **members} for index in range(count)}
    return spec({"type": "object", "properties": fields})


def nested(levels: int, inner: Raw, **members: Any) -> Raw:
    for _ in range(levels):
        inner = {"type": "object", "properties": {"a": inner}, **members}
    return spec(inner)


RULED: Raw = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    f"{X}validations": [{"rule": f"self.a != '{index}'"} for index in range(100)],
}
WIDE: Raw = {"type": "object", "properties": {f"f{i}": {"type": "string"} for i in range(6000)}}
MUCH: list[tuple[str, Raw, str]] = [
    ("patterns", many(2000, pattern="x{1000}"), "patterns are too large"),
    ("patterns in vain", many(2000, pattern=r"\p{L}{1000}"), "patterns are too large"),
    ("open patterns", many(20, pattern=r"(" * 100 + "a" + "{9}" * 9), "patterns are too large"),
    (
        "rules",
        many(9000, **{f"{X}validations": [{"rule": "self != ''"}]}),
        f"{X}validations are too long",
    ),
    ("rules below defaults", nested(90, RULED, default={}), f"{X}validations are too long"),
    (
        "rules about much",
        nested(60, WIDE, **{f"{X}validations": [{"rule": "has(self.a)"}]}),
        f"{X}validations are about too many fields",
    ),
    ("defaults", nested(98, {**WIDE, "default": {}}, default={}), "defaults are nested too often"),
]


@pytest.mark.parametrize(("raw", "what"), [case[1:] for case in MUCH], ids=[c[0] for c in MUCH])
def test_a_schema_that_takes_too_long_is_refused_before_it_is_checked(raw: Raw, what: str) -> None:
    """The work is computed first, so an expensive schema does not block other requests."""
    assert errors_of(raw) == [f"s: Forbidden: {what}, in total for the schema"]


def test_rules_of_defaults_share_one_budget() -> None:
    """A single default is cheap to check, but a schema may have any number of them."""
    items = {"type": "array", "maxItems": 100, "items": {"type": "integer"}}
    rule = {"rule": "self.all(x, self.all(y, x + y >= 0))"}
    each = {**items, "default": list(range(100)), f"{X}validations": [rule]}
    few = spec({"type": "object", "properties": {"a": each}})
    assert errors_of(few) == []
    fields = {f"f{index}": each for index in range(30)}
    found = errors_of(spec({"type": "object", "properties": fields}))
    assert "running out of cost budget" in found[0]


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("", 0),
        ("abc", 3),
        ("x{1000}", 1000),
        ("(x{100}){10}", 1000),
        ("((a{1,10}){1,10}){1,10}", 1000),
        (r"\p{L}{10}", 4000),
        (r"\pL{10}", 4000),
        (r"[]a]{2}", 16),
        ("a{", 2),
        ("a{2", 3),
        (")))", 0),
        ("\\", 1),
    ],
)
def test_repetitions_count_as_often_as_they_repeat(text: str, weight: int) -> None:
    """A short pattern can be large, and an invalid one has a size as well."""
    assert pattern_weight(text) == weight


@given(st.text(alphabet="ab[](){}|.*\\p^0123456789,", max_size=60))
def test_every_pattern_has_a_weight(text: str) -> None:
    """Any input has a weight."""
    assert pattern_weight(text) >= 0
