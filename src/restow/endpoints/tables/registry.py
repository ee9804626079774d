"""Which columns a kind has: one explicit table over all groups.

Custom kinds declare theirs by version. Not here: how cells are made.
"""

from functools import lru_cache
from typing import Final

from restow.endpoints.tables import (
    rows_cluster,
    rows_core,
    rows_infrastructure,
    rows_pods,
    rows_storage_versions,
    rows_workloads,
)
from restow.endpoints.tables.columns import DEFAULT_COLUMNS, TableColumns, printer_columns
from restow.registry.resource import PrinterColumn, Resource

DECLARED_KEPT_MAX: Final = 1024
"""Sets of declared columns whose paths stay read."""

_BY_KIND: dict[tuple[str, str], TableColumns] = {
    **rows_core.COLUMNS,
    **rows_pods.COLUMNS,
    **rows_workloads.COLUMNS,
    **rows_cluster.COLUMNS,
    **rows_infrastructure.COLUMNS,
    **rows_storage_versions.COLUMNS,
}


def columns_for(group: str, kind: str) -> TableColumns:
    """The columns of a built-in kind, in any of its versions; a name and a time for the others."""
    return _BY_KIND.get((group, kind), DEFAULT_COLUMNS)


def columns_of(resource: Resource, version: str, subresource: str = "") -> TableColumns:
    """The columns of a resource in one of its versions, or of what a part of it is shown as."""
    if subresource == "scale":
        return columns_for("autoscaling", "Scale")
    traits = resource.traits.get(version)
    if traits is None:
        return columns_for(resource.kind.group, resource.kind.kind)
    return _declared(traits.columns)


@lru_cache(maxsize=DECLARED_KEPT_MAX)
def _declared(columns: tuple[PrinterColumn, ...]) -> TableColumns:
    """Read once for as long as they are asked for: a watch makes a table of each event."""
    return printer_columns(columns)


def kinds_with_columns() -> frozenset[tuple[str, str]]:
    """Every group and kind that has columns of its own."""
    return frozenset(_BY_KIND)
