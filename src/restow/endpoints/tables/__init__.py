"""Tables: what `kubectl get` shows of the built-in kinds, and of kinds that declare columns.

`columns_for` gives the columns of a kind, `table_document` puts rows together. Ages are made from
the `now` that the caller gives. Stored data of any shape makes a row; nothing here raises on it.

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
