"""Type checker: resolves the names, types and overloads of an expression.

Schemas provide the types of `self` and `oldSelf`; a field that is not in the schema is a compile
error. Dynamic values are checked at runtime.

Not here: the syntax, and evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.conversions import text_to_duration, text_to_timestamp
from restow.apimachinery.structural.cel.environment import Environment
from restow.apimachinery.structural.cel.functions import Overload
from restow.apimachinery.structural.cel.nodes import (
    Call,
    CelNode,
    Conditional,
    Ident,
    ListLiteral,
    Literal,
    Logic,
    Macro,
    MapLiteral,
    Message,
    Select,
)
from restow.apimachinery.structural.cel.types import BOOL, DYN, INT, STRING, Declared, Type
from restow.apimachinery.structural.cel.values import CelError, Uint
from restow.apimachinery.structural.patterns import compile_pattern

PROBLEMS_MAX: Final = 20

# Names that denote types.
TYPE_NAMES: Final[dict[str, Type]] = {
    "bool": types.BOOL,
    "int": types.INT,
    "uint": types.UINT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "bytes": types.BYTES,
    "null_type": types.NULL,
    "type": types.type_of_type(DYN),
    "list": types.list_of(DYN),
    "map": types.map_of(DYN, DYN),
    "optional_type": types.optional_of(DYN),
}
_QUALIFIED_TYPES: Final[dict[str, Type]] = {
    each.name: each
    for each in (
        types.DURATION,
        types.TIMESTAMP,
        types.URL,
        types.IP,
        types.CIDR,
        types.QUANTITY,
        types.SEMVER,
    )
}
_LITERALS: Final[dict[type, Type]] = {
    bool: BOOL,
    int: INT,
    Uint: types.UINT,
    float: types.DOUBLE,
    str: STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}


@dataclass(slots=True, frozen=True)
class Variable:
    """The type of a variable, and its schema."""

    type: Type
    declared: Declared | None = None


class Checker:
    """Sets the types of an expression's nodes, and collects errors."""

    def __init__(self, environment: Environment, variables: dict[str, Variable]) -> None:
        self.environment = environment
        self.variables = dict(variables)
        self.problems: list[tuple[int, str]] = []
        self.used: set[str] = set()
        """Names of outer variables that the expression reads."""
        self._locals: list[str] = []

    def check(self, node: CelNode) -> Type:
        """Return the type of a node; dynamic after an error."""
        match node:
            case Literal():
                found = _LITERALS[type(node.value)]
            case Ident():
                found = self._ident(node)
            case Select():
                found = self._select(node)
            case Call():
                found = self._call(node)
            case Logic():
                for term in node.terms:
                    self._want(term, BOOL, "_&&_" if node.is_and else "_||_")
                found = BOOL
            case Conditional():
                found = self._conditional(node)
            case ListLiteral():
                found = self._list(node)
            case MapLiteral():
                found = self._map(node)
            case Macro():
                found = self._macro(node)
            case Message():
                found = self._fail(node.at, f"undeclared reference to '{node.name}'")
            case _:
                raise AssertionError(node)
        node.type = found
        return found

    def _fail(self, at: int, message: str) -> Type:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append((at, message))
        return DYN

    def _undeclared(self, at: int, name: str) -> Type:
        return self._fail(at, f"undeclared reference to '{name}' (in container '')")

    def _ident(self, node: Ident) -> Type:
        variable = self.variables.get(node.name)
        if variable is not None:
            if node.name not in self._locals:
                self.used.add(node.name)
            node.declared = variable.declared
            return variable.type
        if node.name in TYPE_NAMES:
            return types.type_of_type(TYPE_NAMES[node.name])
        return self._undeclared(node.at, node.name)

    def _select(self, node: Select) -> Type:
        name = qualified_name(node) or ""
        if name in _QUALIFIED_TYPES and not self._is_variable(name):
            return types.type_of_type(_QUALIFIED_TYPES[name])
        variable = self.variables.get(name)
        if variable is not None and name.split(".")[0] not in self._locals:
            self.used.add(name)
            node.variable = name
            return variable.type
        operand = self.check(node.operand)
        is_optional = operand.name == "optional_type"
        found = self._field(node, operand.params[0] if is_optional else operand)
        if node.is_test:
            return BOOL
        if node.is_optional or is_optional:
            return found if found.name == "optional_type" else types.optional_of(found)
        return found

    def _is_variable(self, name: str | None) -> bool:
        return name is not None and name.split(".")[0] in self.variables

    def _field(self, node: Select, operand: Type) -> Type:
        if operand.name == "object" and operand.declared is not None:
            below = operand.declared.fields.get(node.name)
            if below is None:
                return self._fail(node.at, f"undefined field '{node.name}'")
            node.declared = below
            return below.type
        if operand.name == "map":
            if node.operand.declared is not None:
                node.declared = node.operand.declared.item
            return operand.params[1]
        if operand.is_dyn:
            return DYN
        return self._fail(node.at, f"type '{operand}' does not support field selection")

    def _call(self, node: Call) -> Type:
        if node.target is not None:
            prefix = qualified_name(node.target)
            name = f"{prefix}.{node.function}"
            is_function = prefix is not None and bool(self.environment.overloads(name))
            if is_function and not self._is_variable(prefix):
                node.function, node.target = name, None
        is_member = node.target is not None
        args = ([node.target] if node.target is not None else []) + node.args
        given = tuple(self.check(each) for each in args)
        known = self.environment.overloads(node.function)
        if not known:
            return self._undeclared(node.at, node.function)
        result: Type | None = None
        for each in known:
            if each.is_member != is_member or len(each.params) != len(given):
                continue
            made = _fits(each, given)
            if made is not None:
                node.overloads.append(each)
                result = made if result is None or result == made else DYN
        if result is None:
            if any(each.is_dyn for each in given) and self.problems:
                return DYN
            given_text = (
                f"{given[0]}.({', '.join(map(str, given[1:]))})"
                if is_member
                else f"({', '.join(map(str, given))})"
            )
            return self._fail(
                node.at,
                f"found no matching overload for '{node.function}' applied to '{given_text}'",
            )
        self._check_constants(node, args)
        if node.function == "_[_]" and args[0].declared is not None:
            node.declared = args[0].declared.item
        elif node.function == "value" and args[0].declared is not None:
            node.declared = args[0].declared
        return result

    def _check_constants(self, node: Call, args: list[CelNode]) -> None:
        """Report constants that cannot be converted or compiled."""
        if not args or not isinstance(args[-1], Literal) or not isinstance(args[-1].value, str):
            return
        text = args[-1].value
        try:
            if node.function == "duration":
                text_to_duration(text)
            elif node.function == "timestamp":
                text_to_timestamp(text)
            elif node.function in ("matches", "find", "findAll"):
                compile_pattern(text)
        except (CelError, ValueError):
            kind = node.function if node.function in ("duration", "timestamp") else "matches"
            self._fail(args[-1].at, f"invalid {kind} argument")

    def _want(self, node: CelNode, wanted: Type, where: str) -> None:
        found = self.check(node)
        if not found.is_dyn and found != wanted:
            self._fail(node.at, f"expected type '{wanted}' but found '{found}' in '{where}'")

    def _conditional(self, node: Conditional) -> Type:
        condition = self.check(node.condition)
        yes, no = self.check(node.yes), self.check(node.no)
        joined = types.join(yes, no)
        if (not condition.is_dyn and condition != BOOL) or joined is None:
            given_text = f"({condition}, {yes}, {no})"
            return self._fail(
                node.at, f"found no matching overload for '_?_:_' applied to '{given_text}'"
            )
        if node.yes.declared is node.no.declared:
            node.declared = node.yes.declared
        return joined

    def _list(self, node: ListLiteral) -> Type:
        made: Type | None = None
        for index, item in enumerate(node.items):
            found = self.check(item)
            if index in node.optional:
                if found.name == "optional_type":
                    found = found.params[0]
                elif not found.is_dyn:
                    self._fail(
                        item.at, f"expected type 'optional_type({found})' but found '{found}'"
                    )
            made = self._joined(item, made, found, "list")
        return types.list_of(made if made is not None else types.A)

    def _map(self, node: MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for key_node, value_node, is_optional in node.entries:
            key = self._joined(key_node, key, self.check(key_node), "map")
            found = self.check(value_node)
            if is_optional and found.name == "optional_type":
                found = found.params[0]
            value = self._joined(value_node, value, found, "map")
        return types.map_of(key or types.A, value or types.B)

    def _joined(self, node: CelNode, known: Type | None, found: Type, where: str) -> Type:
        if known is None:
            return found
        joined = types.join(known, found)
        if joined is None:
            message = f"expected type '{known}' but found '{found}'"
            self._fail(node.at, message)
            return DYN
        del where
        return joined

    def _macro(self, node: Macro) -> Type:
        target = self.check(node.target)
        if node.kind in ("optMap", "optFlatMap"):
            return self._optional_macro(node, target)
        names = self._loop_variables(node, target)
        shadowed = {name: self.variables.get(name) for name in names}
        self.variables.update(names)
        self._locals.extend(names)
        found = [self.check(each) for each in node.args]
        for name, before in shadowed.items():
            self._locals.remove(name)
            if before is None:
                del self.variables[name]
            else:
                self.variables[name] = before
        # All arguments except the last one of a mapping are conditions.
        is_mapping = node.kind in ("map", "transformList", "transformMap", "transformMapEntry")
        is_mapping = is_mapping or node.kind == "sortBy"
        conditions = node.args[:-1] if is_mapping else node.args
        for each in conditions:
            if each.type is not None and not each.type.is_dyn and each.type != BOOL:
                self._fail(each.at, f"expected type 'bool' but found '{each.type}'")
        return self._macro_type(node, target, found[-1])

    def _macro_type(self, node: Macro, target: Type, last: Type) -> Type:
        match node.kind:
            case "map" | "transformList":
                return types.list_of(last)
            case "transformMap":
                key = target.params[0] if target.name == "map" else INT
                return types.map_of(key if not target.is_dyn else DYN, last)
            case "transformMapEntry":
                return last
            case "filter" | "sortBy":
                if target.name == "map":
                    return types.list_of(target.params[0])
                node.declared = node.target.declared if target.name == "list" else None
                return target if target.name == "list" else types.list_of(DYN)
        return BOOL

    def _loop_variables(self, node: Macro, target: Type) -> dict[str, Variable]:
        declared = node.target.declared
        if target.name == "list":
            item = Variable(target.params[0], declared.item if declared is not None else None)
            key = Variable(INT)
            first = item
        elif target.name == "map":
            item = Variable(target.params[1], declared.item if declared is not None else None)
            key = first = Variable(target.params[0])
        else:
            if not target.is_dyn:
                message = (
                    f"expression of type '{target}' cannot be range of a comprehension "
                    "(must be list, map, or dynamic)"
                )
                self._fail(node.target.at, message)
            item = key = first = Variable(DYN)
        if len(node.variables) == 1:
            return {node.variables[0]: first}
        return {node.variables[0]: key, node.variables[1]: item}

    def _optional_macro(self, node: Macro, target: Type) -> Type:
        if target.name != "optional_type" and not target.is_dyn:
            problem = f"found no matching overload for '{node.kind}' applied to '{target}.()'"
            self._fail(node.at, problem)
        inner = target.params[0] if target.name == "optional_type" else DYN
        name = node.variables[0]
        before = self.variables.get(name)
        self.variables[name] = Variable(inner, node.target.declared)
        self._locals.append(name)
        made = self.check(node.args[0])
        self._locals.remove(name)
        if before is None:
            del self.variables[name]
        else:
            self.variables[name] = before
        if node.kind == "optMap":
            return types.optional_of(made)
        return made


def _fits(overload: Overload, given: tuple[Type, ...]) -> Type | None:
    """Return the result type if the arguments match; else None."""
    bindings: types.Bindings = {}
    for wanted, each in zip(overload.params, given, strict=True):
        if not types.bind(wanted, each, bindings):
            return None
    return types.resolve(overload.result, bindings)


def qualified_name(node: Any) -> str | None:
    """Return `a.b.c` if the expression could be a qualified name; else None."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.is_test and not node.is_optional:
        parts.append(node.name)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    parts.append(node.name)
    return ".".join(reversed(parts))
