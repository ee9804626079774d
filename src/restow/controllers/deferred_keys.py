"""Keys that cannot be worked on before something is hosted here, until it is.

A kind that this server does not host may be one that it does not host yet: nothing may be
concluded from that, and nothing may be forgotten. Not here: what is done with the keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

KEYS_MAX: Final = 500_000

logger = logging.getLogger(__name__)


class MissingKind(NamedTuple):
    """What is not hosted: the place of an object, or the kind of an owner."""

    segment: str = ""
    """As in `Places.resource_at`."""
    api_version: str = ""
    kind: str = ""

    @property
    def group(self) -> str:
        return (self.segment or self.api_version).rpartition("/")[0]


class DeferredKeys:
    """Keys by what they wait for."""

    def __init__(self, *, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._count = 0
        self._waiting: dict[str, dict[MissingKind, set[str]]] = {}

    def __len__(self) -> int:
        return self._count

    def park(self, key: str, lacking: MissingKind) -> None:
        """Keep a key until something is hosted."""
        if self._count >= self._keys_max:
            logger.warning("%s is left alone: too many wait for kinds not hosted here", key)
            return
        keys = self._waiting.setdefault(lacking.group, {}).setdefault(lacking, set())
        self._count += key not in keys
        keys.add(key)

    def take(self, group: str, is_hosted: Callable[[MissingKind], bool]) -> set[str]:
        """Something has changed in a group: the keys that need wait no more."""
        waiting = self._waiting.get(group, {})
        ended = [lacking for lacking in waiting if is_hosted(lacking)]
        found: set[str] = set()
        for lacking in ended:
            keys = waiting.pop(lacking)
            self._count -= len(keys)
            found |= keys
        if not waiting:
            self._waiting.pop(group, None)
        return found

    def clear(self) -> None:
        self._waiting.clear()
        self._count = 0
