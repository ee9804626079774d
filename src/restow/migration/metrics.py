"""Metrics of trigger and migrator, in their own registry, in the Prometheus text format.

The names of kube-storage-version-migrator are kept exactly, including counters without `_total`, so
that its dashboards keep working; all other names begin with `restow_`.

Label values are bounded: actions, outcomes, reasons and statuses are closed sets, and resources
beyond a limit share the label `other`.

Not here: the HTTP endpoint (`probes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from restow.aio import Clock
from restow.apimachinery import status
from restow.migration.event_sinks import PageCounts
from restow.migration.migrator.server_rewrite import REWRITE_FAILED
from restow.migration.names import FAILED, SUCCEEDED
from restow.migration.trigger import actions

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
RESOURCES_MAX: Final = 2_000
OTHER: Final = "other"
RATE_SECONDS: Final = 10.0
RATE_PAGES_MAX: Final = 1_000
_DURATION_BOUNDS: Final = tuple(float(120 * 2**step) for step in range(7))
"""Seven bounds, from two minutes, doubling."""

_KSVM: Final = "storage_migrator_core_migrator_"
_MIGRATED: Final = f"{_KSVM}migrated_objects"
_MIGRATIONS: Final = f"{_KSVM}migrations"

_ACTIONS: Final = frozenset(
    each.__name__
    for each in (
        actions.CreateState,
        actions.UpdateState,
        actions.Narrow,
        actions.CreateMigration,
        actions.DeleteMigration,
        actions.Wait,
        actions.Nothing,
    )
)
_STATUSES: Final = frozenset({SUCCEEDED, FAILED, "Aborted"})
_REASONS: Final = frozenset(
    each.reason
    for each in vars(status).values()
    if isinstance(each, type) and issubclass(each, status.StatusError) and each.reason
) | {REWRITE_FAILED, "ConnectionFailed", "Unknown"}

_Labels = tuple[str, ...]


class _Counts:
    """Values by their labels."""

    def __init__(self) -> None:
        self._values: dict[_Labels, float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        self._values[labels] = self._values.get(labels, 0) + by

    def put(self, value: float, *labels: str) -> None:
        self._values[labels] = value

    def forget(self, *labels: str) -> None:
        self._values.pop(labels, None)

    def items(self) -> Iterable[tuple[_Labels, float]]:
        return list(self._values.items())


class _Durations:
    """Histogram of the durations of migrations of one resource."""

    def __init__(self) -> None:
        self._buckets = [0] * len(_DURATION_BOUNDS)
        self._count = 0
        self.sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        self._count += 1
        self.sum_seconds += seconds
        for index, bound in enumerate(_DURATION_BOUNDS):
            self._buckets[index] += seconds <= bound

    def cumulative(self) -> list[tuple[str, float]]:
        pairs = zip(_DURATION_BOUNDS, self._buckets, strict=True)
        return [*((f"{bound:g}", float(n)) for bound, n in pairs), ("+Inf", float(self._count))]


class _Rate:
    """Objects per second, over the last seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pages: deque[tuple[float, int]] = deque(maxlen=RATE_PAGES_MAX)

    def add(self, objects: int) -> None:
        self._pages.append((self._clock.monotonic(), objects))

    def per_second(self) -> float:
        begin = self._clock.monotonic() - RATE_SECONDS
        while self._pages and self._pages[0][0] < begin:
            self._pages.popleft()
        return sum(objects for _, objects in self._pages) / RATE_SECONDS


def _ignore(_name: str) -> None:
    pass


