"""Evaluates `x-kubernetes-validations` on objects; rules are compiled once per schema.

A rule runs on each value of the node that declares it. A rule that reads `oldSelf` runs only if
there is an old value, unless it sets `optionalOldSelf`. Errors in parts that an update did not
change become warnings (ratcheting), except those of rules that read `oldSelf`.

Not here: validation of rules (`rule_checks`), and the language.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from restow.apimachinery import field_errors
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural import paths
from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.budget import OBJECT_COST_MAX
from restow.apimachinery.structural.cel.declarations import declare, escape
from restow.apimachinery.structural.cel.field_paths import FieldPathError, read_field_path
from restow.apimachinery.structural.cel.program import (
    OLD_SELF,
    SELF,
    CompileError,
    Program,
    compile_expression,
)
from restow.apimachinery.structural.cel.run import trial_on_loop
from restow.apimachinery.structural.cel.types import Declared
from restow.apimachinery.structural.cel.values import NONE, CelError, some
from restow.apimachinery.structural.ratchet import Correlated, by_list_key, list_key
from restow.apimachinery.structural.schema import Schema, ValidationRule
from restow.apimachinery.structural.validate import NO_PATH

MESSAGE_SIZE_MAX: Final = 5 * 1024
_OUT_OF_BUDGET: Final = "running out of cost budget, no further validation rules will be run"


@dataclass(slots=True, frozen=True)
class CompiledRule:
    """A compiled rule, or the reason why it cannot run."""

    rule: ValidationRule
    program: Program | None
    error: str = ""
    message: Program | None = None
    message_error: str = ""
    field_path: str = ""

    @property
    def label(self) -> str:
        """Return the rule's name in messages."""
        return (self.rule.message or self.rule.rule).strip()


def compile_rule(rule: ValidationRule, schema: Schema, declared: Declared) -> CompiledRule:
    """Compile a rule and its message; errors are returned in the result, not raised."""
    if not rule.rule.strip():
        return CompiledRule(rule, None)
    is_optional = bool(rule.optional_old_self)
    try:
        program = compile_expression(rule.rule, declared, is_old_optional=is_optional)
    except CompileError as error:
        return CompiledRule(rule, None, str(error))
    message, message_error = None, ""
    if rule.message_expression:
        try:
            message = compile_expression(
                rule.message_expression,
                declared,
                wanted=types.STRING,
                is_old_optional=is_optional,
            )
        except CompileError as error:
            message_error = str(error)
    try:
        path = read_field_path(rule.field_path, schema) if rule.field_path else ""
    except FieldPathError:
        path = ""
    return CompiledRule(rule, program, "", message, message_error, path)


@dataclass(slots=True)
class RuleNode:
    """The rules of a node and of its descendants; nodes without rules are omitted."""

    schema: Schema
    declared: Declared
    rules: tuple[CompiledRule, ...] = ()
    members: dict[str, RuleNode] = field(default_factory=dict)
    values: RuleNode | None = None
    items: RuleNode | None = None


def compile_rules(schema: Schema) -> RuleNode | None:
    """Compile all rules of a schema; None if it has none."""
    if not _has_rules(schema):
        return None
    return _node(schema, declare(schema, is_root=True))


def _has_rules(schema: Schema) -> bool:
    return bool(schema.rules) or any(map(_has_rules, schema.children()))


def _node(schema: Schema, declared: Declared | None) -> RuleNode | None:
    # Rules cannot see values without a type.
    if declared is None or not _has_rules(schema):
        return None
    node = RuleNode(schema, declared)
    node.rules = tuple(compile_rule(each, schema, declared) for each in schema.rules)
    if schema.items is not None:
        node.items = _node(schema.items, declared.item)
    if (values := schema.additional_schema) is not None:
        node.values = _node(values, declared.item)
    for name, each in schema.properties.items():
        escaped = escape(name)
        below = (
            declared.fields.get(escaped)
            if escaped is not None
            else declare(each, is_root=each.embedded)
        )
        if (found := _node(each, below)) is not None:
            node.members[name] = found
    return node


