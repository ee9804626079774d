"""What a server publishes about itself on its identity lease.

How many requests it has answered how fast, and why it refuses its encryption configuration file:
written with each renewal, so that one watch of the leases has it of all servers, whichever of them
is asked. Only people read the figures. A refused file blocks an upgrade, since the server would not
start with it. Not here: the lease itself, and who and where the server is; both are the
membership's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from restow.apis.names import ENCRYPTION_PROBLEM_ANNOTATION, FIGURES_ANNOTATION
from restow.encryption.key_reload import ReloadedKeys
from restow.request.metrics import Metrics, Totals

SLOW_SHARE: Final = 0.01
"""A request is slow that belongs to the slowest hundredth."""

REASON_CHARACTERS_MAX: Final = 1000


class LeaseNotes:
    """Call it for the annotations of the next renewal."""

    def __init__(self, metrics: Metrics, keys: ReloadedKeys | None = None) -> None:
        self._metrics = metrics
        self._keys = keys
        self._before = Totals()

    def __call__(self) -> Mapping[str, str]:
        totals = self._metrics.totals()
        since, self._before = totals.since(self._before), totals
        figures: dict[str, float | None] = {
            "requests": totals.requests,
            "seconds": round(totals.seconds, 6),
            "p99Seconds": since.slower_than(SLOW_SHARE),
        }
        notes = {FIGURES_ANNOTATION: orjson.dumps(figures).decode()}
        if self._keys is not None and self._keys.last_error:
            reason = self._keys.last_error[:REASON_CHARACTERS_MAX]
            notes[ENCRYPTION_PROBLEM_ANNOTATION] = f"{self._keys.path}: {reason}"
        return notes
