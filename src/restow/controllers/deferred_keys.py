"""Work queue keys that are deferred until this server hosts a missing resource.

This server may not host a kind yet that others do. Until it does, nothing can be concluded about
such objects, and no key may be dropped. Not here: how the keys are processed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

KEYS_MAX: Final = 500_000

logger = logging.getLogger(__name__)


class MissingKind(NamedTuple):
    """A kind that is not hosted: that of an object, or that of an owner."""

    segment: str = ""
    """The resource of an object, as in `ObjectLocations.resource_at`."""
    api_version: str = ""
    kind: str = ""

    @property
    def group(self) -> str:
        return (self.segment or self.api_version).rpartition("/")[0]


class DeferredKeys:
    """Keys by the missing resource."""

    def __init__(self, *, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._count = 0
        self._waiting: dict[str, dict[MissingKind, set[str]]] = {}

    def __len__(self) -> int:
        return self._count

    def defer(self, key: str, lacking: MissingKind) -> None:
        """Defer a key until the resource is hosted."""
        if self._count >= self._keys_max:
            logger.warning("%s is not processed: too many keys wait for missing kinds", key)
            return
        keys = self._waiting.setdefault(lacking.group, {}).setdefault(lacking, set())
        self._count += key not in keys
        keys.add(key)

    def take(self, group: str, is_hosted: Callable[[MissingKind], bool]) -> set[str]:
        """Return the keys of a group whose resource is hosted now."""
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
