"""Estimates the maximum cost of a call, and the maximum size of its result.

Numbers are those of Kubernetes, as in `cost`. Not here: the sizes of arguments.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Protocol

from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.functions import REGEX, TRAVERSAL
from restow.apimachinery.structural.cel.nodes import Call, CelNode, Literal
from restow.apimachinery.structural.cel.spans import (
    ONE,
    UNBOUNDED,
    UNKNOWN,
    CostBounds,
    capped,
    fixed,
)

Path = tuple[str, ...] | None


class EntrySizes(NamedTuple):
    """Sizes of the keys and values of a list or map that an expression creates."""

    kind: str
    key: CostBounds
    value: CostBounds

    def union(self, other: EntrySizes | None) -> EntrySizes | None:
        if other is None:
            return None
        return EntrySizes(self.kind, self.key.union(other.key), self.value.union(other.value))


class Sizes(Protocol):
    """The known sizes and paths of an expression's parts."""

    sizes: dict[int, CostBounds]
    entries: dict[int, EntrySizes]

    def path(self, node: CelNode) -> Path: ...

    def entry(self, node: CelNode) -> EntrySizes | None: ...

    def size_or_unknown(self, node: CelNode) -> CostBounds: ...

    def declared_size(self, path: Path) -> CostBounds | None: ...


