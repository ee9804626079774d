"""Which columns a kind has: one explicit table over all groups.

Not here: how cells are made.
"""

from restow.serving.tables import (
    rows_cluster,
    rows_core,
    rows_pods,
    rows_storage_versions,
    rows_workloads,
)
from restow.serving.tables.columns import DEFAULT_COLUMNS, TableColumns

_BY_KIND: dict[tuple[str, str], TableColumns] = {
    **rows_core.COLUMNS,
    **rows_pods.COLUMNS,
    **rows_workloads.COLUMNS,
    **rows_cluster.COLUMNS,
    **rows_storage_versions.COLUMNS,
}


def columns_for(group: str, kind: str) -> TableColumns:
    """The columns of a built-in kind, in any of its versions; a name and a time for the others."""
    return _BY_KIND.get((group, kind), DEFAULT_COLUMNS)


def kinds_with_columns() -> frozenset[tuple[str, str]]:
    """Every group and kind that has columns of its own."""
    return frozenset(_BY_KIND)