@dataclass(slots=True)
class RuleResult:
    """The result of the rules for an object."""

    causes: list[StatusCause] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    cost_left: int = OBJECT_COST_MAX
    """Negative if the object exceeded its cost budget."""


class _Stop(Exception):
    """No further rule runs."""


def run_rules(
    node: RuleNode,
    value: Any,
    old: Any = None,
    *,
    path: str = "",
    correlated: Correlated | None = None,
    cost_max: int = OBJECT_COST_MAX,
) -> RuleResult:
    """Evaluate all rules; `old` is None on create, `correlated` is for ratcheting.

    Raises TrialOver inside `try_on_loop` if the rules cost too much for the event loop.
    """
    walk = _Walk(RuleResult(cost_left=cost_max))
    try:
        walk.node(node, value, old, path, _Ratchet(correlated, None))
    except _Stop:
        walk.result.cost_left = -1
    return walk.result


class _Ratchet:
    """The old value of a part, or of its nearest ancestor that has one."""

    __slots__ = ("above", "here")

    def __init__(self, here: Correlated | None, above: Correlated | None) -> None:
        self.here = here
        self.above = above

    def is_unchanged(self) -> bool:
        found = self.here if self.here is not None else self.above
        return found is not None and found.is_unchanged()

    def member(self, name: str) -> _Ratchet:
        if self.here is None:
            return self
        if self.above is None and name in ("apiVersion", "kind"):
            return _Ratchet(None, None)
        return _Ratchet(self.here.member(name), self.here)

    def item(self, index: int) -> _Ratchet:
        return self if self.here is None else _Ratchet(self.here.item(index), self.here)


