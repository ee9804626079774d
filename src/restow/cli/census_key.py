"""`restow census --key NAME`: check whether any value is still encrypted with one key.

The counting is in `restow.census.keys`; this module has the table and the JSON. "No value uses
this key" means something only if the key name exists: restow servers report their keys in the
store, so a misspelt name can be detected there.
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
    "only the newest value of each object is counted; older revisions, until they are"
    " compacted, and backups may still need the key"
)
PLAIN_ONES: Final = "resources that are never encrypted, or that no server encrypts"
KEYS_UNKNOWN: Final = (
    "no server reports its keys in this store, so a misspelt name has the same result"
)


@dataclass(slots=True)
class KnownKeys:
    """The encryption keys that the store names, in StorageVersions and StorageStates."""

    keys: set[str] = field(default_factory=set)
    """IDs of keys that servers write with, can read, or have listed as persisted."""
    encrypted: set[str] = field(default_factory=set)
    """Resources for which at least one key is named."""
    reported: set[str] = field(default_factory=set)
    """All resources with a StorageVersion or a StorageState."""

    def is_never_encrypted(self, resource: str) -> bool:
        """Whether a resource stays plaintext while others are encrypted: it cannot be encrypted, or
        no server encrypts it. False where nothing at all is encrypted."""
        if resource in pinned_names():
            return True
        return bool(self.encrypted) and resource in self.reported - self.encrypted


async def read_known_keys(source: KeyValueSource, *, prefix: str) -> KnownKeys | None:
    """Read the keys that servers report; None without StorageStates: not a store of restow."""
    states, versions = f"{prefix}{STORAGE_STATES}/", f"{prefix}{STORAGE_VERSIONS}/"
    known, has_states = KnownKeys(), False
    async for page in source.pages([states, versions]):
        for key, value in page:
            is_state, name = key.startswith(states), key.rpartition("/")[2]
            has_states |= is_state
            # Skip objects that cannot be decoded; the census itself reports them.
            with suppress(msgspec.MsgspecError):
                resource, keys = (
                    _state_keys(name, value) if is_state else _version_keys(name, value)
                )
                known.keys |= keys
                known.reported.add(resource)
                if keys - {IDENTITY}:
                    known.encrypted.add(resource)
    return known if has_states else None


def _state_keys(name: str, value: bytes) -> tuple[str, set[str]]:
    state = msgspec.json.decode(value, type=dict[str, Any])
    status = state.get("status")
    keys = set(persisted_keys(status)) if isinstance(status, dict) else set()
    return state_resource(value) or name, keys


def _version_keys(name: str, value: bytes) -> tuple[str, set[str]]:
    reported = reported_keys(msgspec.json.decode(value, type=StorageVersion))
    keys = {*reported.writes.values(), *reported.prefers.values()}.union(*reported.reads.values())
    return str(resource_of_name(name)), keys


def is_unknown_key(found: KeyCount, known: KnownKeys | None) -> bool:
    """Whether neither a value nor a server names this key."""
    is_counted = bool(found.left or found.undecided)
    return not is_counted and known is not None and not is_known(found.key, known.keys)


def verdict_of(found: KeyCount, known: KnownKeys | None) -> str:
    """Return `left`, `undecided` or `none`, as in the JSON."""
    if found.left:
        return "left"
    return "undecided" if found.undecided or is_unknown_key(found, known) else "none"


def print_key(
    console: Console,
    census: Census,
    found: KeyCount,
    *,
    known: KnownKeys | None,
    address: str,
    is_listed: bool,
) -> None:
    """Print the table of values that use the key, then a summary."""
    rows = [*((*each, "in use") for each in found.left)]
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
    match verdict_of(found, known):
        case "left":
            line = f"{found.key} is still in use: {found.objects:,} of {place}"
        case "undecided" if is_unknown_key(found, known):
            line = (
                f"undecided: key {found.key} is unknown: no server, StorageState or value names it;"
                f" it is misspelt, or was removed from all configurations before; {place}"
            )
        case "undecided":
            line = (
                f"undecided: the key of {found.objects_undecided:,} of {place} cannot be determined"
            )
        case _:
            line = f"no value uses {found.key}: {place}"
    console.print(_shown(line), soft_wrap=True)
    if found.apart:
        names = ", ".join(_shown(each) for each in dict.fromkeys(each for each, _ in found.apart))
        line = f"not counted: {found.objects_apart:,} objects of {PLAIN_ONES}: {names}"
        console.print(line, soft_wrap=True)
    console.print(f"note: {NOT_COUNTED}", soft_wrap=True)
    if known is None and verdict_of(found, known) == "none" and found.key != IDENTITY:
        console.print(f"note: {KEYS_UNKNOWN}", soft_wrap=True)


def _table(rows: list[tuple[str, Row, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("RESOURCE", overflow="fold")
    table.add_column("OBJECTS", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for resource, row, word in rows:
        style = "red" if word == "in use" else "yellow"
        table.add_row(Text(_shown(resource)), Text(f"{row.objects:,}"), Text(word, style=style))
    return table


def fields_of(
    census: Census, found: KeyCount, *, known: KnownKeys | None, address: str, prefix: str
) -> dict[str, Any]:
    """Return the fields that docs/reference/census.md describes."""
    return {
        "store": address,
        "prefix": prefix,
        "revision": census.revision,
        "key": found.key,
        "verdict": verdict_of(found, known),
        "isKnown": None if known is None and not found.left else not is_unknown_key(found, known),
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