class ControllerMetrics(Collector):
    """Metrics of one controller process: `TriggerMetrics`, `MigratorMetrics`, and its own."""

    def __init__(
        self,
        clock: Clock,
        *,
        on_success: Callable[[str], None] = _ignore,
        on_trouble: Callable[[str], None] = _ignore,
        resources_max: int = RESOURCES_MAX,
    ) -> None:
        """The callbacks get the name of a controller that has made progress, or has failed."""
        self.registry = CollectorRegistry()
        self._on_success, self._on_trouble = on_success, on_trouble
        self._clock = clock
        self._resources: set[str] = set()
        self._resources_max = resources_max
        self._migrated, self._remaining, self._migrations = _Counts(), _Counts(), _Counts()
        self._durations: dict[str, _Durations] = {}
        self._rates: dict[str, _Rate] = {}
        self._objects, self._failed, self._pages = _Counts(), _Counts(), _Counts()
        self._in_flight = _Counts()
        self._decisions, self._trigger_failures, self._states = _Counts(), _Counts(), _Counts()
        self._leaders, self._restarts, self._events = _Counts(), _Counts(), _Counts()
        self._healthy: Callable[[], Mapping[str, bool]] = dict
        self.registry.register(self)

    # TriggerMetrics.

    def decided(self, resource: str, action: str) -> None:
        self._decisions.add(action if action in _ACTIONS else OTHER)

    def failed(self, resource: str) -> None:
        self._trigger_failures.add()
        self._on_trouble("trigger")

    def states(self, *, agreed: int, split: int) -> None:
        self._states.put(agreed, "agreed")
        self._states.put(split, "split")
        self._on_success("trigger")

    # MigratorMetrics.

    def page(self, resource: str, done: PageCounts) -> None:
        label = self._known(resource)
        self._pages.add(label)
        self._migrated.add(label, by=done.rewritten)
        for outcome in ("rewritten", "unchanged", "settled", "failed"):
            self._objects.add(label, outcome, by=getattr(done, outcome))
        self._rates.setdefault(label, _Rate(self._clock)).add(done.scanned)
        self._on_success("migrator")

    def remaining(self, resource: str, count: int | None) -> None:
        label = self._known(resource)
        if count is None:
            self._remaining.forget(label)
        else:
            self._remaining.put(count, label)

    def in_flight(self, resource: str, count: int) -> None:
        self._in_flight.put(count, self._known(resource))

    def ended(self, resource: str, status: str, seconds: float) -> None:
        label = self._known(resource)
        self._migrations.add(label, status if status in _STATUSES else OTHER)
        self._durations.setdefault(label, _Durations()).add(max(seconds, 0.0))
        self._in_flight.put(0, label)

    def object_failed(self, resource: str, reason: str) -> None:
        self._failed.add(self._known(resource), reason if reason in _REASONS else OTHER)

    # Metrics of the process.

    def set_leading(self, name: str, *, is_leading: bool) -> None:
        """Set whether this process leads a controller."""
        self._leaders.put(float(is_leading), name)

    def restarted(self, name: str) -> None:
        """Count a controller that failed as a whole and is restarted."""
        self._restarts.add(name)

    def event_written(self) -> None:
        self._events.add("written")

    def event_dropped(self) -> None:
        self._events.add("dropped")

    def health(self, read: Callable[[], Mapping[str, bool]]) -> None:
        """Set the function that returns the health of each part."""
        self._healthy = read

    # Exposition.

    def document(self) -> bytes:
        text = generate_latest(self.registry)
        # prometheus_client has no counters without `_total`, so these are emitted as untyped.
        for name in (_MIGRATED, _MIGRATIONS):
            text = text.replace(
                f"# TYPE {name} untyped".encode(), f"# TYPE {name} counter".encode()
            )
        return text

    def collect(self) -> Iterator[Metric]:
        """Collect all metrics, as `Collector` requires."""
        yield from self._of_ksvm()
        yield from self._of_migrator()
        yield from self._of_trigger()
        yield from self._of_process()

    def _of_ksvm(self) -> Iterator[Metric]:
        by_resource = ("resource",)
        yield _bare(_MIGRATED, "Objects that were rewritten.", by_resource, self._migrated)
        yield _gauge(
            f"{_KSVM}remaining_objects",
            "Objects that a running migration has still to check.",
            by_resource,
            self._remaining,
        )
        yield _bare(
            _MIGRATIONS,
            "Migrations that have ended, by their status.",
            ("resource", "status"),
            self._migrations,
        )
        durations = HistogramMetricFamily(
            f"{_KSVM}migration_duration_seconds",
            "Duration of a migration.",
            labels=by_resource,
        )
        for resource, found in list(self._durations.items()):
            durations.add_metric((resource,), found.cumulative(), found.sum_seconds)
        yield durations

    def _of_migrator(self) -> Iterator[Metric]:
        yield _counter("restow_migrator_pages", "Processed pages.", ("resource",), self._pages)
        yield _counter(
            "restow_migrator_objects",
            "Objects that were checked, in all passes, by outcome.",
            ("resource", "outcome"),
            self._objects,
        )
        yield _counter(
            "restow_migrator_failed_objects",
            "Objects that could not be rewritten, by the reason.",
            ("resource", "reason"),
            self._failed,
        )
        yield _gauge(
            "restow_migrator_in_flight",
            "Writes of single objects in flight.",
            ("resource",),
            self._in_flight,
        )
        rate = GaugeMetricFamily(
            "restow_migrator_objects_per_second",
            f"Objects checked, over the last {RATE_SECONDS:g} seconds.",
            labels=("resource",),
        )
        for resource, found in list(self._rates.items()):
            rate.add_metric((resource,), found.per_second())
        yield rate

    def _of_trigger(self) -> Iterator[Metric]:
        yield _counter(
            "restow_trigger_decisions",
            "Actions of the trigger that were done.",
            ("action",),
            self._decisions,
        )
        yield _counter(
            "restow_trigger_failures",
            "Failures to read or update a resource, each of which is retried.",
            (),
            self._trigger_failures,
        )
        yield _gauge(
            "restow_trigger_resources",
            "Resources, by whether their servers agree on the version that they write.",
            ("agreement",),
            self._states,
        )

    def _of_process(self) -> Iterator[Metric]:
        yield _gauge(
            "restow_controllers_leader",
            "Whether this process is the leader: 1 or 0.",
            ("name",),
            self._leaders,
        )
        yield _counter(
            "restow_controllers_restarts",
            "Restarts of controllers that failed as a whole.",
            ("name",),
            self._restarts,
        )
        yield _counter(
            "restow_controllers_events",
            "Kubernetes Events, by whether they were written or dropped.",
            ("outcome",),
            self._events,
        )
        healthy = GaugeMetricFamily(
            "restow_controllers_healthy",
            "Whether a part of this process is healthy: 1 or 0.",
            labels=("name",),
        )
        for name, is_healthy in self._healthy().items():
            healthy.add_metric((name,), float(is_healthy))
        yield healthy

    def _known(self, resource: str) -> str:
        """The label of a resource; `other` beyond the limit."""
        if resource not in self._resources:
            if len(self._resources) >= self._resources_max:
                return OTHER
            self._resources.add(resource)
        return resource


def _bare(name: str, about: str, labels: _Labels, counts: _Counts) -> Metric:
    """A counter without the suffix `_total`."""
    family = Metric(name, about, "unknown")
    for values, count in counts.items():
        family.add_sample(name, dict(zip(labels, values, strict=True)), count)
    return family


def _counter(name: str, about: str, labels: _Labels, counts: _Counts) -> Metric:
    family = CounterMetricFamily(name, about, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family


def _gauge(name: str, about: str, labels: _Labels, counts: _Counts) -> Metric:
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family