class _Walk:
    def __init__(self, result: RuleResult) -> None:
        self.result = result
        self._trial = trial_on_loop()

    def node(self, node: RuleNode, value: Any, old: Any, path: str, ratchet: _Ratchet) -> None:
        if value is None:
            return
        if node.rules:
            self._rules(node, value, old, path, ratchet)
        if type(value) is list:
            if node.items is not None:
                self._items(node, value, old, path, ratchet)
        elif type(value) is dict:
            self._members(node, value, old, path, ratchet)

    def _items(
        self, node: RuleNode, value: list[Any], old: Any, path: str, ratchet: _Ratchet
    ) -> None:
        assert node.items is not None
        keys = node.schema.list_keys if node.schema.list_type == "map" else ()
        before = by_list_key(old, keys) if keys else {}
        for index, item in enumerate(value):
            old_item = before.get(list_key(item, keys)) if before else None
            self.node(node.items, item, old_item, paths.index(path, index), ratchet.item(index))

    def _members(
        self, node: RuleNode, value: dict[str, Any], old: Any, path: str, ratchet: _Ratchet
    ) -> None:
        before = old if type(old) is dict else {}
        if node.values is not None:
            for name, member in value.items():
                where = paths.key(path, name)
                self.node(node.values, member, before.get(name), where, ratchet.member(name))
        for name, below in node.members.items():
            if name in value:
                where = paths.child(path, name)
                self.node(below, value[name], before.get(name), where, ratchet.member(name))

    def _rules(self, node: RuleNode, value: Any, old: Any, path: str, ratchet: _Ratchet) -> None:
        if self.result.cost_left <= 0:
            self._stop(node, path, f"validation failed due to {_OUT_OF_BUDGET}")
        variables = _Variables(node, value, old)
        for compiled in node.rules:
            if compiled.error:
                self._invalid(node, path, f"rule compile error: {compiled.error}")
                continue
            program = compiled.program
            is_optional = bool(compiled.rule.optional_old_self)
            if program is None or (program.uses_old and old is None and not is_optional):
                continue
            if not self._holds(node, compiled, variables, path):
                self._report(node, compiled, variables, path=path, ratchet=ratchet)

    def _holds(
        self, node: RuleNode, compiled: CompiledRule, variables: _Variables, path: str
    ) -> bool:
        assert compiled.program is not None
        outcome = compiled.program.run(variables.of(compiled), trial=self._trial)
        if outcome.cost > self.result.cost_left:
            self._stop(node, path, f"validation failed due to {_OUT_OF_BUDGET}")
        self.result.cost_left -= outcome.cost
        if not outcome.error:
            return outcome.value is True
        error = outcome.error
        if error.startswith("no such overload"):
            why = "call arguments did not match a supported operator, function or macro signature"
            self._invalid(node, path, f"'{error}': {why} for rule: {compiled.label}")
        elif error.startswith("operation cancelled: actual cost limit exceeded"):
            why = "no further validation rules will be run due to call cost exceeds limit"
            self._stop(node, path, f"'{error}': {why} for rule: {compiled.label}")
        else:
            self._invalid(node, path, f"{error} evaluating rule: {compiled.label}")
        return True

    def _report(
        self,
        node: RuleNode,
        compiled: CompiledRule,
        variables: _Variables,
        *,
        path: str,
        ratchet: _Ratchet,
    ) -> None:
        where = paths.child(path, compiled.field_path) if compiled.field_path else path
        message, may_continue = self._message(compiled, variables)
        if not may_continue:
            cause = field_errors.invalid(where or NO_PATH, node.schema.type, message)
        else:
            cause = _cause(
                compiled, node.schema, variables.raw, where=where or NO_PATH, message=message
            )
        assert compiled.program is not None
        if not compiled.program.uses_old and ratchet.is_unchanged():
            self.result.warnings.append(str(cause))
        else:
            self.result.causes.append(cause)
        if not may_continue:
            raise _Stop

    def _message(self, compiled: CompiledRule, variables: _Variables) -> tuple[str, bool]:
        """Return the message for the user, and whether the budget allows further rules."""
        rule = compiled.rule
        default = rule.message.strip() or f"failed rule: {compiled.label}"
        if compiled.message is None:
            return default, True
        outcome = compiled.message.run(variables.of(compiled), trial=self._trial)
        if outcome.cost > self.result.cost_left:
            return f"messageExpression evaluation failed due to {_OUT_OF_BUDGET}", False
        self.result.cost_left -= outcome.cost
        if outcome.error.startswith("operation cancelled"):
            why = "no further validation rules will be run due to call cost exceeds limit"
            quoted = field_errors.shown(rule.message_expression)
            return f"{why} for messageExpression: {quoted}", False
        if outcome.error or not isinstance(outcome.value, str):
            return default, True
        text = outcome.value.strip()
        if not text or "\n" in text or len(text.encode(errors="replace")) > MESSAGE_SIZE_MAX:
            return default, True
        return text, True

    def _invalid(self, node: RuleNode, path: str, why: str) -> None:
        self.result.causes.append(field_errors.invalid(path or NO_PATH, node.schema.type, why))

    def _stop(self, node: RuleNode, path: str, why: str) -> None:
        self._invalid(node, path, why)
        raise _Stop


class _Variables:
    """The variables `self` and `oldSelf` for the rules of one node, converted once."""

    __slots__ = ("_old", "_self", "raw")

    def __init__(self, node: RuleNode, value: Any, old: Any) -> None:
        convert = node.declared.convert
        self.raw = value
        # Invalid values were rejected before rules run; an invalid old value is treated as absent.
        self._self = value if convert is None else convert(value)
        try:
            self._old = old if convert is None or old is None else convert(old)
        except (CelError, ValueError, TypeError, AttributeError):
            self._old = None

    def of(self, compiled: CompiledRule) -> dict[str, Any]:
        old = self._old
        if compiled.rule.optional_old_self:
            old = NONE if old is None else some(old)
        return {SELF: self._self, OLD_SELF: old}


def _cause(
    compiled: CompiledRule, schema: Schema, value: Any, *, where: str, message: str
) -> StatusCause:
    match compiled.rule.reason:
        case "FieldValueForbidden":
            return field_errors.forbidden(where, message)
        case "FieldValueRequired":
            return field_errors.required(where, message)
        case "FieldValueDuplicate":
            if schema.type in ("object", "array"):
                return StatusCause("FieldValueDuplicate", "Duplicate value", where)
            return field_errors.duplicate(where, value)
    if schema.type in ("object", "array"):
        # Whole objects would make messages unreadable.
        return StatusCause("FieldValueInvalid", f"Invalid value: {message}", where)
    return field_errors.invalid(where, value, message)
