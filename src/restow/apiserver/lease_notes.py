"""Annotations that a server publishes on its identity lease.

They contain request counts and latencies, and the reason why it rejects its encryption
configuration file. They are written with each renewal, so that one watch of the leases covers all
servers. The figures are for display only. A rejected file blocks an upgrade, since the server would
not start with it. Not here: the lease itself and the server's identity and address, which belong
to the membership.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from restow.apis.names import ENCRYPTION_PROBLEM_ANNOTATION, FIGURES_ANNOTATION
from restow.encryption.key_reload import ReloadedKeys
from restow.request.metrics import Metrics, Totals

SLOW_SHARE: Final = 0.01
"""The slow requests are those above p99."""

REASON_CHARACTERS_MAX: Final = 1000


class LeaseNotes:
    """Returns the annotations of the next renewal when called."""

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
