"""Estimates the maximum cost of an expression, from bounds on the sizes of its inputs.

Numbers and rules are those of Kubernetes, since they decide which CRDs are accepted: a change would
reject CRDs that Kubernetes accepts. Sizes come from `maxItems`, `maxLength` and `maxProperties`, or
from the maximum request size.

Not here: actual costs (`evaluate`), and limits (`budget`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.call_cost import CallCost, EntrySizes, Path
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
from restow.apimachinery.structural.cel.run import LIST_COST, MAP_COST
from restow.apimachinery.structural.cel.spans import (
    NOTHING,
    ONE,
    UNBOUNDED,
    UNKNOWN,
    CostBounds,
    capped,
    fixed,
)
from restow.apimachinery.structural.cel.types import Declared


class _Local(NamedTuple):
    path: Path
    size: CostBounds | None
    entry: EntrySizes | None


def estimate(node: CelNode, root: Declared) -> CostBounds:
    """Return the cost of a checked expression on a value of a type."""
    return _Estimate(root).cost(node)


class _Estimate:
    def __init__(self, root: Declared) -> None:
        self.root = root
        self.paths: dict[int, Path] = {}
        self.sizes: dict[int, CostBounds] = {}
        self.entries: dict[int, EntrySizes] = {}
        self.locals: dict[str, list[_Local]] = {}

    def cost(self, node: CelNode) -> CostBounds:
        match node:
            case Literal():
                return NOTHING
            case Ident():
                local = self._local(node.name)
                self.paths[id(node)] = local.path if local is not None else (node.name,)
                return ONE
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case Logic():
                costs = [self.cost(each) for each in node.terms]
                return CostBounds(costs[0].low, capped(sum(each.high for each in costs)))
            case Conditional():
                return self._conditional(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Macro():
                return self._macro(node)
        return NOTHING

    def _local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def path(self, node: CelNode) -> Path:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self.paths.get(id(node))

    def size(self, node: CelNode) -> CostBounds | None:
        """Return the size of a node's value; None if unknown."""
        found = self.sizes.get(id(node)) or _literal_size(node)
        if found is None and (found := self.declared_size(self.path(node))) is not None:
            self.sizes[id(node)] = found
        if found is None and _is_scalar(node.type):
            return ONE
        if found is None and isinstance(node, Ident):
            local = self._local(node.name)
            return local.size if local is not None else None
        return found

    def size_or_unknown(self, node: CelNode) -> CostBounds:
        found = self.size(node)
        return found if found is not None else UNKNOWN

    def declared_size(self, path: Path) -> CostBounds | None:
        """Return the size bound that the schema declares for a part of the object."""
        if not path:
            return None
        declared: Declared | None = self.root
        for name in path[1:]:
            if declared is None:
                return None
            match name:
                case "@items" | "@values":
                    declared = declared.item
                case "@keys":
                    declared = declared.key
                case _:
                    declared = declared.fields.get(name)
        return CostBounds(0, declared.size_max) if declared is not None else None

    def entry(self, node: CelNode) -> EntrySizes | None:
        found = self.entries.get(id(node))
        if found is None and isinstance(node, Ident):
            local = self._local(node.name)
            return local.entry if local is not None else None
        return found

    def _select(self, node: Select) -> CostBounds:
        cost = self.cost(node.operand)
        if node.is_test:
            return cost
        operand = node.operand.type
        if operand is not None and operand.name in ("map", "object", "optional_type"):
            cost = cost.plus(ONE)
        self.paths[id(node)] = (*(self.path(node.operand) or ()), node.name)
        return cost

    def _call(self, node: Call) -> CostBounds:
        if node.function == "dyn":
            inner = self.cost(node.args[0]).plus(ONE)
            self._copy(node, node.args[0])
            return inner
        args = NOTHING
        for each in node.args:
            args = args.plus(self.cost(each))
        target = self.cost(node.target) if node.target is not None else NOTHING
        total: CostBounds | None = None
        size: CostBounds | None = None
        for overload in node.overloads:
            cost, made = CallCost(self, node, overload.id).estimate()
            total = cost if total is None else total.union(cost)
            if made is not None:
                size = made if size is None else size.union(made)
            if overload.id in ("index_list", "index_map"):
                entry = self.entry(node.args[0])
                size = entry.value if entry is not None else None
                last = "@items" if overload.id == "index_list" else "@values"
                self.paths[id(node)] = (*(self.path(node.args[0]) or ()), last)
            if size is None:
                size = self.size(node)
        if size is not None:
            self.sizes[id(node)] = size
        return target.plus(args).plus(total if total is not None else NOTHING)

    def _copy(self, node: CelNode, source: CelNode) -> None:
        if (size := self.size(source)) is not None:
            self.sizes[id(node)] = size
        if (entry := self.entry(source)) is not None:
            self.entries[id(node)] = entry

    def _conditional(self, node: Conditional) -> CostBounds:
        condition, yes, no = map(self.cost, (node.condition, node.yes, node.no))
        self.sizes[id(node)] = self.size_or_unknown(node.yes).union(self.size_or_unknown(node.no))
        entry = self.entry(node.yes)
        joined = entry.union(self.entry(node.no)) if entry is not None else None
        if joined is not None:
            self.entries[id(node)] = joined
        return condition.plus(yes.union(no))

    def _list(self, node: ListLiteral) -> CostBounds:
        cost, sizes = NOTHING, CostBounds(UNBOUNDED if node.items else 0, 0)
        for each in node.items:
            cost = cost.plus(self.cost(each))
            sizes = sizes.union(self.size_or_unknown(each))
        self.entries[id(node)] = EntrySizes("list", ONE, sizes)
        return cost.plus(fixed(LIST_COST))

    def _map(self, node: MapLiteral) -> CostBounds:
        cost = NOTHING
        keys = values = CostBounds(UNBOUNDED if node.entries else 0, 0)
        for key, value, _ in node.entries:
            cost = cost.plus(self.cost(key)).plus(self.cost(value))
            keys = keys.union(self.size_or_unknown(key))
            values = values.union(self.size_or_unknown(value))
        self.entries[id(node)] = EntrySizes("map", keys, values)
        return cost.plus(fixed(MAP_COST))

    def _macro(self, node: Macro) -> CostBounds:
        target = self.cost(node.target)
        if node.kind in ("optMap", "optFlatMap"):
            self._push(node.variables[0], _Local(None, None, None))
            body = self.cost(node.args[0])
            self._pop(node.variables[0])
            return target.plus(CostBounds(2, capped(3 + body.high)))
        locals_ = self._loop_locals(node)
        for name, local in locals_.items():
            self._push(name, local)
        costs = [self.cost(each) for each in node.args]
        made = self.size_or_unknown(node.args[-1])
        item = self.size_or_unknown_local(node)
        for name in locals_:
            self._pop(name)
        step, loop_cost = _STEPS[node.kind]
        # The first argument decides whether the rest runs; a quantifier may evaluate nothing.
        least = 0 if node.kind in ("all", "exists") else costs[0].low
        each = CostBounds(least, capped(sum(cost.high for cost in costs))).plus(
            step if len(costs) == 1 else CostBounds(1, step.high)
        )
        count = self.size_or_unknown(node.target)
        self._macro_sizes(node, count, made=made, item=item)
        return target.plus(fixed(loop_cost)).plus(count.times(each))

    def size_or_unknown_local(self, node: Macro) -> CostBounds:
        """Return the size of the items that a filter keeps."""
        local = self._local(node.variables[-1])
        assert local is not None
        size = local.size if local.size is not None else self.declared_size(local.path)
        return size if size is not None else UNKNOWN

    def _macro_sizes(
        self, node: Macro, count: CostBounds, *, made: CostBounds, item: CostBounds
    ) -> None:
        match node.kind:
            case "map" | "transformList":
                self.sizes[id(node)] = count
                self.entries[id(node)] = EntrySizes("list", ONE, CostBounds(0, made.high))
            case "filter":
                self.sizes[id(node)] = count
                self.entries[id(node)] = EntrySizes("list", ONE, CostBounds(0, item.high))
            case "sortBy":
                self._copy(node, node.target)
            case "transformMap" | "transformMapEntry":
                self.sizes[id(node)] = count
            case _:
                self.sizes[id(node)] = ONE

    def _loop_locals(self, node: Macro) -> dict[str, _Local]:
        entry = self.entry(node.target)
        target = node.target.type
        is_list = (entry.kind if entry is not None else target.name if target else "") == "list"
        path = self.path(node.target) or ()
        value_at, key_at = ("@items", "@indices") if is_list else ("@values", "@keys")
        value = _Local((*path, value_at), entry.value if entry is not None else None, None)
        key = _Local((*path, key_at), entry.key if entry is not None else None, None)
        if len(node.variables) == 1:
            return {node.variables[0]: value if is_list else key}
        return {node.variables[0]: key, node.variables[1]: value}

    def _push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def _pop(self, name: str) -> None:
        self.locals[name].pop()


