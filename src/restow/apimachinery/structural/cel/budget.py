"""Cost limits: of one rule, all rules of a schema, one call, one object.

The number of runs of a rule is bounded by the sizes of the lists and maps above it; without such
bounds, by the number of values that fit into a request of maximum size. Not here: costs of
expressions (`cost`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from restow.apimachinery import field_errors
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural.cel.declarations import REQUEST_SIZE_MAX, declare
from restow.apimachinery.structural.cel.spans import UNBOUNDED
from restow.apimachinery.structural.cel.types import Declared
from restow.apimachinery.structural.schema import Schema

RULE_COST_MAX: Final = 10_000_000
SCHEMA_COST_MAX: Final = 100_000_000
CALL_COST_MAX: Final = 1_000_000
OBJECT_COST_MAX: Final = 10_000_000
_REPORTED_MAX: Final = 4


@dataclass(slots=True)
class TotalCost:
    """The estimated cost of all rules of a schema, and its largest contributors."""

    total: int = 0
    most: list[tuple[int, str]] = field(default_factory=list)

    def add(self, path: str, cost: int) -> None:
        """Add the cost of a rule."""
        self.total = min(self.total + cost, UNBOUNDED)
        if cost >= SCHEMA_COST_MAX // 100:
            self.most.append((cost, path))
            self.most.sort(key=lambda each: -each[0])
            del self.most[_REPORTED_MAX:]

    def problems(self, path: str) -> list[StatusCause]:
        """Report the most expensive rules if the total exceeds the limit."""
        if self.total <= SCHEMA_COST_MAX:
            return []
        why = (
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 "
            "schema"
        )
        causes = [field_errors.forbidden(where, why) for _, where in self.most]
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        total = field_errors.forbidden(path, over_budget(what, self.total, SCHEMA_COST_MAX))
        return [*causes, total]


def over_budget(what: str, cost: int, limit: int) -> str:
    """Return the error for a cost over its limit, with Kubernetes' advice."""
    factor = cost / limit
    if factor > 100:
        excess = "more than 100x"
    elif factor < 1.5:
        excess = f"{factor:f}x"
    else:
        excess = f"{factor:.1f}x"
    return (
        f"{what} exceeds budget by factor of {excess} (try simplifying the rule, or adding "
        "maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )


class CostContext:
    """The position of a node in a schema: how many such values one object can have."""

    __slots__ = ("_declared", "_is_object", "count_max", "schema", "total")

    def __init__(
        self,
        schema: Schema,
        total: TotalCost,
        *,
        count_max: int | None,
        is_object: bool,
        declared: Declared | None = None,
    ) -> None:
        self.schema = schema
        self.total = total
        self.count_max = count_max
        """None if a list or map above is unbounded."""
        self._is_object = is_object
        self._declared = declared

    @classmethod
    def of_root(cls, schema: Schema, total: TotalCost) -> CostContext:
        """Return the context of the object itself, which exists once."""
        return cls(schema, total, count_max=1, is_object=True)

    def declared(self) -> Declared | None:
        """Return the type of the node, created on first use."""
        if self._declared is None:
            self._declared = declare(self.schema, is_root=self._is_object)
        return self._declared

    def member(self, schema: Schema, _: str) -> CostContext:
        """Return the context of a field."""
        return self._below(schema)

    def values(self, schema: Schema) -> CostContext:
        """Return the context of a map's values."""
        return self._below(schema)

    def items(self, schema: Schema) -> CostContext:
        """Return the context of a list's items."""
        return self._below(schema)

    def _below(self, schema: Schema) -> CostContext:
        here = _times(self.schema)
        count = None
        if here is not None and self.count_max is not None:
            count = min(self.count_max * here, UNBOUNDED)
        return CostContext(schema, self.total, count_max=count, is_object=schema.embedded)

    def runs_max(self) -> int:
        """Return the maximum runs of a rule of this node per object."""
        if self.count_max is not None:
            return self.count_max
        declared = self.declared()
        size = declared.json_size_min if declared is not None else 0
        return REQUEST_SIZE_MAX // (size + 1)


def _times(schema: Schema) -> int | None:
    if schema.type == "object" and schema.additional is not None:
        return max(0, schema.max_properties) if schema.max_properties is not None else None
    if schema.type == "array":
        return max(0, schema.max_items) if schema.max_items is not None else None
    return 1
