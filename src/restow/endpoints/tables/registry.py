"""The columns of each kind: one explicit table for all groups.

CRDs declare theirs per version. Not here: how cells are computed.
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
"""Sets of declared columns whose parsed paths are cached."""

_BY_KIND: dict[tuple[str, str], TableColumns] = {
    **rows_core.COLUMNS,
    **rows_pods.COLUMNS,
    **rows_workloads.COLUMNS,
    **rows_cluster.COLUMNS,
    **rows_infrastructure.COLUMNS,
    **rows_storage_versions.COLUMNS,
}


def columns_for(group: str, kind: str) -> TableColumns:
    """The columns of a built-in kind, in any of its versions; name and age for kinds without their
    own."""
    return _BY_KIND.get((group, kind), DEFAULT_COLUMNS)


def columns_of(resource: Resource, version: str, subresource: str = "") -> TableColumns:
    """The columns of a resource in a version, or of the object that a subresource returns."""
    if subresource == "scale":
        return columns_for("autoscaling", "Scale")
    traits = resource.traits.get(version)
    if traits is None:
        return columns_for(resource.kind.group, resource.kind.kind)
    return _declared(traits.columns)


@lru_cache(maxsize=DECLARED_KEPT_MAX)
def _declared(columns: tuple[PrinterColumn, ...]) -> TableColumns:
    """The columns that a CRD declares, parsed and cached: a watch makes a table of each event."""
    return printer_columns(columns)


def kinds_with_columns() -> frozenset[tuple[str, str]]:
    """Every group and kind with its own columns."""
    return frozenset(_BY_KIND)
