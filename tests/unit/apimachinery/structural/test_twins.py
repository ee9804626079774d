"""Pruning, defaulting and validation follow their rules, for generated schemas and objects.

Each is compared with a reference implementation that is as simple as the rule itself.
"""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.structural.coerce import Coercion
from restow.apimachinery.structural.compiled import CompiledSchema
from restow.apimachinery.structural.defaults import apply_defaults, drop_nulls
from restow.apimachinery.structural.embedded_objects import (
    coerce_embedded,
    embedded_problems,
    has_unsettled,
)
from restow.apimachinery.structural.fast_validator import compile_fast_check, compile_settled
from restow.apimachinery.structural.listtypes import list_type_problems
from restow.apimachinery.structural.prune import prune
from restow.apimachinery.structural.schema import Schema, read_schema
from restow.apimachinery.structural.structure import structural_problems
from restow.apimachinery.structural.validate import schema_problems
from tests.unit.apimachinery.structural.twins import (
    Making,
    Raw,
    twin_default,
    twin_embedded,
    twin_lists,
    twin_nulls,
    twin_prune,
    twin_valid,
)

SEEDS = st.integers(0, 2**64)
CASES_PER_SEED = 20


def coerce_slowly(obj: dict[str, Any], schema: Schema) -> list[str]:
    """Coerce an object without the fast pass."""
    drop_nulls(obj, schema)
    apply_defaults(obj, schema)
    return prune(obj, schema)


def cases(seed: int) -> Iterator[tuple[Raw, Raw]]:
    """Generate schemas, each with an object."""
    making = Making(seed)
    for _ in range(CASES_PER_SEED):
        yield making.case()


@given(SEEDS)
def test_generated_schemas_are_structural_but_for_names_of_restrictions(seed: int) -> None:
    """The generator produces the schemas that the other tests need."""
    for raw, _ in cases(seed):
        why = {cause.message for cause in structural_problems(read_schema(raw), "s")}
        assert all("because it is defined in" in each for each in why)


@given(SEEDS)
def test_each_step_matches_its_rules(seed: int) -> None:
    """Nulls, defaults and pruning each match their reference implementation."""
    for raw, obj in cases(seed):
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


@given(SEEDS)
def test_the_fast_pass_equals_the_slow_one_on_valid_objects(seed: int) -> None:
    """The compiled pass may skip only values that validation rejects anyway."""
    for raw, obj in cases(seed):
        schema = read_schema(raw)
        coercion = Coercion(schema)
        quick, slow = copy.deepcopy(obj), copy.deepcopy(obj)
        told, expected = coercion(quick), coerce_slowly(slow, schema)
        if twin_valid(slow, raw) or twin_valid(quick, raw):
            assert quick == slow
            assert told == expected


@given(SEEDS)
def test_settled_objects_do_not_change(seed: int) -> None:
    """If the library reports that an object is settled, coercion does not change it."""
    for raw, obj in cases(seed):
        schema = read_schema(raw)
        is_settled = compile_settled(schema)
        before = obj
        for _ in range(2):
            value = copy.deepcopy(before)
            told = coerce_slowly(value, schema)
            if is_settled(before):
                assert told == []
                assert value == before
            # coerce again from the settled value, unless its defaults are not settled
            before = value


@given(SEEDS)
def test_stored_objects_are_coerced(seed: int) -> None:
    """If `coerce_stored` returns False, coercion would change nothing; otherwise it is complete."""
    for raw, obj in cases(seed):
        compiled = CompiledSchema(read_schema(raw))
        settled, coerced = copy.deepcopy(obj), copy.deepcopy(obj)
        compiled.coerce(coerced)
        if not compiled.coerce_stored(settled):
            assert settled == obj
        assert settled == coerced


@given(SEEDS)
def test_embedded_objects_and_lists_agree_with_their_twins(seed: int) -> None:
    """An object is accepted exactly if schema, embedded objects, sets and maps are valid."""
    for raw, obj in cases(seed):
        schema = read_schema(raw)
        expected, is_right = twin_embedded(obj, raw)
        value = copy.deepcopy(obj)
        is_unsettled = has_unsettled(value, schema)
        coerce_embedded(value, schema)
        assert value == expected
        assert is_unsettled == (value != obj)
        assert (not embedded_problems(value, schema)) == is_right
        assert (not list_type_problems(value, schema)) == twin_lists(value, raw)
        compiled = CompiledSchema(schema)
        accepted = not compiled.problems(value).causes
        assert accepted == (is_right and twin_lists(value, raw) and twin_valid(value, raw))
        if compiled.accepts(value):
            assert accepted


@given(SEEDS)
def test_validation_agrees_with_its_twin(seed: int) -> None:
    """Valid objects have no errors, and the library accepts nothing else."""
    for raw, obj in cases(seed):
        schema = read_schema(raw)
        problems = schema_problems(obj, schema)
        assert (not problems) == twin_valid(obj, raw)
        if compile_fast_check(schema)(obj):
            assert not problems


@given(SEEDS)
def test_a_compiled_schema_answers_without_raising(seed: int) -> None:
    """Every input gets a verdict, and validating an accepted object again changes nothing."""
    for raw, obj in cases(seed):
        compiled = CompiledSchema(read_schema(raw))
        compiled.coerce(obj)
        verdict = compiled.problems(obj)
        assert all(cause.message for cause in verdict.causes)
        # A default that does not match is rejected with its schema, so it may change once more
        # here.
        if not verdict.causes and compiled.accepts(obj):
            before = copy.deepcopy(obj)
            compiled.coerce(obj)
            assert not compiled.problems(obj).causes or obj != before
