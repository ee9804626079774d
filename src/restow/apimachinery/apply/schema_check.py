"""Checks applied values against their apply schema, with Kubernetes' error messages.

Not here: validation of objects, which checks far more and comes later in a write.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.apply.elements import element_text, quoted
from restow.apimachinery.apply.schema import BOOLEAN, NUMERIC, STRING, Elements, Members, SchemaNode

# Maximum reported problems of one value: a body may contain very many.
PROBLEMS_MAX: Final = 100
# Maximum characters of a value in an error message.
_SHOWN_MAX: Final = 200


class ApplySchemaError(ValueError):
    """A value does not match its schema; the message has Kubernetes' wording."""


def check(node: SchemaNode, value: Any, *, allows_duplicates: bool = False) -> None:
    """Raise ApplySchemaError if a value does not match a node."""
    checker = _Checker(allows_duplicates=allows_duplicates)
    checker.visit(node, value, "")
    if checker.problems:
        raise error_of(checker.problems)


def error_of(problems: list[str]) -> ApplySchemaError:
    """Combine problems into one error; each starts with its path."""
    if len(problems) == 1:
        return ApplySchemaError(problems[0])
    return ApplySchemaError("\n".join(["errors:", *(f"  {each}" for each in problems)]))


class _Checker:
    def __init__(self, *, allows_duplicates: bool) -> None:
        self.allows_duplicates = allows_duplicates
        self.problems: list[str] = []

    def add(self, path: str, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{path}: {problem}" if path else problem)

    def visit(self, node: SchemaNode, value: Any, path: str) -> None:
        kind = type(value)
        if value is None:
            return
        if kind is dict and node.members is not None:
            self.visit_members(node.members, value, path)
        elif kind is list and node.elements is not None:
            self.visit_items(node.elements, value, path)
        elif kind is not dict and kind is not list and node.scalar:
            if problem := _scalar_problem(node.scalar, value):
                self.add(path, problem)
        # The node does not allow this type: report the one that it expects.
        elif node.members is not None:
            self.add(path, f"expected map, got &{{{_shown(value)}}}")
        elif node.scalar:
            self.add(path, _scalar_problem(node.scalar, value))
        else:
            self.add(path, f"expected list, got &{{{_shown(value)}}}")

    def visit_members(self, members: Members, value: dict[str, Any], path: str) -> None:
        for name, member in value.items():
            node = members[name].node
            if node is None:
                self.add(f"{path}.{name}", "field not declared in schema")
                return
            if type(member) is not str or node.scalar != STRING:
                self.visit(node, member, f"{path}.{name}")

    def visit_items(self, elements: Elements, value: list[Any], path: str) -> None:
        node = elements.item
        seen = set()
        for index, item in enumerate(value):
            where = f"[{index}]"
            if elements.is_associative:
                try:
                    key = elements.element_of(item)
                except ValueError as error:
                    self.add(path, f"element {index}: {error}")
                    return
                where = element_text(key)
                if key in seen and not self.allows_duplicates:
                    self.add(path, f"duplicate entries for key {where}")
                seen.add(key)
            if node is not None:
                self.visit(node, item, path + where)


def _scalar_problem(scalar: str, value: Any) -> str:
    kind = type(value)
    if scalar == STRING:
        if kind is str:
            return ""
        return f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
    if scalar == NUMERIC:
        if kind is int or kind is float:
            return ""
        return f"expected numeric (int or float), got {_go_type(value)}"
    if scalar == BOOLEAN:
        return "" if kind is bool else f"expected boolean, got &{{{_shown(value)}}}"
    if kind is dict or kind is list:
        return f"expected any scalar, got &{{{_shown(value)}}}"
    return ""


def _go_type(value: Any) -> str:
    names = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")


def _shown(value: Any) -> str:
    """Format a value as Go's `%v` does, truncated."""
    return _shown_whole(value)[:_SHOWN_MAX]


def _shown_whole(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return str(value[:_SHOWN_MAX])
    if kind is dict:
        return "map[" + " ".join(f"{k}:{_shown_whole(value[k])}" for k in sorted(value)) + "]"
    if kind is list:
        return "[" + " ".join(map(_shown_whole, value)) + "]"
    return _plain(value, null="<nil>")


def _go_syntax(value: Any) -> str:
    """Format a value as Go's `%#v` does, truncated."""
    return _syntax_whole(value)[:_SHOWN_MAX]


def _syntax_whole(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return quoted(value[:_SHOWN_MAX])
    if kind is dict:
        pairs = ", ".join(f"{quoted(k)}:{_syntax_whole(value[k])}" for k in sorted(value))
        return f"map[string]interface {{}}{{{pairs}}}"
    if kind is list:
        return f"[]interface {{}}{{{', '.join(map(_syntax_whole, value))}}}"
    return _plain(value, null="interface {}(nil)")


def _plain(value: Any, *, null: str) -> str:
    if value is None:
        return null
    if type(value) is bool:
        return "true" if value else "false"
    return str(value)
