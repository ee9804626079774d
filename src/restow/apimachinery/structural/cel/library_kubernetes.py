"""CEL functions that Kubernetes adds: quantities, semantic versions, named formats.

Each kind of value is a small class with its CEL name. Not here: network addresses
(`library_network`), and the authorizer, which schema rules do not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

from restow.apimachinery import name_formats, quantity
from restow.apimachinery.structural.cel.functions import (
    REGEX,
    TRAVERSAL,
    Overload,
    ceil,
    member,
    traversal,
)
from restow.apimachinery.structural.cel.types import (
    BOOL,
    DOUBLE,
    FORMAT,
    INT,
    QUANTITY,
    SEMVER,
    STRING,
    list_of,
    optional_of,
)
from restow.apimachinery.structural.cel.values import NONE, CelError, some
from restow.apimachinery.structural.formats import format_check
from restow.apimachinery.type_values import INT64_MAX, INT64_MIN

_VERSION_LENGTH_MAX: Final = 256


@dataclass(slots=True, frozen=True)
class Quantity:
    """A quantity, by its value: `1k` equals `1000`."""

    CEL_NAME: ClassVar = "kubernetes.Quantity"
    value: Fraction


@dataclass(slots=True, frozen=True)
class Semver:
    """A semantic version; build metadata after `+` is ignored."""

    CEL_NAME: ClassVar = "kubernetes.Semver"
    core: tuple[int, int, int]
    pre: tuple[tuple[int, int, str], ...]

    def order(self) -> Any:
        """Return a sort key: a pre-release sorts before its release, numbers before words."""
        return (self.core, not self.pre, self.pre)


@dataclass(slots=True, frozen=True)
class Format:
    """A named format of strings."""

    CEL_NAME: ClassVar = "kubernetes.NamedFormat"
    name: str
    problems: Callable[[str], list[str]]
    pattern_size: int


def holds(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    """Return a check whether a string can be parsed."""

    def test(text: str) -> bool:
        try:
            parse(text)
        except CelError:
            return False
        return True

    return test


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(quantity.parse(text))
    except ValueError as error:
        raise CelError(str(error)) from None


def _is_integer(value: Quantity) -> bool:
    return value.value.denominator == 1 and INT64_MIN <= value.value <= INT64_MAX


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise CelError("cannot convert value to integer")
    return int(value.value)


def _compare(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


_NUMBER: Final = r"(0|[1-9][0-9]*)"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)


def _normalized(text: str) -> str:
    """Remove a leading `v` and leading zeros, and add missing numbers."""
    core, rest = re.fullmatch(r"([^+-]*)(.*)", text.removeprefix("v"), re.DOTALL).groups()  # type: ignore[union-attr]
    numbers = core.split(".")
    if len(numbers) < 3 and rest:
        raise CelError("Short version cannot contain PreRelease/Build meta data")
    numbers += ["0"] * (3 - len(numbers))
    return ".".join(each.lstrip("0") or "0" if each else each for each in numbers) + rest


def _semver(text: str, normalize: bool = False) -> Semver:  # noqa: FBT001, FBT002 - as CEL calls it
    if len(text) > _VERSION_LENGTH_MAX:
        raise CelError("Invalid version: too long")
    match = _SEMVER.fullmatch(_normalized(text) if normalize else text)
    if match is None:
        raise CelError("No Major.Minor.Patch elements found")
    major, minor, patch, pre = match.groups()
    core = (int(major), int(minor), int(patch))
    if max(core) > INT64_MAX:
        raise CelError("Invalid version: number out of range")
    parts = []
    for each in pre.split(".") if pre else ():
        if each.isdecimal():
            if len(each) > 1 and each[0] == "0":
                raise CelError(
                    f'Numeric PreRelease version must not contain leading zeroes "{each}"'
                )
            parts.append((0, int(each), ""))
        else:
            parts.append((1, 0, each))
    return Semver(core, tuple(parts))


def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002 - as CEL calls it
    return holds(lambda each: _semver(each, normalize))(text)


def _named_rule(
    rule: name_formats.NameRule, *, is_prefix: bool = False
) -> Callable[[str], list[str]]:
    def problems(text: str) -> list[str]:
        found = name_formats.prefix_problem(text, rule) if is_prefix else rule(text)
        return [found] if found else []

    return problems


def _formatted(name: str, message: str) -> Callable[[str], list[str]]:
    check = format_check(name)
    assert check is not None
    return lambda text: [] if check(text) else [message]


_FORMATS: Final[dict[str, Format]] = {
    cel: Format(name, problems, size)
    for cel, name, problems, size in (
        ("dns1123Label", "DNS1123Label", _named_rule(name_formats.dns_label_problem), 30),
        ("dns1123Subdomain", "DNS1123Subdomain", _named_rule(name_formats.subdomain_problem), 60),
        ("dns1035Label", "DNS1035Label", _named_rule(name_formats.dns_1035_label_problem), 30),
        ("qualifiedName", "QualifiedName", _named_rule(name_formats.qualified_name_problem), 60),
        (
            "dns1123LabelPrefix",
            "DNS1123LabelPrefix",
            _named_rule(name_formats.dns_label_problem, is_prefix=True),
            30,
        ),
        (
            "dns1123SubdomainPrefix",
            "DNS1123SubdomainPrefix",
            _named_rule(name_formats.subdomain_problem, is_prefix=True),
            60,
        ),
        (
            "dns1035LabelPrefix",
            "DNS1035LabelPrefix",
            _named_rule(name_formats.dns_1035_label_problem, is_prefix=True),
            30,
        ),
        ("labelValue", "LabelValue", _named_rule(name_formats.label_value_problem), 40),
        ("uri", "URI", _formatted("uri", "invalid URI for request"), 1000),
        ("uuid", "uuid", _formatted("uuid", "does not match the UUID format"), 86),
        ("byte", "byte", _formatted("byte", "invalid base64"), 90),
        ("date", "date", _formatted("date", "invalid date"), 88),
        ("datetime", "datetime", _formatted("datetime", "invalid datetime"), 88),
    )
}


def _validate(format_: Format, text: str) -> Any:
    problems = format_.problems(text)
    return some(problems) if problems else NONE


def _validate_cost(args: tuple[Any, ...], _: Any) -> int:
    return ceil((1.0 + len(args[1])) * TRAVERSAL) * ceil(args[0].pattern_size * REGEX)


def _format_functions() -> list[Overload]:
    found = [
        Overload(f"format.{name}", f"format.{name}", (), FORMAT, lambda each=each: each)
        for name, each in _FORMATS.items()
    ]

    def named(name: str) -> Any:
        format_ = _FORMATS.get(name)
        return some(format_) if format_ is not None else NONE

    found.append(Overload("format.named", "format-named", (STRING,), optional_of(FORMAT), named))
    found.append(
        member(
            "validate",
            "format-validate",
            (FORMAT, STRING),
            optional_of(list_of(STRING)),
            _validate,
            _validate_cost,
        )
    )
    return found


_READ: Final = traversal()

KUBERNETES: Final[list[Overload]] = [
    Overload("quantity", "string_to_quantity", (STRING,), QUANTITY, _quantity, cost=_READ),
    Overload("isQuantity", "is_quantity_string", (STRING,), BOOL, quantity.is_quantity, cost=_READ),
    member("sign", "quantity_sign", (QUANTITY,), INT, lambda each: _compare(each.value, 0)),
    member("isInteger", "quantity_is_integer", (QUANTITY,), BOOL, _is_integer),
    member("asInteger", "quantity_get_int", (QUANTITY,), INT, _as_integer),
    member(
        "asApproximateFloat", "quantity_get_float", (QUANTITY,), DOUBLE, lambda q: float(q.value)
    ),
    member(
        "isGreaterThan",
        "quantity_is_greater_than",
        (QUANTITY, QUANTITY),
        BOOL,
        lambda one, other: one.value > other.value,
    ),
    member(
        "isLessThan",
        "quantity_is_less_than",
        (QUANTITY, QUANTITY),
        BOOL,
        lambda one, other: one.value < other.value,
    ),
    member(
        "compareTo",
        "quantity_compare_to",
        (QUANTITY, QUANTITY),
        INT,
        lambda one, other: _compare(one.value, other.value),
    ),
    member(
        "add",
        "quantity_add",
        (QUANTITY, QUANTITY),
        QUANTITY,
        lambda one, other: Quantity(one.value + other.value),
    ),
    member(
        "add",
        "quantity_add_int",
        (QUANTITY, INT),
        QUANTITY,
        lambda one, number: Quantity(one.value + number),
    ),
    member(
        "sub",
        "quantity_sub",
        (QUANTITY, QUANTITY),
        QUANTITY,
        lambda one, other: Quantity(one.value - other.value),
    ),
    member(
        "sub",
        "quantity_sub_int",
        (QUANTITY, INT),
        QUANTITY,
        lambda one, number: Quantity(one.value - number),
    ),
    Overload("semver", "string_to_semver", (STRING,), SEMVER, _semver, cost=_READ),
    Overload("semver", "string_bool_to_semver", (STRING, BOOL), SEMVER, _semver, cost=_READ),
    Overload("isSemver", "is_semver_string", (STRING,), BOOL, _is_semver, cost=_READ),
    Overload("isSemver", "is_semver_string_bool", (STRING, BOOL), BOOL, _is_semver, cost=_READ),
    member("major", "semver_major", (SEMVER,), INT, lambda version: version.core[0]),
    member("minor", "semver_minor", (SEMVER,), INT, lambda version: version.core[1]),
    member("patch", "semver_patch", (SEMVER,), INT, lambda version: version.core[2]),
    member(
        "isGreaterThan",
        "semver_is_greater_than",
        (SEMVER, SEMVER),
        BOOL,
        lambda one, other: one.order() > other.order(),
    ),
    member(
        "isLessThan",
        "semver_is_less_than",
        (SEMVER, SEMVER),
        BOOL,
        lambda one, other: one.order() < other.order(),
    ),
    member(
        "compareTo",
        "semver_compare_to",
        (SEMVER, SEMVER),
        INT,
        lambda one, other: _compare(one.order(), other.order()),
    ),
    *_format_functions(),
]
