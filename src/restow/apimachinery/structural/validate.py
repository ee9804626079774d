"""Validates objects against a schema, with Kubernetes' messages and paths.

This is the slow and authoritative validator; `fast_validator` accepts most objects without it. All
errors are found, up to a limit. Some bugs of Kubernetes are not reproduced: accepting a list for a
string with a format, almost integral numbers as integers, and truncating the bounds of integers.

Not here: lists that are sets or maps (`listtypes`), CEL rules, and the object's metadata.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Any, Final, NamedTuple

from restow.apimachinery import field_errors
from restow.apimachinery.json_values import json_equal
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural.formats import format_check
from restow.apimachinery.structural.patterns import compile_pattern
from restow.apimachinery.structural.ratchet import Correlated
from restow.apimachinery.structural.schema import Schema
from restow.apimachinery.type_values import (
    FLOAT_EXACT_MAX,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
)

# Maximum reported errors per object.
PROBLEMS_MAX: Final = 100

# Kubernetes reports errors of anyOf, oneOf and allOf without a path, as this text.
NO_PATH: Final = "<nil>"

_FLOAT32_MAX: Final = 3.4028234663852886e38
_MULTIPLE_PRECISION: Final = 1e-9


def schema_problems(
    value: Any, schema: Schema, *, path: str = "", correlated: Correlated | None = None
) -> list[StatusCause]:
    """Return the errors of a value; those of unchanged parts are ignored (ratcheting).

    `correlated` holds the value and the old one; None on create.
    """
    found = _check(value, schema, "", correlated)
    causes: dict[tuple[str, str], StatusCause] = {}
    for problem in found.problems[:PROBLEMS_MAX]:
        cause = problem.cause
        where = cause.field.removeprefix(".")
        if path and cause.field != NO_PATH:
            where = f"{path}.{where}" if where else path
        elif path:
            where = path
        causes.setdefault((problem.text, where), cause._replace(field=where))
    return list(causes.values())


class _Problem(NamedTuple):
    text: str
    cause: StatusCause


class _Found(NamedTuple):
    """Errors, and the number of successful checks.

    If all alternatives fail, the errors of the one with the most successful checks are reported.
    """

    problems: list[_Problem]
    matches: int


def _check(value: Any, schema: Schema, path: str, old: Correlated | None) -> _Found:
    # Ignore errors of unchanged parts: they existed before.
    if old is not None and old.is_unchanged():
        return _Found([], 1)
    return _check_here(value, schema, path, old)


def _check_here(value: Any, schema: Schema, path: str, old: Correlated | None) -> _Found:
    problems: list[_Problem] = []
    matches = 1
    types = _types(schema)
    if value is None:
        if types and not schema.nullable:
            problems.append(_wrong_type(path, ",".join(types), "null"))
        problems += _enum_problems(value, schema, path)
        return _Found(problems, matches)
    if types or _format(schema):
        found = _type_problems(value, schema, types, path)
        problems += found
        matches += 1 if found else 2
    below = _junctors(value, schema, path)
    problems += below.problems
    matches += below.matches + 2
    match value:
        case str():
            problems += _text_problems(value, schema, path)
            matches += 1
        case bool():
            pass
        case int() | float():
            problems += _number_problems(value, schema, path)
            matches += 2
        case list():
            found_in = _items(value, schema, path, old)
            problems += found_in.problems
            matches += found_in.matches + 2
        case _:
            pass
    problems += _enum_problems(value, schema, path)
    matches += 1
    if type(value) is dict:
        found_in = _members(value, schema, path, old)
        problems += found_in.problems
        matches += found_in.matches + 1
    return _Found(problems, matches)


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.int_or_string:
        return ("integer", "string")
    return (schema.type,) if schema.type else ()


def _format(schema: Schema) -> str:
    """Return the format if it applies to the type; else the empty string."""
    match schema.type:
        case "integer":
            return schema.format if schema.format in ("int32", "int64") else ""
        case "number":
            return schema.format if schema.format in ("float", "double") else ""
        case "" | "string":
            return schema.format if format_check(schema.format) is not None else ""
    return ""


def _type_of(value: Any) -> tuple[str, str]:
    """Return the JSON type of a value, and the format that Kubernetes assumes for it."""
    match value:
        case bool():
            return "boolean", ""
        case str():
            return "string", ""
        case int():
            return "integer", "int64"
        case float():
            return "number", "float64"
        case list():
            return "array", ""
    return "object", ""


def _type_problems(value: Any, schema: Schema, types: tuple[str, ...], path: str) -> list[_Problem]:
    found, found_format = _type_of(value)
    if found in types or (found == "integer" and "number" in types):
        return []
    # Beyond this limit a float is not exact.
    is_whole = found == "number" and value.is_integer() and abs(value) < FLOAT_EXACT_MAX
    if not types or (is_whole and "integer" in types):
        return []
    if (wanted := _format(schema)) and found not in ("string", "array"):
        return [_wrong_type(path, wanted, found_format)]
    return [_wrong_type(path, ",".join(types), found)]


def _wrong_type(path: str, wanted: str, found: str) -> _Problem:
    text = f"{path} in body must be of type {wanted}: {field_errors.shown(found)}"
    return _Problem(text, field_errors.type_invalid(path, found, text))


def _invalid(path: str, value: Any, text: str) -> _Problem:
    return _Problem(text, field_errors.invalid(path, value, text))


def _plain(text: str) -> _Problem:
    return _Problem(text, field_errors.invalid(NO_PATH, "", text))


def _text_problems(value: str, schema: Schema, path: str) -> list[_Problem]:
    problems = []
    if schema.max_length is not None and len(value) > schema.max_length:
        text = f"{path} in body should be at most {schema.max_length} chars long"
        problems.append(_Problem(text, field_errors.too_long(path, length_max=schema.max_length)))
    elif schema.min_length is not None and len(value) < schema.min_length:
        text = f"{path} in body should be at least {schema.min_length} chars long"
        problems.append(_invalid(path, value, text))
    elif schema.pattern and (wanted := _unmatched(schema.pattern, value)):
        problems.append(_invalid(path, value, f"{path} in body should match '{wanted}'"))
    check = format_check(schema.format) if schema.type in ("", "string") else None
    if check is not None and not check(value):
        problems.append(_wrong_format(path, schema.format, value))
    return problems


def _unmatched(pattern: str, value: str) -> str:
    """Return the pattern for the error message if it does not match; an invalid one never
    matches.
    """
    try:
        return "" if compile_pattern(pattern).found_in(value) else pattern
    except ValueError as error:
        return f"{pattern}, but pattern is invalid: {error}"


def _wrong_format(path: str, wanted: str, value: str) -> _Problem:
    text = f"{path} in body must be of type {wanted}: {field_errors.shown(value)}"
    return _Problem(text, field_errors.type_invalid(path, value, text))


def _number_problems(value: float, schema: Schema, path: str) -> list[_Problem]:
    problems = []
    if not _in_range(value, schema):
        format_ = _format(schema)
        kind = f"with format {format_}" if format_ else "(default format)"
        message = f"Checked value must be of type {schema.type} {kind} in {path}"
        problems.append(_plain(message))
    if (factor := schema.multiple_of) is not None:
        if factor <= 0:
            text = f"factor MultipleOf declared for {path} must be positive: {_number(factor)}"
            problems.append(_invalid(path, factor, text))
        elif not _is_multiple(value, factor):
            text = f"{path} in body should be a multiple of {_number(factor)}"
            problems.append(_invalid(path, value, text))
    if (low := schema.minimum) is not None:
        strict = schema.exclusive_minimum
        if value < low or (strict and value == low):
            than = "greater than" if strict else "greater than or equal to"
            problems.append(
                _invalid(path, value, f"{path} in body should be {than} {_number(low)}")
            )
    if (high := schema.maximum) is not None:
        strict = schema.exclusive_maximum
        if value > high or (strict and value == high):
            than = "less than" if strict else "less than or equal to"
            problems.append(
                _invalid(path, value, f"{path} in body should be {than} {_number(high)}")
            )
    return problems


def _in_range(value: float, schema: Schema) -> bool:
    if not isfinite(value):
        return False
    if schema.type == "integer":
        if schema.format == "int32":
            return INT32_MIN <= value <= INT32_MAX
        return INT64_MIN <= value <= INT64_MAX
    if schema.type == "number" and schema.format == "float":
        return abs(value) <= _FLOAT32_MAX
    return True


def _is_multiple(value: float, factor: float) -> bool:
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    # Compute with decimals: 0.3 is a multiple of 0.1, but not in binary floating point.
    exact = Decimal(str(value)) / Decimal(str(factor))
    return abs(exact - round(exact)) <= abs(exact) * Decimal(_MULTIPLE_PRECISION)


def _number(value: float) -> str:
    is_whole = float(value).is_integer() and abs(value) < 1e21
    return str(int(value) if is_whole else value)


def _enum_problems(value: Any, schema: Schema, path: str) -> list[_Problem]:
    if not schema.enum:
        return []
    if value is not None and any(json_equal(value, each) for each in schema.enum):
        return []
    message = [each if isinstance(each, str) else field_errors.shown(each) for each in schema.enum]
    text = f"{path} in body should be one of [{' '.join(message)}]"
    return [_Problem(text, field_errors.not_supported(path, value, message))]


def _items(value: list[Any], schema: Schema, path: str, old: Correlated | None) -> _Found:
    problems: list[_Problem] = []
    matches = 0
    if schema.items is not None:
        for index, item in enumerate(value):
            below = old.item(index) if old is not None else None
            found = _check(item, schema.items, f"{path}[{index}]", below)
            problems += found.problems
            matches += found.matches
            if len(problems) > PROBLEMS_MAX:
                break
    size = len(value)
    if schema.min_items is not None and size < schema.min_items:
        text = f"{path} in body should have at least {schema.min_items} items"
        problems.append(_invalid(path, size, text))
    if schema.max_items is not None and size > schema.max_items:
        text = f"{path} in body should have at most {schema.max_items} items"
        cause = field_errors.too_many(path, count=size, count_max=schema.max_items)
        problems.append(_Problem(text, cause))
    return _Found(problems, matches)


def _members(value: dict[str, Any], schema: Schema, path: str, old: Correlated | None) -> _Found:
    problems: list[_Problem] = []
    matches = 0
    size = len(value)
    if schema.min_properties is not None and size < schema.min_properties:
        text = f"{path} in body should have at least {schema.min_properties} properties"
        problems.append(_invalid(path, size, text))
    if schema.max_properties is not None and size > schema.max_properties:
        text = f"{path} in body should have at most {schema.max_properties} properties"
        cause = field_errors.too_many(path, count=size, count_max=schema.max_properties)
        problems.append(_Problem(text, cause))
    for name, member in value.items():
        known = schema.properties.get(name)
        if known is None:
            if schema.additional is False:
                text = f"{path}.{name} in body is a forbidden property"
                problems.append(_invalid(path, name, text))
            known = schema.additional_schema
            if known is None:
                continue
            where = f"{path}.{name}"
        else:
            where = f"{path}.{name}" if path else name
        # The stored object was converted, so its old version cannot be compared.
        is_meta = not path and name in ("apiVersion", "kind")
        below = old.member(name) if old is not None and not is_meta else None
        found = _check(member, known, where, below)
        problems += found.problems
        matches += found.matches
        if len(problems) > PROBLEMS_MAX:
            break
    for name in schema.required:
        if name not in value:
            where = f"{path}.{name}"
            problems.append(_Problem(f"{where} in body is required", field_errors.required(where)))
    return _Found(problems, matches)


def _junctors(value: Any, schema: Schema, path: str) -> _Found:
    """Check the junctors of a node. They restrict the whole value, so there is no ratcheting."""
    problems: list[_Problem] = []
    matches = 0
    quoted = field_errors.shown(path)
    if schema.any_of:
        found = [_check_here(value, each, path, None) for each in schema.any_of]
        good = [each for each in found if not each.problems]
        best = good[0] if good else max(found, key=lambda each: each.matches)
        if not good:
            problems.append(_plain(f"{quoted} must validate at least one schema (anyOf)"))
        problems += best.problems
        matches += best.matches
    if schema.one_of:
        found = [_check_here(value, each, path, None) for each in schema.one_of]
        good = [each for each in found if not each.problems]
        if len(good) != 1:
            message = f"Found {len(good)} valid alternatives" if good else "Found none valid"
            problems.append(
                _plain(f"{quoted} must validate one and only one schema (oneOf). {message}")
            )
        if not good:
            best = max(found, key=lambda each: each.matches)
            problems += best.problems
            matches += best.matches
        elif len(good) == 1:
            matches += good[0].matches
    if schema.all_of:
        found = [_check_here(value, each, path, None) for each in schema.all_of]
        for each in found:
            problems += each.problems
            matches += each.matches
        if any(each.problems for each in found):
            none = all(each.problems for each in found)
            message = ". None validated" if none else ""
            problems.append(_plain(f"{quoted} must validate all the schemas (allOf){message}"))
    none_of = schema.none_of
    if none_of is not None and not _check_here(value, none_of, path, None).problems:
        problems.append(_plain(f"{quoted} must not validate the schema (not)"))
    return _Found(problems, matches)
