"""What a server says about itself on its identity lease, for people who look at the cluster.

How many requests it has answered how fast: written with each renewal, so that one watch of the
leases tells it of all servers, whichever of them is asked. No program decides anything by it. Not
here: the lease itself, and who and where the server is; both are the membership's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from restow.apis.names import FIGURES_ANNOTATION
from restow.request.metrics import Metrics, Totals

SLOW_SHARE: Final = 0.01
"""A request is slow that belongs to the slowest hundredth."""


class LeaseNotes:
    """Call it for the annotations of the next renewal."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before = Totals()

    def __call__(self) -> Mapping[str, str]:
        totals = self._metrics.totals()
        since, self._before = totals.since(self._before), totals
        figures: dict[str, float | None] = {
            "requests": totals.requests,
            "seconds": round(totals.seconds, 6),
            "p99Seconds": since.slower_than(SLOW_SHARE),
        }
        return {FIGURES_ANNOTATION: orjson.dumps(figures).decode()}
