"""Compiles checked expressions to Python functions that count their cost.

Each node becomes a function of an `Evaluation`. Costs are counted as in Kubernetes: one per name or
field, a cost per call, ten per new list. An evaluation that exceeds its limit is aborted.

Errors behave like values in CEL: `false && error` is false. Not here: compile-time checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from restow.apimachinery.structural.cel.checker import TYPE_NAMES, qualified_name
from restow.apimachinery.structural.cel.equality import declared_equal, merged
from restow.apimachinery.structural.cel.functions import Overload, dispatch, has_key, shown
from restow.apimachinery.structural.cel.loops import compile_macro
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
    Select,
)
from restow.apimachinery.structural.cel.run import LIST_COST, MAP_COST, Evaluate, Evaluation
from restow.apimachinery.structural.cel.values import (
    NONE,
    CelError,
    Optional,
    TypeValue,
    no_such_overload,
    some,
)


def compile_node(node: CelNode) -> Evaluate:
    """Compile a node of a checked expression to a function."""
    match node:
        case Literal():
            value = node.value
            return lambda _: value
        case Ident():
            return _ident(node)
        case Select():
            return _select(node)
        case Call():
            return _call(node)
        case Logic():
            return _logic([compile_node(each) for each in node.terms], is_and=node.is_and)
        case Conditional():
            return _conditional(node)
        case ListLiteral():
            return _list(node)
        case MapLiteral():
            return _map(node)
        case Macro():
            return compile_macro(node, compile_node)
    raise AssertionError(node)


def _ident(node: Ident) -> Evaluate:
    name = node.name
    if node.type is not None and node.type.name == "type" and name in TYPE_NAMES:
        known = TypeValue("null_type" if name == "null_type" else name)

        def type_value(run: Evaluation) -> Any:
            run.cost += 1
            return run.variables.get(name, known)

        return type_value

    return _variable(name)


def _variable(name: str) -> Evaluate:
    def read(run: Evaluation) -> Any:
        run.cost += 1
        return run.variables[name]

    return read


def _select(node: Select) -> Evaluate:
    if node.type is not None and node.type.name == "type" and not node.is_test:
        name = qualified_name(node)
        if name is not None:
            known = TypeValue(name)
            return lambda _: known
    if node.variable:
        return _variable(node.variable)
    operand = compile_node(node.operand)
    holder = node.operand.type
    if holder is not None and holder.name == "optional_type":
        holder = holder.params[0]
    declared = holder.declared if holder is not None and holder.name == "object" else None
    key = declared.names.get(node.name, node.name) if declared is not None else node.name
    below = declared.fields.get(node.name) if declared is not None else None
    convert = below.convert if below is not None else None
    if node.is_test:
        return _presence(operand, key)
    if node.is_optional or (
        node.operand.type is not None and node.operand.type.name == "optional_type"
    ):
        return _optional_select(operand, key, convert)
    shown_key = node.name

    def read(run: Evaluation) -> Any:
        value = operand(run)
        run.cost += 1
        try:
            found = value[key]
        except (KeyError, TypeError):
            raise CelError(f"no such key: {shown_key}") from None
        return found if convert is None or found is None else convert(found)

    return read


def _presence(operand: Evaluate, key: str) -> Evaluate:
    def test(run: Evaluation) -> Any:
        value = operand(run)
        if isinstance(value, Optional):
            if not value.has_value:
                return False
            value = value.value
        # A value without fields does not have this one.
        return isinstance(value, dict) and key in value

    return test


def _optional_select(operand: Evaluate, key: str, convert: Any) -> Evaluate:
    def read(run: Evaluation) -> Any:
        value = operand(run)
        run.cost += 1
        if isinstance(value, Optional):
            if not value.has_value:
                return NONE
            value = value.value
        if not isinstance(value, dict) or key not in value:
            return NONE
        found = value[key]
        return some(found if convert is None or found is None else convert(found))

    return read


def _call(node: Call) -> Evaluate:
    nodes = ([node.target] if node.target is not None else []) + node.args
    args = [compile_node(each) for each in nodes]
    overloads = node.overloads
    is_known = len(overloads) == 1 and not any(
        each.type is None or each.type.is_dyn for each in nodes
    )
    if node.function in ("_==_", "_!=_"):
        return _equality(node, args)
    if node.function == "_+_" and (merge := merged(node.args[0].declared)) is not None:
        return _merge(args, merge)
    if is_known and len(args) == 2:
        return _binary(overloads[0], *args)

    def call(run: Evaluation) -> Any:
        values = tuple([each(run) for each in args])
        chosen = overloads[0] if is_known else dispatch(overloads, values)
        result = chosen.run(*values)
        cost = chosen.cost(values, result) if chosen.cost is not None else 1
        if chosen.has_nominal_cost:
            run.spend_nominal(cost)
        else:
            run.spend(cost)
        return result

    return call


def _binary(overload: Overload, left: Evaluate, right: Evaluate) -> Evaluate:
    function, cost = overload.run, overload.cost

    def plain(run: Evaluation) -> Any:
        result = function(left(run), right(run))
        run.spend(1)
        return result

    def counted(run: Evaluation) -> Any:
        values = (left(run), right(run))
        result = function(*values)
        assert cost is not None
        run.spend(cost(values, result))
        return result

    def nominal(run: Evaluation) -> Any:
        values = (left(run), right(run))
        result = function(*values)
        assert cost is not None
        run.spend_nominal(cost(values, result))
        return result

    if overload.has_nominal_cost:
        return nominal
    return plain if cost is None else counted


def _equality(node: Call, args: list[Evaluate]) -> Evaluate:
    left, right = args
    equal = declared_equal(node.args[0].declared or node.args[1].declared)
    wanted = node.function == "_==_"
    cost = node.overloads[0].cost
    assert cost is not None

    def compare(run: Evaluation) -> Any:
        values = (left(run), right(run))
        run.spend(cost(values, None))
        return equal(*values) is wanted

    return compare


def _merge(args: list[Evaluate], merge: Callable[[Any, Any], Any]) -> Evaluate:
    left, right = args

    def run_merge(run: Evaluation) -> Any:
        one, other = left(run), right(run)
        if type(one) is not list or type(other) is not list:
            raise no_such_overload()
        run.spend(1)
        return merge(one, other)

    return run_merge


def _logic(terms: list[Evaluate], *, is_and: bool) -> Evaluate:
    """Return the first decisive term; an error counts only if no term is decisive."""
    decisive = not is_and

    def decide(run: Evaluation) -> Any:
        error: CelError | None = None
        for term in terms:
            try:
                value = term(run)
            except CelError as problem:
                error = error or problem
                continue
            if value is decisive:
                return decisive
            if type(value) is not bool:
                error = error or no_such_overload()
        if error is not None:
            raise error
        return is_and

    return decide


def _conditional(node: Conditional) -> Evaluate:
    condition, yes, no = map(compile_node, (node.condition, node.yes, node.no))

    def choose(run: Evaluation) -> Any:
        value = condition(run)
        if type(value) is not bool:
            raise no_such_overload()
        return yes(run) if value else no(run)

    return choose


def _list(node: ListLiteral) -> Evaluate:
    items = [compile_node(each) for each in node.items]
    optional = node.optional

    def make(run: Evaluation) -> Any:
        made = []
        for index, each in enumerate(items):
            value = each(run)
            if index in optional:
                if not isinstance(value, Optional):
                    raise no_such_overload()
                if value.has_value:
                    made.append(value.value)
            else:
                made.append(value)
        run.spend(LIST_COST)
        return made

    return make


def _map(node: MapLiteral) -> Evaluate:
    entries = [
        (compile_node(key), compile_node(value), is_optional)
        for key, value, is_optional in node.entries
    ]

    def make(run: Evaluation) -> Any:
        made: dict[Any, Any] = {}
        for key_of_entry, value_of_entry, is_optional in entries:
            key, value = key_of_entry(run), value_of_entry(run)
            if is_optional:
                if not isinstance(value, Optional):
                    raise no_such_overload()
                if not value.has_value:
                    continue
                value = value.value
            if type(key) in (list, dict, float, type(None)):
                raise CelError(f"unsupported key type: {shown(key)}")
            if has_key(key, made):
                raise CelError(f"Failed with repeated key: {shown(key)}")
            made[key] = value
        run.spend(MAP_COST)
        return made

    return make
