"""Counts the objects that are still encrypted with one key, to show that it can be removed.

The first bytes of a value name its provider and key, and for KMS v2 also the key of the plug-in.
They do not identify the secret: two secrets of one name are counted as one key, which is the safe
direction.

It counts what a census counts: the newest value of each object. Older revisions that are not yet
compacted are not included, nor are backups.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from restow.census.tally import Census, Row
from restow.census.values import IDENTITY, UNREADABLE_SEAL, Stored

_KMS: Final = "kms"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCount:
    """Objects that are stored under a key, by resource."""

    key: str
    left: tuple[tuple[str, Row], ...]
    undecided: tuple[tuple[str, Row], ...]
    """Encrypted values that do not name their key."""
    apart: tuple[tuple[str, Row], ...] = ()
    """Objects under the key in resources that are not selected."""

    @property
    def objects_apart(self) -> int:
        return sum(row.objects for _, row in self.apart)

    @property
    def objects(self) -> int:
        return sum(row.objects for _, row in self.left)

    @property
    def objects_undecided(self) -> int:
        return sum(row.objects for _, row in self.undecided)


def count_key(
    census: Census, key: str, *, is_counted: Callable[[str], bool] = lambda _: True
) -> KeyCount:
    """Count the objects under a key in a census, for the selected resources.

    The key is named as users name it: `key1`, `aesgcm:key1`, `kms:vault`, `kms:vault:7`, with or
    without the fingerprint; `identity` means values that are not encrypted.
    """
    left: list[tuple[str, Row]] = []
    undecided: list[tuple[str, Row]] = []
    apart: list[tuple[str, Row]] = []
    for each in census.resources:
        counts = is_counted(each.resource)
        for row in each.rows:
            match is_under(row.stored, key):
                case True:
                    (left if counts else apart).append((each.resource, row))
                case None if counts:
                    undecided.append((each.resource, row))
                case _:
                    pass
    return KeyCount(key=key, left=tuple(left), undecided=tuple(undecided), apart=tuple(apart))


def is_under(stored: Stored, key: str) -> bool | None:
    """Whether a value is stored under a key; None if that is unknown."""
    if stored == UNREADABLE_SEAL:
        return None if key != IDENTITY else False
    if stored.form != "encrypted":
        return key == IDENTITY and stored.form != "unreadable"
    provider, _, rest = key.partition(":")
    if provider == _KMS and ":" in rest:
        name, _, key_id = rest.partition(":")
        if (stored.provider, stored.key) != (_KMS, name):
            return False
        return stored.key_id == key_id if stored.key_id else None
    # Values do not contain the fingerprint of a secret.
    name, _, _ = rest.partition(":")
    return (provider, name) == (stored.provider, stored.key) if rest else key == stored.key
