"""Metrics in Prometheus' format. Labels have a closed set of values, so series are bounded.

Requests are counted in plain dictionaries, since that happens on every request; Prometheus' library
converts them when the metrics are scraped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5, 10)
KUBERNETES_COUNTERS: Final = (
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_rejection_count",
)
"""Counters whose names in Kubernetes lack `_total`."""
_LABELS: Final = ("verb", "group", "version", "resource", "subresource", "code")

Labels = tuple[str, str, str, str, str, str]
Values = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
"""Returns the value of each set of labels."""
Histogram = Callable[[], Iterable[tuple[tuple[str, ...], list[tuple[str, float]], float]]]
"""Returns, for each set of labels, the cumulative counts by bound, ending with `+Inf`, and the
sum."""


class Tally:
    """Number of requests with one set of labels."""

    __slots__ = ("_durations", "requests")

    def __init__(self, durations: _Durations | None) -> None:
        self.requests = 0
        self._durations = durations

    def add(self, seconds: float) -> None:
        """Count a request with its duration."""
        self.requests += 1
        durations = self._durations
        if durations is not None:
            durations.buckets[bisect_left(_BOUNDS, seconds)] += 1
            durations.sum_seconds += seconds


class _Durations:
    """Histogram of the durations of requests with one verb."""

    __slots__ = ("buckets", "sum_seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(_BOUNDS) + 1)
        self.sum_seconds = 0.0

    def cumulative(self) -> list[tuple[str, float]]:
        pairs: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self.buckets, strict=True):
            total += count
            pairs.append((bound, total))
        return pairs


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of all verbs except watches."""

    buckets: tuple[int, ...] = (0,) * (len(_BOUNDS) + 1)
    seconds: float = 0.0

    @property
    def requests(self) -> int:
        return sum(self.buckets)

    def since(self, before: Totals) -> Totals:
        """The difference to an earlier state."""
        pairs = zip(self.buckets, before.buckets, strict=True)
        return Totals(tuple(now - then for now, then in pairs), self.seconds - before.seconds)

    def slower_than(self, share: float) -> float | None:
        """Return a quantile of the durations: for a share of 0.01, the p99.

        It is the upper bound of a bucket, at most the largest bound. None without requests.
        """
        if not self.requests:
            return None
        allowed, slower, found = self.requests * share, 0, float(_BOUNDS[-1])
        for bound, count in zip(reversed(_BOUNDS), self.buckets[:0:-1], strict=True):
            slower += count  # all that took longer than this bound
            if slower > allowed:
                break
            found = float(bound)
        return found


class Metrics(Collector):
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._tallies: dict[Labels, Tally] = {}
        self._durations: dict[str, _Durations] = {}
        self._gauges: list[tuple[str, str, tuple[str, ...], Values]] = []
        self._counters: list[tuple[str, str, tuple[str, ...], Values]] = []
        self._histograms: list[tuple[str, str, tuple[str, ...], Histogram]] = []

    def count(self, labels: Labels, seconds: float) -> None:
        """Count a completed request, with the labels of a request that could be parsed."""
        self.tally(labels).add(seconds)

    def tally(self, labels: Labels) -> Tally:
        """The tally of these labels, for a caller that counts many requests."""
        found = self._tallies.get(labels)
        if found is None:
            verb = labels[0]
            durations = None
            if verb != "watch":
                durations = self._durations.setdefault(verb, _Durations())
            found = self._tallies[labels] = Tally(durations)
        return found

    def gauge(self, name: str, about: str, labels: tuple[str, ...], read: Values) -> None:
        """Add a gauge, which is read at each scrape. Raises ValueError for a name that ends in
        `_total`."""
        if name.endswith("_total"):
            raise ValueError(f"{name} is the name of a counter")
        self._gauges.append((name, about, labels, read))

    def counter(self, name: str, about: str, labels: tuple[str, ...], read: Values) -> None:
        """Add a counter, which only grows while the process runs and is read at each scrape. Raises
        ValueError for a name without `_total`, unless Kubernetes defines that name."""
        if not name.endswith("_total") and name not in KUBERNETES_COUNTERS:
            raise ValueError(f"{name} is not the name of a counter: it lacks _total")
        self._counters.append((name, about, labels, read))

    def histogram(self, name: str, about: str, labels: tuple[str, ...], read: Histogram) -> None:
        """Add a histogram, which is read at each scrape."""
        self._histograms.append((name, about, labels, read))

    def totals(self) -> Totals:
        """The current totals of all verbs."""
        found = list(self._durations.values())
        buckets = (sum(counts) for counts in zip(*(each.buckets for each in found), strict=True))
        return (
            Totals(tuple(buckets), sum(each.sum_seconds for each in found)) if found else Totals()
        )

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics for Prometheus' library."""
        requests = CounterMetricFamily(
            "apiserver_request",
            "Requests by resource, verb and status code.",
            labels=_LABELS,
        )
        for labels, tally in list(self._tallies.items()):
            if tally.requests:
                requests.add_metric(labels, tally.requests)
        yield requests
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "Time from the complete request to its response, without watches.",
            labels=("verb",),
        )
        for verb, found in list(self._durations.items()):
            durations.add_metric((verb,), found.cumulative(), found.sum_seconds)
        yield durations
        for name, about, label_names, read in self._gauges:
            gauge = GaugeMetricFamily(name, about, labels=label_names)
            for labels_of_one, value in read():
                gauge.add_metric(labels_of_one, value)
            yield gauge
        for name, about, label_names, read in self._counters:
            family = UnknownMetricFamily if name in KUBERNETES_COUNTERS else CounterMetricFamily
            counter = family(name, about, labels=label_names)
            for labels_of_one, value in read():
                counter.add_metric(labels_of_one, value)
            yield counter
        for name, about, label_names, measured in self._histograms:
            drawn = HistogramMetricFamily(name, about, labels=label_names)
            for labels_of_one, buckets, total in measured():
                drawn.add_metric(labels_of_one, buckets, total)
            yield drawn

    def document(self) -> bytes:
        """The text for a scrape."""
        text = generate_latest(self.registry)
        # The library supports no counter without `_total`, so it writes these as untyped.
        for name in KUBERNETES_COUNTERS:
            text = text.replace(
                f"# TYPE {name} untyped".encode(), f"# TYPE {name} counter".encode()
            )
        return text


class HealthMetrics(Collector):
    """Health check metrics with Kubernetes' names, in a separate document that is read often."""

    def __init__(self, *, states: Values, counts: Values) -> None:
        self._states = states
        self._counts = counts
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics for Prometheus' library."""
        states = GaugeMetricFamily(
            # KEP-2339 3.58: the metric of each health check
            "kubernetes_healthcheck",
            "Whether a health check currently passes: 1 or 0.",
            labels=("name", "type"),
        )
        for labels, value in self._states():
            states.add_metric(labels, value)
        yield states
        counts = CounterMetricFamily(
            "kubernetes_healthchecks",
            "Results of each health check that were returned to probes.",
            labels=("name", "type", "status"),
        )
        for labels, value in self._counts():
            counts.add_metric(labels, value)
        yield counts

    def document(self) -> bytes:
        return generate_latest(self._registry)
