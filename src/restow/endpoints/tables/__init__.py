"""Tables: the columns that `kubectl get` prints, for built-in kinds and for declared columns.

`columns_for` returns the columns of a kind, `table_document` assembles rows. Ages are computed from
the `now` that the caller passes. Stored data of any shape yields a row; nothing here raises on it.

Not here: HTTP, and the current time.
"""

from restow.endpoints.tables.columns import (
    CUSTOM_DEFAULT_COLUMNS,
    DEFAULT_COLUMNS,
    TableColumns,
    printer_columns,
)
from restow.endpoints.tables.document import INCLUDE_OBJECT, IncludeObject, table_document
from restow.endpoints.tables.jsonpath import BadPath, JsonPath, parse_path
from restow.endpoints.tables.registry import columns_for, columns_of, kinds_with_columns
from restow.endpoints.tables.values import human_duration

__all__ = [
    "CUSTOM_DEFAULT_COLUMNS",
    "DEFAULT_COLUMNS",
    "INCLUDE_OBJECT",
    "BadPath",
    "IncludeObject",
    "JsonPath",
    "TableColumns",
    "columns_for",
    "columns_of",
    "human_duration",
    "kinds_with_columns",
    "parse_path",
    "printer_columns",
    "table_document",
]
