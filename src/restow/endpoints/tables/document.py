"""The Table document, which `kubectl get` requests instead of a list or an object.

Not here: the contents of cells, and the choice of this form by a client's Accept header.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

from restow.endpoints.partial_metadata import META_V1, partial_object
from restow.endpoints.tables.columns import TableColumns

IncludeObject = Literal["Metadata", "Object", "None"]

INCLUDE_OBJECT: Final[tuple[IncludeObject, ...]] = ("Metadata", "Object", "None")
"""The values of the query parameter `includeObject`; the first is the default."""


def table_document(
    columns: TableColumns,
    objects: Iterable[Mapping[str, Any]],
    *,
    metadata: Mapping[str, Any],
    now: datetime,
    include_object: IncludeObject = "Metadata",
    api_version: str = META_V1,
    with_definitions: bool = True,
) -> dict[str, Any]:
    """A Table with a row for each object.

    `metadata` is that of the list (or of the one object): resourceVersion, continue,
    remainingItemCount. In a watch each event is a table of one row, and `with_definitions` may
    be false after the first.
    """
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": {key: metadata[key] for key in _LIST_METADATA if key in metadata},
        "columnDefinitions": columns.definitions if with_definitions else None,
        "rows": [
            table_row(columns, obj, include=include_object, now=now, api_version=api_version)
            for obj in objects
        ],
    }


_LIST_METADATA: Final = ("selfLink", "resourceVersion", "continue", "remainingItemCount")


def table_row(
    columns: TableColumns,
    obj: Mapping[str, Any],
    *,
    include: IncludeObject,
    now: datetime,
    api_version: str = META_V1,
) -> dict[str, Any]:
    """The row of one object."""
    row: dict[str, Any] = {"cells": columns.cells(obj, now)}
    conditions = columns.conditions(obj) if columns.conditions is not None else []
    if conditions:
        row["conditions"] = conditions
    match include:
        case "Metadata":
            row["object"] = partial_object(obj, api_version=api_version)
        case "Object":
            row["object"] = obj
        case "None":
            row["object"] = None
    return row
