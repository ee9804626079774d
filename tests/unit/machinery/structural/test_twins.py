"""Pruning, defaulting and validation do what their rules say, for schemas and objects of any "
"kind."""

import copy

from hypothesis import given

from restow.machinery.structural.coerce import Coercion
from restow.machinery.structural.compiled import CompiledSchema
from restow.machinery.structural.defaults import apply_defaults, drop_nulls
from restow.machinery.structural.prune import prune
from restow.machinery.structural.quick import compile_quick, compile_settled
from restow.machinery.structural.schema import read_schema
from restow.machinery.structural.structure import structural_problems
from restow.machinery.structural.validate import schema_problems
from tests.unit.machinery.structural.twins import (
    Raw,
    cases,
    schemas,
    twin_default,
    twin_nulls,
    twin_prune,
    twin_valid,
)


@given(schemas())
def test_generated_schemas_are_structural_but_for_names_of_restrictions(raw: Raw) -> None:
    """The strategy makes what the other tests are about."""
    why = {cause.message for cause in structural_problems(read_schema(raw), "s")}
    assert all("because it is defined in" in each for each in why)


@given(cases())
def test_each_step_does_what_its_rules_say(case: tuple[Raw, Raw]) -> None:
    """Nulls, defaults and pruning, one by one, against their twins."""
    raw, obj = case
    schema = read_schema(raw)
    value = copy.deepcopy(obj)
    drop_nulls(value, schema)
    assert value == twin_nulls(obj, raw)
    before = copy.deepcopy(value)
    apply_defaults(value, schema)
    assert value == twin_default(before, raw)
    before = copy.deepcopy(value)
    unknown = prune(value, schema)
    pruned, told = twin_prune(before, raw)
    assert value == pruned
    assert unknown == sorted(told)


@given(cases())
def test_the_quick_pass_equals_the_slow_one_on_all_that_is_valid(case: tuple[Raw, Raw]) -> None:
    """The compiled pass may look less only where validation refuses the object anyway."""
    raw, obj = case
    schema = read_schema(raw)
    coercion = Coercion(schema)
    quick, slow = copy.deepcopy(obj), copy.deepcopy(obj)
    told, expected = coercion(quick), coercion.thoroughly(slow)
    if twin_valid(slow, raw) or twin_valid(quick, raw):
        assert quick == slow
        assert told == expected


@given(cases())
def test_what_is_settled_stays_as_it_is(case: tuple[Raw, Raw]) -> None:
    """If the library says that there is nothing to do, there is nothing to do."""
    raw, obj = case
    schema = read_schema(raw)
    is_settled = compile_settled(schema)
    Coercion(schema).thoroughly(obj)
    value = copy.deepcopy(obj)
    if is_settled(value):
        assert Coercion(schema).thoroughly(value) == []
        assert value == obj


@given(cases())
def test_validation_agrees_with_its_twin(case: tuple[Raw, Raw]) -> None:
    """No problem is told exactly of what is valid, and the library accepts nothing else."""
    raw, obj = case
    schema = read_schema(raw)
    problems = schema_problems(obj, schema)
    assert (not problems) == twin_valid(obj, raw)
    if compile_quick(schema)(obj):
        assert not problems


@given(cases())
def test_a_compiled_schema_answers_without_raising(case: tuple[Raw, Raw]) -> None:
    """Whatever comes in, there is a verdict; a second look at what was accepted changes nothing."""
    raw, obj = case
    compiled = CompiledSchema(read_schema(raw))
    compiled.coerce(obj)
    verdict = compiled.problems(obj)
    assert all(cause.message for cause in verdict.causes)
    # A default that does not fit is refused with its schema, so it may change once more here.
    if not verdict.causes and compiled.accepts(obj):
        before = copy.deepcopy(obj)
        compiled.coerce(obj)
        assert not compiled.problems(obj).causes or obj != before
