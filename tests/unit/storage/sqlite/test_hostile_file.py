"""Files that are SQLite and claim to be a restow store, but were made by somebody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from restow.aio import Runtime
from restow.storage.errors import OpenRefused, StoreDamaged
from restow.storage.interface import EVERYTHING, REVISION_MAX
from restow.storage.restore import restore_backup
from restow.storage.sqlite import schema
from restow.storage.sqlite.backup import check_file, make_store_at
from restow.storage.sqlite.read_only import open_read_only

ENDLESS = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT i, i, i FROM n"


def store(path: Path, *statements: str) -> Path:
    """A store file, changed by these statements."""
    make_store_at(path, 7)  # type: ignore[arg-type]
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = DELETE")
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE keys", f"CREATE VIEW keys AS {ENDLESS}"),
        ("DROP TABLE versions", f"CREATE VIEW versions AS {ENDLESS}"),
        (f"CREATE VIEW other AS {ENDLESS}",),
        ("CREATE TRIGGER t AFTER UPDATE ON meta BEGIN DELETE FROM keys; END",),
        ("CREATE INDEX i ON versions (value)",),
        ("CREATE TABLE more (a)",),
        ("DROP TABLE changes", "CREATE VIRTUAL TABLE changes USING fts5(place)"),
        ("DROP TABLE changes",),
    ],
)
async def test_another_schema(tmp_path: Path, statements: tuple[str, ...]) -> None:
    """A file with other tables, or with views, triggers or indexes, is refused before any of its
    contents is read: a view can compute forever."""
    path = store(tmp_path / "backup.db", *statements)
    for use in (open_read_only, check_file):
        with pytest.raises(OpenRefused, match="other tables than a restow store"):
            use(path)
    with pytest.raises(OpenRefused, match="other tables than a restow store"):
        await restore_backup(path, f"sqlite:{tmp_path / 'store.db'}", Runtime.system())
    assert not (tmp_path / "store.db").exists()


@pytest.mark.parametrize("value", ["'text'", "x'00'", "-5", "1.5", str(REVISION_MAX + 1)])
def test_a_revision_of_another_kind(tmp_path: Path, value: str) -> None:
    """A revision that is not a possible number is damage, and not an error of Python."""
    path = store(tmp_path / "backup.db", f"UPDATE meta SET value = {value} WHERE name = 'revision'")
    with pytest.raises(StoreDamaged, match=r"its revision|in place of a number"):
        open_read_only(path)


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("keys", "(x'ff', 900, 7)"),
        ("keys", "('/a', 'text', 7)"),
        ("versions", "(900, 'text')"),
        ("versions", "(900, 5)"),
    ],
)
def test_rows_of_other_kinds(tmp_path: Path, table: str, row: str) -> None:
    """Keys that are not text, and values that are not bytes, are damage."""
    statements = [f"INSERT INTO {table} VALUES {row}"]
    if table == "versions":
        statements.append("INSERT INTO keys VALUES ('/a', 900, 7)")
    path = store(tmp_path / "backup.db", *statements)

    def read(path: Path) -> object:
        file = open_read_only(path)
        try:
            return list(file.rows([EVERYTHING]))
        finally:
            file.close()

    found: list[str] = []
    uses: tuple[Callable[[Path], object], ...] = (check_file, read)
    for use in uses:
        try:
            use(path)
        except StoreDamaged as error:
            found.append(str(error))
    assert found, "neither the check nor reading detects it"


def test_the_schema_of_every_store(tmp_path: Path) -> None:
    """A store as it is created passes."""
    path = store(tmp_path / "backup.db")
    check_file(path)
    assert schema.CREATE.count("CREATE TABLE") == len(schema.TABLES)
