"""What coordination shows on `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from restow.request.metrics import Metrics
from restow.storageversion.coordinator import Coordinator

Values = Iterable[tuple[tuple[str, ...], float]]


def publish_coordination(coordinator: Coordinator, metrics: Metrics) -> None:
    """Add the figures of one server's coordination."""
    membership, collector = coordinator.membership, coordinator.collector
    agreements = coordinator.agreements
    single: dict[str, tuple[str, Callable[[], float | None]]] = {
        "restow_identity_lease_age_seconds": (
            "Time since the last renewal of this server's identity.",
            lambda: membership.age_seconds if membership.is_member else None,
        ),
        "restow_storage_version_registration_seconds": (
            "How long the last registration of all resources has taken.",
            lambda: coordinator.registration_seconds,
        ),
        "restow_storage_version_registration_conflicts": (
            "Registrations that were overtaken by another server's and repeated.",
            lambda: coordinator.registrar.conflicts,
        ),
        "restow_fence_rejections": (
            "Writes that the fence has stopped, to be encoded anew.",
            lambda: coordinator.table.fence_failures,
        ),
        "restow_collector_servers_removed": (
            "Dead servers that this one has removed.",
            lambda: collector.servers_removed,
        ),
        "restow_collector_entries_removed": (
            "Entries of dead servers that this one has removed from reports.",
            lambda: collector.entries_removed,
        ),
    }
    for name, (about, read) in single.items():
        metrics.gauge(name, about, (), _values(read))
    metrics.gauge(
        "restow_storage_version_agreement",
        "Whether all servers write a resource in one version: 1 or 0.",
        ("resource",),
        lambda: [((name,), float(agreed)) for name, agreed in agreements.agreed.items()],
    )
    metrics.gauge(
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
