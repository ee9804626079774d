"""Anonymous access: enabled, disabled, or enabled for some paths.

Not here: the rights of anonymous users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymousAccess:
    """The paths at which requests without a credential are accepted as `system:anonymous`."""

    enabled: bool = True
    paths: frozenset[str] = frozenset()
    """Only these exact paths; empty: all paths."""

    def allows(self, path: str) -> bool:
        return self.enabled and (not self.paths or path in self.paths)


EVERYWHERE: Final = AnonymousAccess()
NOWHERE: Final = AnonymousAccess(enabled=False)
