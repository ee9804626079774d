"""Compiles macros to Python functions: loops over lists and maps, and mappings of optional values.

Costs are those of the accumulator loops to which Kubernetes expands macros. Not here: all other
nodes (`evaluate`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from restow.apimachinery.structural.cel.functions import has_key, key_of, shown
from restow.apimachinery.structural.cel.library_lists import sort_by
from restow.apimachinery.structural.cel.nodes import CelNode, Macro
from restow.apimachinery.structural.cel.run import LIST_COST, MAP_COST, Evaluate, Evaluation
from restow.apimachinery.structural.cel.values import (
    NONE,
    CelError,
    Optional,
    no_such_overload,
    some,
)

Compile = Callable[[CelNode], Evaluate]


class _Loop:
    """A range and its variables; each step sets the variables and adds its own cost."""

    __slots__ = ("cost", "range", "variables")

    def __init__(self, node: Macro, compile_node: Compile, cost: int) -> None:
        self.range = compile_node(node.target)
        self.variables = node.variables
        self.cost = cost

    def steps(self, run: Evaluation) -> Generator[tuple[Any, Any], None, None]:
        """Iterate over keys and values; over indexes and items of a list."""
        found = self.range(run)
        variables, names, cost = run.variables, self.variables, self.cost
        if type(found) is list:
            pairs: Any = enumerate(found)
            single = 1
        elif type(found) is dict:
            pairs = found.items()
            single = 0
        else:
            raise no_such_overload()
        before = [(name, variables[name]) for name in names if name in variables]
        try:
            for pair in pairs:
                run.spend(cost)
                if len(names) == 1:
                    variables[names[0]] = pair[single]
                else:
                    variables[names[0]], variables[names[1]] = pair
                yield pair
        finally:
            for name in names:
                variables.pop(name, None)
            variables.update(before)


def compile_macro(node: Macro, compile_node: Compile) -> Evaluate:
    """Compile a macro; `compile_node` compiles its parts."""
    match node.kind:
        case "all":
            return _quantifier(node, compile_node, wanted=False, cost=3)
        case "exists":
            return _quantifier(node, compile_node, wanted=True, cost=4)
        case "exists_one":
            return _exists_one(node, compile_node)
        case "filter":
            return _filter(node, compile_node)
        case "map" | "transformList":
            return _mapping(node, compile_node)
        case "transformMap":
            return _map_mapping(node, compile_node)
        case "transformMapEntry":
            return _entry_mapping(node, compile_node)
        case "sortBy":
            return _sort_by(node, compile_node)
    return _optional_macro(node, compile_node)


def _quantifier(node: Macro, compile_node: Compile, *, wanted: bool, cost: int) -> Evaluate:
    """Compile `all` or `exists`; errors count only if no item is decisive."""
    loop, test = _Loop(node, compile_node, cost), compile_node(node.args[0])

    def decide(run: Evaluation) -> Any:
        error: CelError | None = None
        steps = loop.steps(run)
        for _ in steps:
            try:
                value = test(run)
            except CelError as problem:
                error = error or problem
                continue
            if value is wanted:
                # As in the reference loop, the condition of the next step is evaluated before the
                # exit.
                is_last = next(steps, None) is None
                run.cost += is_last
                steps.close()
                return wanted
            if type(value) is not bool:
                error = error or no_such_overload()
        run.cost += 1
        if error is not None:
            raise error
        return not wanted

    return decide


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise no_such_overload()
    return value


def _exists_one(node: Macro, compile_node: Compile) -> Evaluate:
    loop, test = _Loop(node, compile_node, 1), compile_node(node.args[0])

    def decide(run: Evaluation) -> Any:
        count = 0
        for _ in loop.steps(run):
            if _truth(test(run)):
                count += 1
                run.cost += 1
        run.cost += 2
        return count == 1

    return decide


def _filter(node: Macro, compile_node: Compile) -> Evaluate:
    loop, test = _Loop(node, compile_node, 1), compile_node(node.args[0])
    name = node.variables[0]

    def pick(run: Evaluation) -> Any:
        run.spend(LIST_COST + 1)
        made = []
        for _ in loop.steps(run):
            if _truth(test(run)):
                run.cost += LIST_COST + 2
                made.append(run.variables[name])
        return made

    return pick


def _mapped(
    node: Macro, compile_node: Compile
) -> tuple[_Loop, Callable[[Evaluation], bool], Evaluate]:
    """Return a loop, the filter of its steps, and the value of a step."""
    tests = [compile_node(each) for each in node.args[:-1]]

    def passes(run: Evaluation) -> bool:
        return all(_truth(test(run)) for test in tests)

    return _Loop(node, compile_node, 1), passes, compile_node(node.args[-1])


def _mapping(node: Macro, compile_node: Compile) -> Evaluate:
    loop, passes, last = _mapped(node, compile_node)

    def make(run: Evaluation) -> Any:
        run.spend(LIST_COST + 1)
        made = []
        for _ in loop.steps(run):
            if passes(run):
                run.cost += LIST_COST + 1
                made.append(last(run))
        return made

    return make


def _map_mapping(node: Macro, compile_node: Compile) -> Evaluate:
    loop, passes, last = _mapped(node, compile_node)

    def make(run: Evaluation) -> Any:
        run.spend(MAP_COST + 1)
        made: dict[Any, Any] = {}
        for key, _ in loop.steps(run):
            if passes(run):
                run.cost += 2
                made[key] = last(run)
        return made

    return make


def _entry_mapping(node: Macro, compile_node: Compile) -> Evaluate:
    loop, passes, last = _mapped(node, compile_node)

    def make(run: Evaluation) -> Any:
        run.spend(MAP_COST + 1)
        made: dict[Any, Any] = {}
        for _ in loop.steps(run):
            if passes(run):
                run.cost += 1
                for key, value in last(run).items():
                    if has_key(key, made):
                        raise CelError(
                            f"insert failed: key '{shown(key_of(made, key))}' already exists"
                        )
                    made[key] = value
        return made

    return make


def _sort_by(node: Macro, compile_node: Compile) -> Evaluate:
    loop, key = _Loop(node, compile_node, 1), compile_node(node.args[0])

    def sort(run: Evaluation) -> Any:
        run.spend(LIST_COST + 1)
        items, keys = [], []
        for _, item in loop.steps(run):
            run.cost += LIST_COST + 1
            items.append(item)
            keys.append(key(run))
        return sort_by(items, keys)

    return sort


def _optional_macro(node: Macro, compile_node: Compile) -> Evaluate:
    target, body = compile_node(node.target), compile_node(node.args[0])
    name = node.variables[0]
    wraps = node.kind == "optMap"

    def apply(run: Evaluation) -> Any:
        value = target(run)
        run.cost += 1
        if not isinstance(value, Optional):
            raise no_such_overload()
        if not value.has_value:
            return NONE
        had, before = name in run.variables, run.variables.get(name)
        run.variables[name] = value.value
        try:
            made = body(run)
        finally:
            if had:
                run.variables[name] = before
            else:
                del run.variables[name]
        return some(made) if wraps else made

    return apply
