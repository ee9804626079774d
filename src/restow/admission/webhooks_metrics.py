"""Metrics of admission webhooks, with the names that kube-apiserver uses.

Anyone who may write configurations chooses the webhook names, so the number of distinct names is
limited; all others share one label value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, Literal

from restow.request.metrics import Metrics

NAMES_MAX: Final = 500
OTHER_NAMES: Final = "other"
CODE_MAX: Final = 600
_BOUNDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0)

Type = Literal["admit", "validating"]
ErrorType = Literal["calling_webhook_error", "apiserver_internal_error", "no_error"]


class WebhookMetrics:
    """The metrics of all webhooks of one server."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._requests: Counter[tuple[str, ...]] = Counter()
        self._rejections: Counter[tuple[str, ...]] = Counter()
        self._failed_open: Counter[tuple[str, ...]] = Counter()
        self._excluded: Counter[tuple[str, ...]] = Counter()
        self._durations: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def called(
        self, name: str, type_: Type, operation: str, *, code: int, rejected: bool, seconds: float
    ) -> None:
        """Count a webhook call."""
        name, is_rejected = self._name_label(name), str(rejected).lower()
        self._requests[name, type_, operation, str(min(code, CODE_MAX)), is_rejected] += 1
        labels = (name, type_, operation, is_rejected)
        buckets, total = self._durations.setdefault(labels, ([0] * (len(_BOUNDS) + 1), [0.0]))
        buckets[bisect_left(_BOUNDS, seconds)] += 1
        total[0] += seconds

    def rejected(
        self, name: str, type_: Type, operation: str, *, error_type: ErrorType, code: int
    ) -> None:
        """Count a write that was refused because of a webhook."""
        labels = (self._name_label(name), type_, operation, error_type, str(min(code, CODE_MAX)))
        self._rejections[labels] += 1

    def failed_open(self, name: str, type_: Type) -> None:
        """Count a failed call that the failure policy ignored."""
        self._failed_open[self._name_label(name), type_] += 1

    def excluded(self, name: str, type_: Type, operation: str) -> None:
        """Count a webhook that was skipped because of its match conditions."""
        self._excluded[self._name_label(name), "webhook", type_, operation] += 1

    def publish(self, metrics: Metrics) -> None:
        """Register the metrics."""
        prefix, of_hook = "apiserver_admission", ("name", "type")
        metrics.counter(
            f"{prefix}_webhook_request_total",
            "Admission webhook calls, by name, type, operation, code and rejection of the write.",
            (*of_hook, "operation", "code", "rejected"),
            lambda: list(self._requests.items()),
        )
        metrics.counter(
            f"{prefix}_webhook_rejection_count",
            "Writes rejected because of an admission webhook, by name and reason.",
            (*of_hook, "operation", "error_type", "rejection_code"),
            lambda: list(self._rejections.items()),
        )
        metrics.counter(
            f"{prefix}_webhook_fail_open_count",
            "Failed admission webhook calls that the failure policy ignored.",
            of_hook,
            lambda: list(self._failed_open.items()),
        )
        metrics.counter(
            f"{prefix}_match_condition_exclusions_total",
            "Admission webhooks skipped because of their match conditions.",
            ("name", "kind", "type", "operation"),
            lambda: list(self._excluded.items()),
        )
        metrics.histogram(
            f"{prefix}_webhook_admission_duration_seconds",
            "Duration of admission webhook calls.",
            (*of_hook, "operation", "rejected"),
            self._measured,
        )

    def _measured(self) -> Iterator[tuple[tuple[str, ...], list[tuple[str, float]], float]]:
        for labels, (buckets, total) in list(self._durations.items()):
            counts = accumulate(buckets)
            bounds = (*map(str, _BOUNDS), "+Inf")
            yield labels, list(zip(bounds, map(float, counts), strict=True)), total[0]

    def _name_label(self, name: str) -> str:
        if name in self._names:
            return name
        if len(self._names) >= NAMES_MAX:
            return OTHER_NAMES
        self._names.add(name)
        return name
