"""Table columns: their definitions, and a function that computes the cells of a row.

Also here: the default columns, and the columns that a CRD declares by JSONPath.

Not here: the columns of particular built-in kinds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any, Final

import orjson

from restow.endpoints.tables.jsonpath import BadPath, JsonPath, parse_path
from restow.endpoints.tables.values import INVALID, age, human_duration, moment, text
from restow.registry.resource import PrinterColumn

Cells = Callable[[Mapping[str, Any], datetime], list[object]]
Conditions = Callable[[Mapping[str, Any]], list[dict[str, str]]]

# Characters in a cell of a declared column; longer values are truncated.
CELL_CHARS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of one kind."""

    definitions: list[dict[str, object]]
    cells: Cells
    conditions: Conditions | None = None
    """Row conditions by which clients hide or highlight rows, such as those of completed pods."""


def column(
    name: str, kind: str = "string", *, about: str, priority: int = 0, form: str = ""
) -> dict[str, object]:
    """One column definition. Priority 1 is shown only when a client asks for wide output."""
    return {
        "name": name,
        "type": kind,
        "format": form,
        "description": about,
        "priority": priority,
    }


def wide(name: str, kind: str = "string", *, about: str) -> dict[str, object]:
    """A column that is shown only in wide output."""
    return column(name, kind, about=about, priority=1)


NAME: Final = column("Name", about="Name of the object.", form="name")
AGE: Final = column("Age", about="Time since the object was created.")
CUSTOM_AGE: Final = column("Age", "date", about="Time since the object was created.")
CREATED_AT: Final = column("Created At", "date", about="When the object was created.")


def _default_cells(obj: Mapping[str, Any], now: datetime) -> list[object]:
    del now  # the default table shows the timestamp
    return [text(obj, "metadata", "name"), text(obj, "metadata", "creationTimestamp")]


def _custom_default_cells(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [text(obj, "metadata", "name"), age(obj, now)]


DEFAULT_COLUMNS: Final = TableColumns([NAME, CREATED_AT], _default_cells)
CUSTOM_DEFAULT_COLUMNS: Final = TableColumns([NAME, CUSTOM_AGE], _custom_default_cells)


def printer_columns(declared: Sequence[PrinterColumn]) -> TableColumns:
    """The columns that a CRD declares (`additionalPrinterColumns`), after the name.

    A path that cannot be parsed yields empty cells: the declaration was validated when it was
    stored.
    """
    if not declared:
        return CUSTOM_DEFAULT_COLUMNS
    definitions: list[dict[str, object]] = [NAME]
    readers: list[tuple[str, JsonPath | None]] = []
    for each in declared:
        about = each.description or f"The value at {each.path}."
        definitions.append(
            column(each.name, each.type, about=about, priority=each.priority, form=each.format)
        )
        readers.append((each.type, _path_or_none(each.path)))

    def cells(obj: Mapping[str, Any], now: datetime) -> list[object]:
        row: list[object] = [text(obj, "metadata", "name")]
        for kind, path in readers:
            found = path.find(obj) if path is not None else []
            row.append(_cell(found[0], kind, now=now) if found else None)
        return row

    return TableColumns(definitions, cells)


def _path_or_none(path: str) -> JsonPath | None:
    try:
        return parse_path(path)
    except BadPath:
        return None


def _cell(value: object, kind: str, *, now: datetime) -> object:
    """A value in the type of its column, or None if it does not fit."""
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match kind:
        case "string":
            return _shown(value)
        case "date" if isinstance(value, str):
            then = moment(value)
            return INVALID if then is None else human_duration(now - then)
        case "boolean" if isinstance(value, bool):
            return value
        case "integer" if number:
            return _whole(value)
        case "number" if number:
            return value
        case _:
            return None


def _whole(value: object) -> int | None:
    if isinstance(value, int):
        return value
    # A number like 1e400 is decoded as infinity, and has no integer part.
    return int(value) if isinstance(value, float) and isfinite(value) else None


def _shown(value: object) -> str | None:
    if isinstance(value, str):
        return value[:CELL_CHARS_MAX]
    try:
        return orjson.dumps(value).decode()[:CELL_CHARS_MAX]
    except orjson.JSONEncodeError:  # too deep, or a number too large: show nothing
        return None
