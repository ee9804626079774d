"""Complete tables, and the columns that CRDs declare."""

from datetime import UTC, datetime
from typing import Any

import pytest

from restow.endpoints.tables import columns_for, printer_columns, table_document
from restow.registry.resource import PrinterColumn

NOW = datetime(2026, 1, 10, tzinfo=UTC)
OBJECT: dict[str, Any] = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "a", "creationTimestamp": "2026-01-09T23:00:00Z"},
    "data": {"x": "1"},
}
COLUMNS = columns_for("", "ConfigMap")


def test_a_table_of_a_list() -> None:
    """A table has the list's metadata, its columns, and a row with metadata for each object."""
    metadata = {"resourceVersion": "9", "continue": "c", "remainingItemCount": 2, "odd": 1}
    table = table_document(COLUMNS, [OBJECT], metadata=metadata, now=NOW)
    assert table == {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "9", "continue": "c", "remainingItemCount": 2},
        "columnDefinitions": COLUMNS.definitions,
        "rows": [
            {
                "cells": ["a", 1, "60m"],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": OBJECT["metadata"],
                },
            }
        ],
    }


def test_column_definitions_are_complete() -> None:
    """Every definition has all five fields, since Go clients declare none of them optional."""
    for definition in COLUMNS.definitions:
        assert set(definition) == {"name", "type", "format", "description", "priority"}
    assert COLUMNS.definitions[0]["format"] == "name"


def test_rows_with_other_objects() -> None:
    """A row has the whole object or none if the client requests that."""
    whole = table_document(COLUMNS, [OBJECT], metadata={}, now=NOW, include_object="Object")
    none = table_document(COLUMNS, [OBJECT], metadata={}, now=NOW, include_object="None")
    assert whole["rows"][0]["object"] == OBJECT
    assert none["rows"][0]["object"] is None


def test_a_watch_event_in_the_old_version() -> None:
    """The older version is in the table and in its rows; later events have no column
    definitions."""
    table = table_document(
        COLUMNS,
        [OBJECT],
        metadata={},
        now=NOW,
        api_version="meta.k8s.io/v1beta1",
        with_definitions=False,
    )
    assert table["apiVersion"] == table["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"
    assert table["columnDefinitions"] is None


def test_a_completed_pod_has_a_row_condition() -> None:
    """Clients hide completed pods by a row condition."""
    pod = {"metadata": {}, "status": {"phase": "Succeeded"}}
    table = table_document(columns_for("", "Pod"), [pod], metadata={}, now=NOW)
    (condition,) = table["rows"][0]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Completed", "Succeeded")


def test_declared_columns() -> None:
    """A custom kind shows its name and the declared columns, each by its type."""
    columns = printer_columns(
        [
            PrinterColumn(name="Size", type="integer", path=".spec.size"),
            PrinterColumn(name="Ready", type="string", path='.status.c[?(@.type=="R")].status'),
            PrinterColumn(name="On", type="boolean", path=".spec.on", priority=1),
            PrinterColumn(name="Since", type="date", path=".metadata.creationTimestamp"),
            PrinterColumn(name="Ratio", type="number", path=".spec.ratio"),
            PrinterColumn(name="All", type="string", path=".spec"),
            PrinterColumn(name="Broken", type="string", path=".x[", description="Odd."),
        ]
    )
    spec = {"size": 3, "on": True, "ratio": 0.5}
    status = {"c": [{"type": "R", "status": "Yes"}]}
    cells = columns.cells({**OBJECT, "spec": spec, "status": status}, NOW)
    shown = '{"size":3,"on":true,"ratio":0.5}'
    assert cells == ["a", 3, "Yes", True, "60m", 0.5, shown, None]
    assert [each["priority"] for each in columns.definitions] == [0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        ("integer", 2.7, 2),
        ("integer", float("inf"), None),
        ("integer", True, None),
        ("integer", "3", None),
        ("boolean", "true", None),
        ("date", "never", "<invalid>"),
        ("date", 3, None),
        ("string", None, None),
        ("string", 2**70, None),
        ("string", 5, "5"),
        ("odd", "x", None),
    ],
)
def test_values_of_another_type(kind: str, value: object, cell: object) -> None:
    """A value that does not fit its column leaves the cell empty."""
    columns = printer_columns([PrinterColumn(name="X", type=kind, path=".x")])
    assert columns.cells({"x": value}, NOW) == ["", cell]


def test_no_declared_columns() -> None:
    """A custom kind without columns shows name and age."""
    columns = printer_columns([])
    assert columns.cells(OBJECT, NOW) == ["a", "60m"]
