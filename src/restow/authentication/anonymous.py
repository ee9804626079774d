"""Who may come without a credential: everybody, nobody, or whoever asks for certain paths.

Not here: what somebody without a name may do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymousAccess:
    """Where requests without a credential are let in as `system:anonymous`."""

    enabled: bool = True
    paths: frozenset[str] = frozenset()
    """Only these, letter by letter as they are asked for; none: all."""

    def lets_in(self, path: str) -> bool:
        return self.enabled and (not self.paths or path in self.paths)


EVERYWHERE: Final = AnonymousAccess()
NOWHERE: Final = AnonymousAccess(enabled=False)