# The cost of a step besides its arguments, and of the loop besides its steps. A macro represents a
# loop with an accumulator, and reading and updating that costs as well.
_STEPS: Final[dict[str, tuple[CostBounds, int]]] = {
    "all": (fixed(3), 1),
    "exists": (fixed(4), 1),
    "exists_one": (CostBounds(1, 2), 2),
    "filter": (CostBounds(1, LIST_COST + 3), LIST_COST + 1),
    "map": (fixed(LIST_COST + 2), LIST_COST + 1),
    "transformList": (fixed(LIST_COST + 2), LIST_COST + 1),
    "transformMap": (fixed(3), MAP_COST + 1),
    "transformMapEntry": (fixed(2), MAP_COST + 1),
    "sortBy": (fixed(LIST_COST + 2), 2 * LIST_COST + 2),
}


def _literal_size(node: CelNode) -> CostBounds | None:
    match node:
        case Literal(value=str() | bytes() as value):
            return fixed(len(value))
        case Literal():
            return ONE
        case ListLiteral():
            return fixed(len(node.items))
        case MapLiteral():
            return fixed(len(node.entries))
    return None


def _is_scalar(type_: types.Type | None) -> bool:
    if type_ is None:
        return False
    if type_.name == "optional_type":
        return _is_scalar(type_.params[0])
    return type_ in types.SCALARS
