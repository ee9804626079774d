"""The part of JSONPath that printer columns use: keys, indexes, slices, `*`, filters on a member.

    .spec.replicas    .spec['a.b']    .status.list[0].x    .status.conditions[?(@.type=="R")].status

A path is parsed once and then only evaluated, so a row costs a few dictionary look-ups. `..name`
searches all descendants, up to a maximum number of values.

Not here: scripts, and filters that compare two members. No column needs them.
"""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

# Limits on a path that a user declares, and on its results.
PATH_CHARS_MAX: Final = 2048
STEPS_MAX: Final = 64
FOUND_MAX: Final = 1000
# Values that `..name` visits.
VISITED_MAX: Final = 10_000


class BadPath(ValueError):
    """The text is not a path in the supported syntax."""


@dataclass(frozen=True, slots=True)
class _Key:
    name: str

    def apply(self, value: object, found: list[object]) -> None:
        if isinstance(value, dict) and self.name in value:
            found.append(value[self.name])


@dataclass(frozen=True, slots=True)
class _Index:
    position: int

    def apply(self, value: object, found: list[object]) -> None:
        if isinstance(value, list) and -len(value) <= self.position < len(value):
            found.append(value[self.position])


@dataclass(frozen=True, slots=True)
class _Slice:
    start: int | None
    stop: int | None
    step: int

    def apply(self, value: object, found: list[object]) -> None:
        if isinstance(value, list):
            found.extend(value[self.start : self.stop : self.step][:FOUND_MAX])


@dataclass(frozen=True, slots=True)
class _Union:
    choices: tuple[_Key | _Index, ...]

    def apply(self, value: object, found: list[object]) -> None:
        for each in self.choices:
            each.apply(value, found)


@dataclass(frozen=True, slots=True)
class _Below:
    """A key in any descendant, nearest first."""

    key: _Key

    def apply(self, value: object, found: list[object]) -> None:
        pending, done = [value], 0
        while done < len(pending):
            each = pending[done]
            done += 1
            self.key.apply(each, found)
            if len(found) >= FOUND_MAX or len(pending) >= VISITED_MAX:
                continue
            if isinstance(each, dict):
                pending += list(each.values())[:VISITED_MAX]
            elif isinstance(each, list):
                pending += each[:VISITED_MAX]


@dataclass(frozen=True, slots=True)
class _Every:
    def apply(self, value: object, found: list[object]) -> None:
        if isinstance(value, list):
            found.extend(value[:FOUND_MAX])
        elif isinstance(value, dict):
            found.extend(list(value.values())[:FOUND_MAX])


@dataclass(frozen=True, slots=True)
class _Filter:
    keys: tuple[str, ...]
    operator: str  # empty: the member must exist
    literal: object

    def apply(self, value: object, found: list[object]) -> None:
        if isinstance(value, list):
            found.extend(member for member in value[:FOUND_MAX] if self._matches(member))

    def _matches(self, member: object) -> bool:
        for key in self.keys:
            if not isinstance(member, dict) or key not in member:
                return False
            member = member[key]
        if not self.operator:
            return True
        if self.operator in _ORDERS:
            return _in_order(member, self.literal, self.operator)
        # In Python True == 1, in JSON it is not.
        same = type(member) is type(self.literal) and member == self.literal
        return same if self.operator == "==" else not same


_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _in_order(one: object, other: object, sign: str) -> bool:
    """Whether two numbers or two strings are in this order; False for values of other types."""
    for kinds in ((int, float), (str,)):
        if type(one) in kinds and type(other) in kinds:
            return _ORDERS[sign](one, other)
    return False