class CallCost:
    """One overload of a call: its own cost, and the size of its result."""

    def __init__(self, estimates: Sizes, node: Call, overload: str) -> None:
        self.estimates = estimates
        self.node = node
        self.overload = overload

    def size(self, node: CelNode) -> CostBounds:
        return self.estimates.size_or_unknown(node)

    def estimate(self) -> tuple[CostBounds, CostBounds | None]:
        node = self.node
        target, args = node.target, node.args
        if node.function in _READERS:
            return self.size(args[0]).scaled(_READERS[node.function] * TRAVERSAL), None
        if target is not None and node.function in _LIST_WALKS:
            return self._walk(target), None
        if target is not None and node.function in _TEXT_WALKS:
            size = self.size(target)
            return size.scaled(TRAVERSAL), size
        found = self._on_target(target, args) if target is not None else None
        return found if found is not None else self._by_overload()

    def _on_target(
        self, target: CelNode, args: list[CelNode]
    ) -> tuple[CostBounds, CostBounds | None] | None:
        match self.node.function:
            case "replace" if len(args) >= 2:
                return self._replace(target, args[0], args[1])
            case "split":
                return self._split(target)
            case "join":
                return self._join(target)
            case "find" | "findAll":
                return self._regex(target, args[0]), CostBounds(0, self.size(target).high)
            case "matches":
                return self._regex(target, args[0]), None
            case "contains":
                text = self.size(target).scaled(TRAVERSAL)
                return text.times(self.size(args[0]).scaled(TRAVERSAL)), None
            case "startsWith" | "endsWith":
                return self.size(args[0]).scaled(TRAVERSAL), None
            case "format":
                return self.size(target).scaled(TRAVERSAL), None
            case "containsIP" | "containsCIDR":
                return self._network(args[0]), None
            case "validate":
                return self.size(args[0]).scaled(TRAVERSAL).scaled(128 * REGEX), None
            case "slice" | "flatten" | "reverse" | "sort":
                return self.size(target).plus(ONE), self.size(target)
            case "distinct":
                size = self.size(target)
                return size.times(size).plus(ONE), size
        return None

    def _by_overload(self) -> tuple[CostBounds, CostBounds | None]:
        args = self.node.args
        match self.overload:
            case "string_to_bytes":
                size = self.size(args[0])
                return size.scaled(TRAVERSAL), CostBounds(size.low, capped(size.high * 4))
            case "bytes_to_string":
                size = self.size(args[0])
                return size.scaled(TRAVERSAL), CostBounds(size.low // 4, size.high)
            case "strings_quote":
                size = self.size(args[0])
                doubled = CostBounds(capped(size.low + 2), capped(size.high * 2 + 2))
                return size.scaled(TRAVERSAL), doubled
            case "matches":
                return self._regex(args[0], args[1]), None
            case "in_list":
                return self.size(args[1]), None
            case "add_string" | "add_bytes":
                size = self.size(args[0]).plus(self.size(args[1]))
                return size.scaled(TRAVERSAL), size
            case "add_list":
                self._join_entries(args[0], args[1])
                return ONE, self.size(args[0]).plus(self.size(args[1]))
            case "equals" | "not_equals":
                return self._equality(), None
            case "string_to_url":
                size = self.size(args[0])
                return size.scaled(TRAVERSAL), size
        if self.overload.endswith(("_string", "_bytes")) and self.node.function in _ORDERING:
            return self._comparison(), None
        if self.node.function.startswith("sets."):
            times = 2 if self.node.function == "sets.equivalent" else 1
            both = self.size(args[0]).times(self.size(args[1]))
            return both.times(fixed(times)).plus(ONE), None
        if self.node.function == "lists.range":
            return ONE, UNKNOWN
        return ONE, None

    def _comparison(self) -> CostBounds:
        smaller = min(self.size(self.node.args[0]).high, self.size(self.node.args[1]).high)
        return CostBounds(1 if smaller else 0, smaller).scaled(TRAVERSAL)

    def _equality(self) -> CostBounds:
        one, other = (each.type for each in self.node.args)
        if one is None or one != other:
            return self._comparison()
        if one in _OPAQUE:
            return ONE
        if one == types.FORMAT:
            return CostBounds(1, _FORMAT_SIZE_MAX).scaled(TRAVERSAL)
        if one == types.URL:
            sizes = [self.estimates.sizes.get(id(each)) for each in self.node.args]
            most = max((each.high for each in sizes if each is not None), default=1)
            return CostBounds(1, most).scaled(TRAVERSAL)
        return self._comparison()

    def _join_entries(self, one: CelNode, other: CelNode) -> None:
        mine = self.estimates.entry(one)
        joined = mine.union(self.estimates.entry(other)) if mine is not None else None
        if joined is not None:
            self.estimates.entries[id(self.node)] = joined

    def _regex(self, text: CelNode, pattern: CelNode) -> CostBounds:
        return self.size(text).plus(ONE).scaled(TRAVERSAL).times(self.size(pattern).scaled(REGEX))

    def _walk(self, target: CelNode) -> CostBounds:
        """Cost one per item, plus reading the strings in the list once."""
        size = self.size(target)
        if target.type is None or target.type.name != "list":
            return size.scaled(TRAVERSAL)
        cost = ONE
        if target.type.params[0] in (types.STRING, types.BYTES):
            cost = cost.plus(self._item_size(target).scaled(TRAVERSAL))
        return size.times(cost)

    def _item_size(self, target: CelNode) -> CostBounds:
        path = self.estimates.path(target)
        found = self.estimates.declared_size((*path, "@items")) if path else None
        return found if found is not None else UNKNOWN

    def _replace(
        self, target: CelNode, old: CelNode, new: CelNode
    ) -> tuple[CostBounds, CostBounds | None]:
        size, removed, inserted = self.size(target), self.size(old), self.size(new)
        if removed.low == 0:
            most, kept_high = capped(size.high + 1), size.high
        elif inserted.high <= removed.low:
            most, kept_high = 0, size.high
        else:
            most, kept_high = math.ceil(size.high / removed.low), 0
        if removed.high == 0:
            least, kept_low = capped(size.low + 1), size.low
        elif removed.high <= inserted.low:
            least, kept_low = 0, size.low
        else:
            least, kept_low = math.ceil(size.low / removed.high), 0
        made = CostBounds(least, most).times(inserted).plus(CostBounds(kept_low, kept_high))
        return size.scaled(2 * TRAVERSAL), made

    def _split(self, target: CelNode) -> tuple[CostBounds, CostBounds | None]:
        size = self.size(target)
        most = size.high
        args = self.node.args
        if len(args) > 1 and isinstance(args[1], Literal) and isinstance(args[1].value, int):
            most = args[1].value if args[1].value >= 0 else UNBOUNDED
        return size.scaled(2 * TRAVERSAL), CostBounds(0, most)

    def _join(self, target: CelNode) -> tuple[CostBounds, CostBounds | None]:
        items = self.size(target)
        size = items.times(self._item_size(target))
        if self.node.args:
            between = CostBounds(max(0, items.low - 1), max(0, items.high - 1))
            size = size.plus(self.size(self.node.args[0]).times(between))
        return size.scaled(TRAVERSAL), size

    def _network(self, other: CelNode) -> CostBounds:
        """Addresses have 4 or 16 bytes; a string has to be parsed first."""
        size = CostBounds(4, 16)
        cost = size.plus(size).scaled(TRAVERSAL)
        if self.node.function == "containsCIDR":
            cost = cost.plus(size.scaled(TRAVERSAL)).plus(ONE)
        if self.overload.endswith("_string"):
            cost = cost.plus(self.size(other).scaled(TRAVERSAL))
        return cost


# Functions that read their argument, and how often.
_READERS: Final = {
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), 1),
    "ip.isCanonical": 2,
}
_LIST_WALKS: Final = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"})
_TEXT_WALKS: Final = frozenset({"lowerAscii", "upperAscii", "substring", "trim"})
_FORMAT_SIZE_MAX: Final = 64
_ORDERING: Final = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_OPAQUE: Final = frozenset({types.IP, types.CIDR, types.QUANTITY, types.SEMVER})
