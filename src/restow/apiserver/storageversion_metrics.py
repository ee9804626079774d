"""Metrics of storage version coordination."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from restow.request.metrics import Metrics
from restow.storageversion.coordinator import Coordinator

Values = Iterable[tuple[tuple[str, ...], float]]


def publish_coordination(coordinator: Coordinator, metrics: Metrics) -> None:
    """Add the metrics of one server's coordination."""
    membership, collector = coordinator.membership, coordinator.collector
    agreements = coordinator.agreements
    metrics.gauge(
        "restow_identity_lease_age_seconds",
        "Time since the last renewal of this server's identity Lease.",
        (),
        _values(lambda: membership.age_seconds if membership.is_member else None),
    )
    metrics.gauge(
        # KEP-2339 3.65: how long the registration took
        "restow_storage_version_registration_seconds",
        "Duration of the last registration of all resources.",
        (),
        _values(lambda: coordinator.registration_seconds),
    )
    metrics.counter(
        "restow_storage_version_registration_conflicts_total",
        "Registrations that conflicted with one of another server and were retried.",
        (),
        _values(lambda: coordinator.registrar.conflicts),
    )
    metrics.counter(
        "restow_fence_rejections_total",
        "Writes that the fence rejected and that were encoded again.",
        (),
        _values(lambda: coordinator.table.fence_failures),
    )
    metrics.counter(
        "restow_lease_write_rejections_total",
        "Writes that this server refused because it had not renewed its identity lease in time.",
        (),
        _values(lambda: coordinator.lease.refused),
    )
    metrics.counter(
        "restow_collector_servers_removed_total",
        "Servers whose lease expired and that this server removed.",
        (),
        _values(lambda: collector.servers_removed),
    )
    metrics.counter(
        "restow_collector_entries_removed_total",
        "Entries of expired servers that this server removed from StorageVersions.",
        (),
        _values(lambda: collector.entries_removed),
    )
    metrics.gauge(
        "restow_storage_version_agreement",
        "Whether all servers write a resource in one version: 1 or 0.",
        ("resource",),
        lambda: [((name,), float(agreed)) for name, agreed in agreements.agreed.items()],
    )
    metrics.gauge(
        # KEP-2339 3.65: how long the servers took to agree
        "restow_storage_version_agreement_seconds",
        "How long the last disagreement about a resource has lasted, as seen by this server.",
        ("resource",),
        lambda: [((name,), value) for name, value in agreements.seconds_to_agree.items()],
    )


def _values(read: Callable[[], float | None]) -> Callable[[], Values]:
    def values() -> Values:
        value = read()
        return [] if value is None else [((), value)]

    return values