_Step = _Key | _Index | _Slice | _Union | _Below | _Every | _Filter


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A parsed path."""

    steps: tuple[_Step, ...]

    def find(self, value: object) -> list[object]:
        """All values at the path, at most FOUND_MAX."""
        values = [value]
        for step in self.steps:
            found: list[object] = []
            for each in values:
                step.apply(each, found)
                if len(found) >= FOUND_MAX:
                    del found[FOUND_MAX:]
                    break
            if not found:
                return []
            values = found
        return values


_NAME: Final = r"(?:[^\s.\[\]'\"{}()?@*,:\\=!<>&|]|\\.)+"
_QUOTED: Final = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_NUMBER: Final = r"-?\d{1,9}"
_STEP: Final = re.compile(
    rf"""
      \.\.(?P<below>{_NAME})
    | \.(?P<name>{_NAME})
    | \.(?P<every>\*)
    | \[\s*(?P<index>{_NUMBER})\s*\]
    | \[\s*(?P<slice>(?:{_NUMBER})?\s*:\s*(?:{_NUMBER})?(?:\s*:\s*\d{{1,9}})?)\s*\]
    | \[\s*(?P<union>(?:{_QUOTED}|{_NUMBER})(?:\s*,\s*(?:{_QUOTED}|{_NUMBER}))+)\s*\]
    | \[\s*(?P<all>\*)\s*\]
    | \[\s*(?P<quoted>{_QUOTED})\s*\]
    | \[\?\(\s*@(?P<keys>(?:\.{_NAME}|\[(?:{_QUOTED})\])+)
        (?:\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<literal>{_QUOTED}|true|false|-?\d{{1,18}}(?:\.\d{{1,18}})?)
        )?\s*\)\]
    """,
    re.VERBOSE | re.ASCII,
)
_CHOICE: Final = re.compile(rf"{_QUOTED}|{_NUMBER}", re.ASCII)
_INNER: Final = re.compile(rf"\.(?P<name>{_NAME})|\[(?P<quoted>{_QUOTED})\]", re.ASCII)


def parse_path(path: str) -> JsonPath:
    """Parse a path in the form `.spec.x`, with or without braces and a leading `$`."""
    if len(path) > PATH_CHARS_MAX:
        raise BadPath(f"a path has at most {PATH_CHARS_MAX} characters")
    body = path.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1].strip()
    body = body.removeprefix("$")
    if body in ("", "."):
        raise BadPath("the path is empty")
    steps: list[_Step] = []
    at = 0
    while at < len(body):
        found = _STEP.match(body, at)
        if found is None:
            raise BadPath(f"cannot read the path at {body[at : at + 20]!r}")
        if len(steps) == STEPS_MAX:
            raise BadPath(f"a path has at most {STEPS_MAX} steps")
        steps.append(_step(found))
        at = found.end()
    return JsonPath(tuple(steps))


def _step(found: re.Match[str]) -> _Step:
    parts = found.groupdict()
    if parts["name"] is not None:
        return _Key(_plain(parts["name"]))
    if parts["quoted"] is not None:
        return _Key(_plain(parts["quoted"][1:-1]))
    if parts["index"] is not None:
        return _Index(int(parts["index"]))
    if parts["slice"] is not None:
        return _slice(parts["slice"])
    if parts["union"] is not None:
        return _Union(tuple(_choice(each) for each in _CHOICE.findall(parts["union"])))
    if parts["below"] is not None:
        return _Below(_Key(_plain(parts["below"])))
    if parts["keys"] is not None:
        keys = tuple(_inner_key(each) for each in _INNER.finditer(parts["keys"]))
        return _Filter(keys, parts["operator"] or "", _literal(parts["literal"]))
    return _Every()


def _slice(text: str) -> _Slice:
    start, stop, *step = (int(each) if each.strip() else None for each in text.split(":"))
    if step == [0]:
        raise BadPath("the step of a slice must be above 0")
    return _Slice(start, stop, (step[0] if step else None) or 1)


def _choice(text: str) -> _Key | _Index:
    return _Key(_plain(text[1:-1])) if text[0] in "'\"" else _Index(int(text))


def _inner_key(found: re.Match[str]) -> str:
    name, quoted = found["name"], found["quoted"]
    return _plain(name) if name is not None else _plain(quoted[1:-1])


def _plain(name: str) -> str:
    """Remove the escapes: a dot inside a name has one, as in `kubernetes\\.io/x`."""
    return re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)


def _literal(word: str | None) -> object:
    if word is None:
        return None
    if word in ("true", "false"):
        return word == "true"
    if word[0] in "'\"":
        return _plain(word[1:-1])
    return float(word) if "." in word else int(word)
