"""Validation rules on objects: their variables, messages and costs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.budget import CALL_COST_MAX
from restow.apimachinery.structural.cel.declarations import declare, escape
from restow.apimachinery.structural.cel.environment import RULES
from restow.apimachinery.structural.cel.functions import Overload
from restow.apimachinery.structural.cel.program import CompileError, compile_expression
from restow.apimachinery.structural.cel.rules import compile_rules, run_rules
from restow.apimachinery.structural.cel.syntax import DEPTH_MAX
from restow.apimachinery.structural.compiled import CompiledSchema
from restow.apimachinery.structural.schema import read_schema
from tests.unit.apimachinery.structural.expressions import near_expressions
from tests.unit.apimachinery.structural.twins import Raw

X = "x-kubernetes-"


def schema_of(rules: list[Raw], **properties: Raw) -> CompiledSchema:
    below = {"type": "object", "properties": properties, f"{X}validations": rules}
    return CompiledSchema(read_schema({"type": "object", "properties": {"spec": below}}))


def errors_of(schema: CompiledSchema, new: Raw, old: Raw | None = None) -> list[str]:
    given_old = {"spec": old} if old is not None else None
    return [str(each) for each in schema.problems({"spec": new}, given_old).causes]


def evaluate(rule: str, value: Any, schema: Raw, old: Any = None) -> Any:
    declared = declare(read_schema(schema))
    assert declared is not None
    convert = declared.convert
    program = compile_expression(rule, declared)
    made = convert(value) if convert is not None else value
    outcome = program.run({"self": made, "oldSelf": old})
    assert not outcome.error, outcome.error
    return outcome.value


def test_a_violated_rule_is_reported_with_message_and_path() -> None:
    """The message or the rule itself is reported; objects are not printed; fieldPath is applied."""
    schema = schema_of(
        [
            {"rule": "self.a < self.b", "message": "a must be less"},
            {"rule": "self.a != 5"},
            {"rule": "self.a != 6", "messageExpression": "'not ' + string(self.a)"},
            {"rule": "self.a != 7", "reason": "FieldValueForbidden", "fieldPath": ".a"},
            {"rule": "self.a != 8", "messageExpression": "'a\\nb'", "message": "fallback"},
        ],
        a={"type": "integer"},
        b={"type": "integer"},
    )
    assert errors_of(schema, {"a": 1, "b": 2}) == []
    assert errors_of(schema, {"a": 3, "b": 2}) == ["spec: Invalid value: a must be less"]
    assert errors_of(schema, {"a": 5, "b": 9}) == ["spec: Invalid value: failed rule: self.a != 5"]
    assert errors_of(schema, {"a": 6, "b": 9}) == ["spec: Invalid value: not 6"]
    assert errors_of(schema, {"a": 7, "b": 9}) == ["spec.a: Forbidden: failed rule: self.a != 7"]
    assert errors_of(schema, {"a": 8, "b": 9}) == ["spec: Invalid value: fallback"]
    assert errors_of(schema, {"a": 1}) == [
        'spec: Invalid value: "object": no such key: b evaluating rule: a must be less'
    ]


def test_rules_that_compare_run_only_on_updates() -> None:
    """Unless optionalOldSelf is set; they are not subject to ratcheting."""
    schema = schema_of([{"rule": "self.a >= oldSelf.a"}], a={"type": "integer"})
    assert errors_of(schema, {"a": 1}) == []
    assert errors_of(schema, {"a": 1}, {"a": 2}) == [
        "spec: Invalid value: failed rule: self.a >= oldSelf.a"
    ]
    optional = schema_of(
        [{"rule": "oldSelf.hasValue() || self.a == 1", "optionalOldSelf": True}],
        a={"type": "integer"},
    )
    assert errors_of(optional, {"a": 2}) != []
    assert errors_of(optional, {"a": 2}, {"a": 3}) == []


def test_violations_in_unchanged_parts_are_warnings() -> None:
    """A new rule does not reject updates of objects that violate it elsewhere."""
    schema = CompiledSchema(
        read_schema(
            {
                "type": "object",
                "properties": {
                    "a": {"type": "string", f"{X}validations": [{"rule": "self == 'x'"}]},
                    "b": {"type": "string"},
                },
            }
        )
    )
    old = {"a": "y", "b": "1"}
    verdict = schema.problems({"a": "y", "b": "2"}, old)
    assert verdict.causes == []
    assert verdict.warnings == ["a: Invalid value: \"y\": failed rule: self == 'x'"]
    assert schema.problems({"a": "z", "b": "1"}, old).causes != []


def test_items_of_map_lists_find_their_old_ones() -> None:
    """Old items are found by key, in any order."""
    item = {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"type": "string"}, "v": {"type": "integer"}},
        f"{X}validations": [{"rule": "self.v >= oldSelf.v"}],
    }
    schema = schema_of(
        [], l={"type": "array", f"{X}list-type": "map", f"{X}list-map-keys": ["n"], "items": item}
    )
    old = {"l": [{"n": "a", "v": 1}, {"n": "b", "v": 5}]}
    assert (
        errors_of(schema, {"l": [{"n": "b", "v": 6}, {"n": "c", "v": 0}, {"n": "a", "v": 1}]}, old)
        == []
    )
    assert errors_of(schema, {"l": [{"n": "b", "v": 4}]}, old) == [
        "spec.l[0]: Invalid value: failed rule: self.v >= oldSelf.v"
    ]


def test_rules_do_not_run_on_wrong_types() -> None:
    """They could fail in any way; the client is told that they did not run."""
    schema = schema_of([{"rule": "self.a > 0"}], a={"type": "integer"})
    assert errors_of(schema, {"a": "x"})[-1] == (
        "<nil>: Invalid value: null: some validation rules were not checked because the object "
        "was invalid; correct "
        "the existing errors to complete validation"
    )


TEXT: Raw = {"type": "string"}
TEXTS: Raw = {"type": "array", "items": TEXT}
INTS: Raw = {"type": "array", "items": {"type": "integer"}}
HOLDER: Raw = {"type": "object", "properties": {"a": TEXT}}

VALUES: list[tuple[str, Raw, Any]] = [
    ("self == 1.0", {"type": "number"}, 1),
    (
        "self > timestamp('2020-01-01T00:00:00Z')",
        {"type": "string", "format": "date-time"},
        "2026-01-01T00:00:00Z",
    ),
    ("self.getFullYear() == 2026", {"type": "string", "format": "date"}, "2026-01-01"),
    ("self > duration('1h')", {"type": "string", "format": "duration"}, "90m"),
    ("self == b'hello'", {"type": "string", "format": "byte"}, "aGVsbG8="),
    ("type(self) == int ? self > 1 : self.endsWith('%')", {f"{X}int-or-string": True}, "5%"),
    (
        "self.all(k, self[k] == 1.0)",
        {"type": "object", "additionalProperties": {"type": "number"}},
        {"a": 1},
    ),
    ("self.sum() == 3.0", {"type": "array", "items": {"type": "number"}}, [1, 2]),
    ("self == ['b', 'a']", {"type": "array", f"{X}list-type": "set", "items": TEXT}, ["a", "b"]),
    (
        "(self + ['a', 'c']).size() == 3",
        {"type": "array", f"{X}list-type": "set", "items": TEXT},
        ["a", "b"],
    ),
    ("self == null", {"type": "object", "properties": {}, "nullable": True}, None),
    (
        "has(self.a__dash__b) && self.__namespace__ == 'x'",
        {"type": "object", "properties": {"a-b": TEXT, "namespace": TEXT}},
        {"a-b": "", "namespace": "x"},
    ),
    ("self.?a.orValue('z') == 'z'", HOLDER, {}),
    ("self.?a.optMap(v, v + '!').orValue('') == 'x!'", HOLDER, {"a": "x"}),
    ("quantity(self).isGreaterThan(quantity('1Gi')) && isQuantity(self)", TEXT, "2Gi"),
    ("quantity(self).add(quantity('500m')).compareTo(quantity('1500m')) == 0", TEXT, "1"),
    (
        (
            "url(self).getHost() == 'a:1' && url(self).getPort() == '1' && "
            "url(self).getQuery()['q'] == ['x']"
        ),
        TEXT,
        "https://a:1/p?q=x",
    ),
    (
        "ip(self).family() == 4 && cidr('10.0.0.0/8').containsIP(self) && !isCIDR(self)",
        TEXT,
        "10.1.2.3",
    ),
    (
        "cidr(self).masked().ip() == ip('10.0.0.0') && cidr(self).prefixLength() == 8",
        TEXT,
        "10.1.0.0/8",
    ),
    (
        "semver(self).isLessThan(semver('1.10.0')) && semver('v1', true).major() == 1",
        TEXT,
        "1.9.3-rc.1",
    ),
    (
        "!format.dns1123Label().validate(self).hasValue() && format.named('uuid').hasValue()",
        TEXT,
        "a-b",
    ),
    ("self.find('[0-9]+') == '12' && self.findAll('[0-9]+', 2) == ['12', '3']", TEXT, "a12b3c4"),
    (
        "sets.equivalent(self, ['b', 'a', 'a']) && self.isSorted() && self.max() == 'b'",
        {"type": "array", "items": TEXT},
        ["a", "b"],
    ),
    ("self.map(x, x * 2).filter(x, x > 2) == [4] && self.exists_one(x, x == 2)", INTS, [1, 2]),
    ("self.all(i, x, i < x) && self.transformList(i, x, i + x) == [1, 3]", INTS, [1, 2]),
    (
        "self.transformMap(k, v, v + 1) == {'a': 2}",
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"a": 1},
    ),
    (
        "self.sortBy(x, -x)[0] == 3 && self.sort()[0] == 1 && lists.range(2) == [0, 1]",
        INTS,
        [2, 3, 1],
    ),
    (
        "[self, self].flatten().distinct().slice(0, 1) == self",
        {"type": "array", "items": TEXT},
        ["a"],
    ),
]


@pytest.mark.parametrize(("rule", "schema", "value"), VALUES)
def test_rules_see_typed_values(rule: str, schema: Raw, value: Any) -> None:
    """Times, durations, bytes and numbers are typed; the functions of Kubernetes are available."""
    if value is None:
        schema, value = {"type": "object", "properties": {"x": schema}}, {"x": None}
        rule = rule.replace("self", "self.x")
    assert evaluate(rule, value, schema) is True


COSTS: list[tuple[str, Raw, int]] = [
    ("self.all(x, true)", {"type": "array", "items": {"type": "number"}}, 4_718_591),
    ("self.all(x, true)", {"type": "array", "items": {"type": "number"}, "maxItems": 10}, 32),
    (
        "self.all(x, true)",
        {"type": "object", "additionalProperties": {"type": "string"}},
        1_179_647,
    ),
    ("self.contains('test')", {"type": "string"}, 314_574),
    ("self.contains('test')", {"type": "string", "maxLength": 10}, 5),
    ('size(self + "hello") > size("hello")', {"type": "string", "maxLength": 4}, 7),
    ("self[1] == self[1]", {"type": "array", "items": {"type": "string"}, "maxItems": 8}, 314_577),
    ("isQuantity(self)", {f"{X}int-or-string": True, "maxLength": 20}, 9),
    ("self.lowerAscii() == 'lower!'", {"type": "string", "maxLength": 10}, 6),
    (
        "oldSelf.size() == self.size()",
        {"type": "object", "additionalProperties": {"type": "integer"}},
        5,
    ),
]


@pytest.mark.parametrize(("rule", "schema", "cost"), COSTS)
def test_estimates_match_kubernetes(rule: str, schema: Raw, cost: int) -> None:
    """Estimates equal those of Kubernetes, so the same CRDs are accepted."""
    declared = declare(read_schema(schema))
    assert declared is not None
    assert compile_expression(rule, declared).cost_max == cost


def test_a_call_that_costs_too_much_ends() -> None:
    """An evaluation above the limit is aborted, and no further rule runs."""
    schema = {"type": "array", "items": {"type": "integer"}}
    rule = "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))"
    declared = declare(read_schema(schema))
    assert declared is not None
    outcome = compile_expression(rule, declared).run({"self": [1] * 500, "oldSelf": None})
    assert outcome.error == "operation cancelled: actual cost limit exceeded"
    assert outcome.cost <= CALL_COST_MAX + 1000
    node = compile_rules(
        read_schema({**schema, f"{X}validations": [{"rule": rule}, {"rule": "false"}]})
    )
    assert node is not None
    result = run_rules(node, [1] * 500)
    assert len(result.causes) == 1
    assert "call cost exceeds limit" in result.causes[0].message
    assert result.cost_left < 0


def test_an_object_has_a_budget_for_all_its_rules() -> None:
    """Many cheap rules exceed the budget like one expensive rule."""
    node = compile_rules(
        read_schema(
            {
                "type": "array",
                "items": {"type": "string", f"{X}validations": [{"rule": "self.size() > 0"}]},
            }
        )
    )
    assert node is not None
    result = run_rules(node, ["a"] * 100, cost_max=50)
    assert "running out of cost budget" in result.causes[-1].message
    assert result.cost_left < 0


def test_functions_can_be_added() -> None:
    """Extending an environment does not change the original one."""
    twice = Overload("twice", "twice_int", (types.INT,), types.INT, lambda value: value * 2)
    declared = declare(read_schema({"type": "integer"}))
    assert declared is not None
    with pytest.raises(CompileError, match="undeclared reference to 'twice'"):
        compile_expression("twice(self) == 4", declared)
    program = compile_expression("twice(self) == 4", declared, environment=RULES.extended([twice]))
    assert program.run({"self": 2, "oldSelf": None}).value is True


def test_an_expression_may_be_long_but_not_deep() -> None:
    """Chains of conditions are flat; nesting is limited, and so is the stack."""
    declared = declare(read_schema({"type": "integer"}))
    assert declared is not None
    assert compile_expression(" && ".join(["self > 0"] * 2000), declared).cost_max == 4000
    for deep in ("(" * 5000 + "1" + ")" * 5000, "[" * 5000, "-" * 5000, "1" + "+1" * 5000):
        with pytest.raises(CompileError, match="compilation failed"):
            compile_expression(deep, declared)
    assert compile_expression("!" * 5000 + "true", declared).cost_max == 0
    nested = "(" * (DEPTH_MAX - 1) + "self > 0" + ")" * (DEPTH_MAX - 1)
    assert compile_expression(nested, declared).run({"self": 1, "oldSelf": 1}).value is True


SOME = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "maxLength": 5},
        "b": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
    },
}


@given(near_expressions(), st.sampled_from([{}, {"a": "x", "b": [1, 2]}, {"b": []}]))
def test_any_source_is_rejected_or_runs(source: str, value: Raw) -> None:
    """Any input gives a CompileError, or an outcome within its cost."""
    declared = declare(read_schema(SOME))
    assert declared is not None
    try:
        program = compile_expression(source, declared)
    except CompileError:
        return
    outcome = program.run({"self": value, "oldSelf": value})
    assert outcome.error or isinstance(outcome.value, bool)
    assert outcome.cost <= max(program.cost_max, 1) or outcome.error


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a", "a"),
        ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
        ("a__b", "a__underscores__b"),
        ("in", "__in__"),
        ("1a", None),
        ("ä", None),
        ("a b", None),
        ("", None),
    ],
)
def test_field_names_are_escaped_for_rules(name: str, expected: str | None) -> None:
    """Field names are escaped as the Kubernetes documentation specifies."""
    assert escape(name) == expected
