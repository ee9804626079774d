"""What is left under one encryption key: the proof that nobody needs it any more.

A value says in its first bytes under which provider and which name it was encrypted, and under KMS
v2 also which key of the plug-in. It does not say which secret goes by that name: two secrets of one
name are counted as one key, which errs on the safe side.

Counted is what a census counts: the newest value of each object. Older revisions that are not
compacted yet are not among them, nor are backups.

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
    """The objects that are stored under a key, by their resources."""

    key: str
    left: tuple[tuple[str, Row], ...]
    undecided: tuple[tuple[str, Row], ...]
    """Values that are encrypted, and do not say under which key."""
    apart: tuple[tuple[str, Row], ...] = ()
    """What is under the key in resources that are not counted."""

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
    """What a census has found under a key, of the resources that are counted.

    The key is called as people call it: `key1`, `aesgcm:key1`, `kms:vault`, `kms:vault:7`, with or
    without the fingerprint; `identity` stands for values that are not encrypted.
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
    """Whether a value is stored under a key; None if that cannot be known."""
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
    # The fingerprint of a secret stands in no value.
    name, _, _ = rest.partition(":")
    return (provider, name) == (stored.provider, stored.key) if rest else key == stored.key
