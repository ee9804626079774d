"""Counts raw values by location, stored form and encryption key, without decoding objects.

Shared by the census of a store and a server's StorageScan. Keys may come in any order; it is
fastest in key order, as a store yields them.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from restow.census.resource_names import is_whole, root_of
from restow.census.values import Stored

Scope = Literal["Cluster", "Namespaced", "Other"]
"""Number of key segments after the root of the resource: one, two, or another number; also
`Other` if a segment is empty."""

_SCOPES: Final[dict[int, Scope]] = {0: "Cluster", 1: "Namespaced"}


class ValueLocation(NamedTuple):
    """The properties that all values of a group share."""

    root: str
    scope: Scope
    stored: Stored
    key_id: str = ""
    """ID of the encryption key, if the value was decrypted."""


class ValueGroup:
    """Values that are stored in the same way: their number, and sample keys."""

    __slots__ = ("_last_sample", "first_create_revision", "keys", "values")

    def __init__(self) -> None:
        self.values = 0
        self.keys: list[str] = []
        self.first_create_revision = 0
        self._last_sample = ""
        """Only keys before this one can still become samples; empty: any key can."""

    def add(self, key: str, samples_max: int, created: int = 0) -> None:
        self.values += 1
        if not self.first_create_revision or created < self.first_create_revision:
            self.first_create_revision = created
        if not self._last_sample or key < self._last_sample:
            self._add_sample(key, samples_max)

    def _add_sample(self, key: str, samples_max: int) -> None:
        """Keep the first keys in order, as keys may be added in any order."""
        keys = self.keys
        keys.append(key)
        if len(keys) > 2 * samples_max:
            keys.sort()
            del keys[samples_max:]
            self._last_sample = keys[-1] if keys else "\0"

    def samples(self, samples_max: int) -> tuple[str, ...]:
        """The first keys, in order."""
        return tuple(sorted(self.keys)[:samples_max])


class Counter:
    """Counts the values of a store under a prefix."""

    def __init__(self, prefix: str, *, samples_max: int) -> None:
        self.groups: dict[ValueLocation, ValueGroup] = {}
        self._prefix = prefix
        self._samples_max = samples_max
        self._root = ""
        self._is_whole = False
        """Whether all keys with the prefix `_start` belong to this root."""
        self._start = prefix
        """Key prefix of the resource that was counted last."""

    def add_as(
        self, key: str, stored: Stored, *, created: int = 0, key_id: str = ""
    ) -> ValueLocation:
        """Count a value with this form."""
        if not self._is_whole or not key.startswith(self._start):
            self._root = root_of(key[len(self._prefix) :])
            self._is_whole = is_whole(self._root)
            self._start = f"{self._prefix}{self._root}/" if self._root else self._prefix
        scope = _SCOPES.get(key.count("/", len(self._start)), "Other")
        if not self._is_whole or "//" in key or key.endswith("/"):
            scope = "Other"  # no name, or no namespace
        place = ValueLocation(self._root, scope, stored, key_id)
        group = self.groups.get(place)
        if group is None:
            group = self.groups[place] = ValueGroup()
        group.add(key, self._samples_max, created)
        return place
