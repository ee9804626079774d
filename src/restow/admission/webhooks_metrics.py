"""What webhooks have come to, counted by the reference's names.

A webhook is called by its name, which whoever may write configurations chooses. So there is a limit
to how many names are told apart; all others are one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, Literal

from restow.request.metrics import Metrics

NAMES_MAX: Final = 500
OTHERS: Final = "other"
CODE_MAX: Final = 600
_BOUNDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0)

Type = Literal["admit", "validating"]
ErrorType = Literal["calling_webhook_error", "apiserver_internal_error", "no_error"]


class WebhookMetrics:
    """Counts for all webhooks of one server."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._requests: Counter[tuple[str, ...]] = Counter()
        self._rejections: Counter[tuple[str, ...]] = Counter()
        self._failed_open: Counter[tuple[str, ...]] = Counter()
        self._excluded: Counter[tuple[str, ...]] = Counter()
        self._durations: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def asked(
        self, name: str, type_: Type, operation: str, *, code: int, rejected: bool, seconds: float
    ) -> None:
        """A webhook was asked."""
        name, said = self._known(name), str(rejected).lower()
        self._requests[name, type_, operation, str(min(code, CODE_MAX)), said] += 1
        labels = (name, type_, operation, said)
        buckets, total = self._durations.setdefault(labels, ([0] * (len(_BOUNDS) + 1), [0.0]))
        buckets[bisect_left(_BOUNDS, seconds)] += 1
        total[0] += seconds

    def rejected(
        self, name: str, type_: Type, operation: str, *, error_type: ErrorType, code: int
    ) -> None:
        """A write was refused because of a webhook."""
        labels = (self._known(name), type_, operation, error_type, str(min(code, CODE_MAX)))
        self._rejections[labels] += 1

    def failed_open(self, name: str, type_: Type) -> None:
        """A webhook could not be asked, and was left out."""
        self._failed_open[self._known(name), type_] += 1

    def excluded(self, name: str, type_: Type, operation: str) -> None:
        """A webhook's own conditions have kept it from being asked."""
        self._excluded[self._known(name), "webhook", type_, operation] += 1

    def publish(self, metrics: Metrics) -> None:
        """Show all of it."""
        prefix, of_hook = "apiserver_admission", ("name", "type")
        metrics.counter(
            f"{prefix}_webhook_request_total",
            "Admission webhooks asked, by name, kind of webhook, operation and what came of it.",
            (*of_hook, "operation", "code", "rejected"),
            lambda: list(self._requests.items()),
        )
        metrics.counter(
            f"{prefix}_webhook_rejection_count",
            "Writes refused because of an admission webhook, by name and reason.",
            (*of_hook, "operation", "error_type", "rejection_code"),
            lambda: list(self._rejections.items()),
        )
        metrics.counter(
            f"{prefix}_webhook_fail_open_count",
            "Admission webhooks that could not be asked and were left out.",
            of_hook,
            lambda: list(self._failed_open.items()),
        )
        metrics.counter(
            f"{prefix}_match_condition_exclusions_total",
            "Admission webhooks that were not asked because of their match conditions.",
            ("name", "kind", "type", "operation"),
            lambda: list(self._excluded.items()),
        )
        metrics.histogram(
            f"{prefix}_webhook_admission_duration_seconds",
            "How long admission webhooks took to answer.",
            (*of_hook, "operation", "rejected"),
            self._measured,
        )

    def _measured(self) -> Iterator[tuple[tuple[str, ...], list[tuple[str, float]], float]]:
        for labels, (buckets, total) in list(self._durations.items()):
            counts = accumulate(buckets)
            bounds = (*map(str, _BOUNDS), "+Inf")
            yield labels, list(zip(bounds, map(float, counts), strict=True)), total[0]

    def _known(self, name: str) -> str:
        if name in self._names:
            return name
        if len(self._names) >= NAMES_MAX:
            return OTHERS
        self._names.add(name)
        return name
