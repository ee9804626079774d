"""`restow census --key NAME`: whether anything is left under one encryption key.

The counting is in `restow.storage.census.keys`; here are the words, the table and the JSON.
"""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from restow.cli.foreign_text import shown
from restow.storage.census import Census, KeyCount, Row

NOT_COUNTED: Final = (
    "counted is the newest value of each object; older revisions until they are compacted, and"
    " backups, may still need the key"
)


def verdict_of(found: KeyCount) -> str:
    """`left`, `undecided` or `none`."""
    if found.left:
        return "left"
    return "undecided" if found.undecided else "none"


def print_key(
    console: Console, census: Census, found: KeyCount, *, address: str, is_listed: bool
) -> None:
    """What is left, and a last line that says so."""
    rows = [*((*each, "left") for each in found.left)]
    rows += [(*each, "undecided") for each in found.undecided]
    if rows:
        console.print(_table(rows))
    for resource, row, _ in rows if is_listed else ():
        console.print(f"{_shown(resource)}: {row.objects:,}", soft_wrap=True)
        for key in row.keys:
            console.print(f"  {_shown(key)}", soft_wrap=True)
        if (more := row.objects - len(row.keys)) > 0:
            console.print(f"  … and {more:,} more")
    many = len(census.resources)
    place = (
        f"{census.objects:,} objects of {many} resource{'s' * (many != 1)}"
        f" at revision {census.revision} of {address}"
    )
    match verdict_of(found):
        case "left":
            line = f"left under {found.key}: {found.objects:,} of {place}"
        case "undecided":
            line = (
                f"undecided: {found.objects_undecided:,} of {place} do not say under which key"
                " they are"
            )
        case _:
            line = f"no value is left under {found.key}: {place}"
    console.print(_shown(line), soft_wrap=True)
    console.print(f"note: {NOT_COUNTED}", soft_wrap=True)


def _table(rows: list[tuple[str, Row, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("RESOURCE", overflow="fold")
    table.add_column("OBJECTS", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for resource, row, word in rows:
        style = "red" if word == "left" else "yellow"
        table.add_row(Text(_shown(resource)), Text(f"{row.objects:,}"), Text(word, style=style))
    return table


def fields_of(census: Census, found: KeyCount, *, address: str, prefix: str) -> dict[str, Any]:
    """The answer as docs/reference/census.md describes it."""
    return {
        "store": address,
        "prefix": prefix,
        "revision": census.revision,
        "key": found.key,
        "verdict": verdict_of(found),
        "objects": census.objects,
        "left": found.objects,
        "undecided": found.objects_undecided,
        "resources": [
            _row_fields(resource, row, is_left=is_left)
            for rows, is_left in ((found.left, True), (found.undecided, False))
            for resource, row in rows
        ],
        "notCounted": NOT_COUNTED,
    }


def _row_fields(resource: str, row: Row, *, is_left: bool) -> dict[str, Any]:
    stored = row.stored
    return {
        "resource": _shown(resource),
        "objects": row.objects,
        "verdict": "left" if is_left else "undecided",
        "encryption": {
            "provider": stored.provider,
            "scheme": stored.scheme,
            "key": stored.key,
            "keyID": stored.key_id,
        },
        "keys": [_shown(key) for key in row.keys],
    }


def _shown(text: str) -> str:
    return shown(text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
