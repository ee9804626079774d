"""The ledger of worlds with advice: without the rules that their operators break on purpose.

The remaining rules: every acknowledged write is stored, no update is lost, no server that has
renewed its lease is removed, and no identity or StorageVersion is forged.
"""

from __future__ import annotations

from typing import Any, Final

from restow.storage.interface import Key
from tests.support.sim.ledger import Ledger

EXCUSED: Final = frozenset({"F3", "A3", "A4", "M5", "R6", "F2"})
"""Values that bypassed the servers, and kinds that change their scope, make lists fail."""


class LenientLedger(Ledger):
    """See the module. `soundness` checks what servers may write and must list."""

    def _listed(self, name: str) -> None:
        return None

    def _readable(self, name: str, versions: set[str]) -> None:
        return None

    def _written(self, sender: str, name: str, version: str) -> None:
        return None

    def _defined(self, sender: str, root: str, version: str) -> None:
        return None

    def _complete(self, name: str, request: dict[str, Any]) -> None:
        return None

    def _rewritten(self, key: Key) -> None:
        self.counts["rewrites"] += 1
        self.notice("rewritten")
