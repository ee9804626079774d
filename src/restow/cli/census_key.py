"""`restow census --key NAME`: whether anything is left under one encryption key.

The counting is in `restow.census.keys`; here are the words, the table and the JSON. That
nothing is left under a name proves something only if that is the name of a key: the store says
which keys servers have, if they are servers of restow.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from restow.apis.encryption_keys import IDENTITY
from restow.apis.internal_v1alpha1 import StorageVersion, resource_of_name
from restow.census import Census, KeyCount, KeyValueSource, Row
from restow.census.resource_names import STORAGE_STATES, STORAGE_VERSIONS, pinned_names
from restow.census.targets import state_resource
from restow.cli.untrusted_text import shown
from restow.migration.encryption_keys import is_known, persisted_keys, reported_keys

NOT_COUNTED: Final = (
    "counted is the newest value of each object; older revisions until they are compacted, and"
    " backups, may still need the key"
)
PLAIN_ONES: Final = "resources that are never encrypted, or that no server encrypts"
NOBODY_SAYS: Final = (
    "nobody says in this store which keys there are, so a misspelt name gives the same answer"
)


@dataclass(slots=True)
class Said:
    """What the store says of keys: in the reports of servers, and in what may be stored."""

    keys: set[str] = field(default_factory=set)
    """The ids of those that servers write with, can read, or have listed as persisted."""
    encrypted: set[str] = field(default_factory=set)
    """The resources of which anybody has anything to do with a key."""
    reported: set[str] = field(default_factory=set)
    """All resources that are spoken of."""

    def is_never_encrypted(self, resource: str) -> bool:
        """Whether a resource may stay plain while others are encrypted: nobody could encrypt it,
        or nobody does. Where nothing at all is encrypted, that is no reason."""
        if resource in pinned_names():
            return True
        return bool(self.encrypted) and resource in self.reported - self.encrypted


async def read_said(source: KeyValueSource, *, prefix: str) -> Said | None:
    """What is said; None if nobody says anything of keys: it is no store of restow's servers."""
    states, versions = f"{prefix}{STORAGE_STATES}/", f"{prefix}{STORAGE_VERSIONS}/"
    said, has_states = Said(), False
    async for page in source.pages([states, versions]):
        for key, value in page:
            is_state, name = key.startswith(states), key.rpartition("/")[2]
            has_states |= is_state
            # What cannot be read says nothing; the census itself tells of it.
            with suppress(msgspec.MsgspecError):
                resource, keys = (
                    _said_by_state(name, value) if is_state else _said_by_version(name, value)
                )
                said.keys |= keys
                said.reported.add(resource)
                if keys - {IDENTITY}:
                    said.encrypted.add(resource)
    return said if has_states else None


def _said_by_state(name: str, value: bytes) -> tuple[str, set[str]]:
    state = msgspec.json.decode(value, type=dict[str, Any])
    status = state.get("status")
    keys = set(persisted_keys(status)) if isinstance(status, dict) else set()
    return state_resource(value) or name, keys


def _said_by_version(name: str, value: bytes) -> tuple[str, set[str]]:
    said = reported_keys(msgspec.json.decode(value, type=StorageVersion))
    keys = {*said.writes.values(), *said.prefers.values()}.union(*said.reads.values())
    return str(resource_of_name(name)), keys


def is_unheard_of(found: KeyCount, said: Said | None) -> bool:
    """Whether neither a value nor a server knows a key of that name."""
    is_counted = bool(found.left or found.undecided)
    return not is_counted and said is not None and not is_known(found.key, said.keys)


def verdict_of(found: KeyCount, said: Said | None) -> str:
    """`left`, `undecided` or `none`."""
    if found.left:
        return "left"
    return "undecided" if found.undecided or is_unheard_of(found, said) else "none"


def print_key(
    console: Console,
    census: Census,
    found: KeyCount,
    *,
    said: Said | None,
    address: str,
    is_listed: bool,
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
    match verdict_of(found, said):
        case "left":
            line = f"left under {found.key}: {found.objects:,} of {place}"
        case "undecided" if is_unheard_of(found, said):
            line = (
                f"undecided: no server, no StorageState and no value knows a key {found.key}: it is"
                f" misspelt, or was taken out of all configurations before; {place}"
            )
        case "undecided":
            line = (
                f"undecided: {found.objects_undecided:,} of {place} do not say under which key"
                " they are"
            )
        case _:
            line = f"no value is left under {found.key}: {place}"
    console.print(_shown(line), soft_wrap=True)
    if found.apart:
        names = ", ".join(_shown(each) for each in dict.fromkeys(each for each, _ in found.apart))
        line = f"apart: {found.objects_apart:,} objects of {PLAIN_ONES}: {names}"
        console.print(line, soft_wrap=True)
    console.print(f"note: {NOT_COUNTED}", soft_wrap=True)
    if said is None and verdict_of(found, said) == "none" and found.key != IDENTITY:
        console.print(f"note: {NOBODY_SAYS}", soft_wrap=True)


def _table(rows: list[tuple[str, Row, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("RESOURCE", overflow="fold")
    table.add_column("OBJECTS", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for resource, row, word in rows:
        style = "red" if word == "left" else "yellow"
        table.add_row(Text(_shown(resource)), Text(f"{row.objects:,}"), Text(word, style=style))
    return table


def fields_of(
    census: Census, found: KeyCount, *, said: Said | None, address: str, prefix: str
) -> dict[str, Any]:
    """The answer as docs/reference/census.md describes it."""
    return {
        "store": address,
        "prefix": prefix,
        "revision": census.revision,
        "key": found.key,
        "verdict": verdict_of(found, said),
        "isKnown": None if said is None and not found.left else not is_unheard_of(found, said),
        "objects": census.objects,
        "left": found.objects,
        "undecided": found.objects_undecided,
        "apart": found.objects_apart,
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
