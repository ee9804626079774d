# (Python 3.11 has no `typing.override`.)
"""Parses selectors to requirements, in one pass and within limits.

Syntax errors are a 400 that states what was found and what was expected.

Not here: matching of requirements (`selectors`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from restow.apimachinery.name_formats import label_value_problem, qualified_name_problem
from restow.apimachinery.status import BadRequest, bad_request

SELECTOR_LENGTH_MAX: Final = 64 * 1024
REQUIREMENTS_MAX: Final = 1000

_TOKEN: Final = re.compile(r"[ \t\r\n]*(?:(==|!=|[=!(),<>])|([^ \t\r\n=!(),<>]+))")
_END: Final = ""
_INT64_MAX: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,32}")


class Requirement(NamedTuple):
    """One requirement. Values are sorted; requirements for existence have none."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                # A single empty value needs a comma, or it would be no value.
                return f"{self.key} {self.operator} ({','.join(self.values) or ','})"
            case _:
                return f"{self.key}{self.operator}{self.values[0]}"


def read_label_requirements(text: str) -> list[Requirement]:
    """Parse `a=b,c in (d,e),!f`."""
    _check_length(text)
    return _Parser(text).requirements()


def read_field_requirements(text: str) -> list[Requirement]:
    """Parse `metadata.name=a,status.phase!=b`; a backslash escapes `,` and `=`."""
    _check_length(text)
    terms = [term for term in _split_terms(text) if term]
    check_count(len(terms))
    return [_field_requirement(term, text) for term in terms]


class _Parser:
    """Parses one label selector, token by token, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._tokens = self._scan(text)
        self._next = next(self._tokens)

    @staticmethod
    def _scan(text: str) -> Iterator[tuple[str, str]]:
        """Iterate over pairs of symbol and name, one of them empty; both are empty at the end."""
        for found in _TOKEN.finditer(text):
            yield found[1] or "", found[2] or ""
        while True:
            yield _END, ""

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if self._next == (_END, ""):
            return found
        while True:
            found.append(self._requirement())
            check_count(len(found))
            symbol, name = self._take()
            if (symbol, name) == (_END, ""):
                return found
            if symbol != ",":
                raise self._unexpected(symbol or name, "',' or 'end of string'")

    def _take(self) -> tuple[str, str]:
        taken = self._next
        self._next = next(self._tokens)
        return taken

    def _requirement(self) -> Requirement:
        negated = self._next[0] == "!"
        if negated:
            self._take()
        symbol, key = self._take()
        if not key:
            raise self._unexpected(symbol, "!, identifier, or 'end of string'")
        if negated:
            return requirement_of(key, "!", [])
        if self._next in ((_END, ""), (",", "")):
            return requirement_of(key, "exists", [])
        symbol, name = self._take()
        operator = symbol or name
        if operator in ("in", "notin"):
            return requirement_of(key, operator, self._values())
        if operator in ("=", "==", "!=", "<", ">") and not name:
            return requirement_of(key, operator, [self._value()])
        raise self._unexpected(operator, "in, notin, =, ==, !=, <, >")

    def _value(self) -> str:
        if self._next in ((_END, ""), (",", "")):
            return ""
        return self._name()

    def _name(self) -> str:
        symbol, name = self._take()
        if not name:
            raise self._unexpected(symbol, "identifier")
        return name

    def _values(self) -> list[str]:
        """Parse a list in parentheses; between two commas there may be an empty value."""
        if (symbol := self._take()[0]) != "(":
            raise self._unexpected(symbol, "'('")
        if self._next[0] == ")":
            self._take()
            return []
        found = []
        while True:
            found.append("" if self._next[0] in (",", ")") else self._name())
            symbol, name = self._take()
            if symbol == ")":
                return found
            if symbol != ",":
                raise self._unexpected(symbol or name, "',' or ')'")

    def _unexpected(self, found: str, wanted: str) -> BadRequest:
        return bad_request(
            f"unable to parse requirement: found '{found[:256]}', expected: {wanted}"
        )


def requirement_of(key: str, operator: str, values: list[str]) -> Requirement:
    """Return a requirement with a valid label key and values; BadRequest otherwise."""
    problem = qualified_name_problem(key)
    if problem:
        raise bad_request(
            f'unable to parse requirement: key: Invalid value: "{key[:256]}": {problem}'
        )
    if operator in ("in", "notin") and not values:
        raise bad_request(
            f"unable to parse requirement: values: for '{operator}', the set can't be empty"
        )
    if operator in ("exists", "!") and values:
        raise bad_request(
            "unable to parse requirement: values: "
            "values set must be empty for exists and does not exist"
        )
    if operator in ("<", ">") and int64(values[0]) is None:
        raise bad_request(
            f"unable to parse requirement: values: for '{operator}', the value must be an integer"
        )
    for value in values:
        if problem := label_value_problem(value):
            raise bad_request(
                f'unable to parse requirement: values: Invalid value: "{value[:256]}": {problem}'
            )
    return Requirement(key, operator, tuple(sorted(set(values))))


def int64(text: str) -> int | None:
    """Parse a 64-bit integer; None if it is invalid."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64_MAX - 1 <= number <= _INT64_MAX else None


def _split_terms(text: str) -> list[str]:
    """Split at commas that are not escaped; escapes are kept for `_unescaped`."""
    if "\\" not in text:
        return text.split(",")
    return [found[0] for found in re.finditer(r"(?:[^,\\]|\\.?)+", text, flags=re.DOTALL)]


_FIELD_TERM: Final = re.compile(r"((?:[^=!]|!(?!=))*)(!=|==|=)(.*)", flags=re.DOTALL)


def _field_requirement(term: str, whole: str) -> Requirement:
    found = _FIELD_TERM.fullmatch(term)
    if found is None:
        raise bad_request(f"invalid selector: '{whole[:256]}'; can't understand '{term[:256]}'")
    field, operator, value = found.groups()
    return Requirement(field, "!=" if operator == "!=" else "=", (_unescaped(value),))


def _unescaped(value: str) -> str:
    if "\\" not in value and "=" not in value:
        return value
    found = re.fullmatch(r"(?:[^\\=,]|\\[\\=,])*", value, flags=re.DOTALL)
    if found is None:
        raise bad_request(
            f"invalid field selector: in '{value[:256]}', a backslash must precede each of "
            "'\\', ',' and '=', and nothing else"
        )
    return re.sub(r"\\(.)", r"\1", value)


def _check_length(text: str) -> None:
    if len(text) > SELECTOR_LENGTH_MAX:
        raise bad_request(f"a selector may have at most {SELECTOR_LENGTH_MAX} characters")


def check_count(count: int) -> None:
    """Raise BadRequest if a selector has too many requirements."""
    if count > REQUIREMENTS_MAX:
        raise bad_request(f"a selector may have at most {REQUIREMENTS_MAX} requirements")
