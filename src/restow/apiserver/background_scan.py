"""Periodic scan of the raw store by a main server.

Not here: the scan (`restow.storageversion.store_scan`).
"""

from __future__ import annotations

from restow.aio import Tasks
from restow.apiserver.assembly import Assembly
from restow.apiserver.options import ServeOptions
from restow.registry.reconcile_loops import repeat
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.store_scan import FIRST_SECONDS, BackgroundScan


def scan_in_background(
    options: ServeOptions, assembly: Assembly, coordinator: Coordinator, tasks: Tasks
) -> None:
    """Compare the StorageStates with the raw store periodically."""
    runtime, scanner = assembly.server.runtime, assembly.server.scanner
    if scanner is None or options.storage_scan_interval_seconds <= 0:
        return
    scan = BackgroundScan(
        scanner,
        runtime.clock,
        interval_seconds=options.storage_scan_interval_seconds,
        collects_first=lambda: coordinator.completed and coordinator.collector.collects_first,
    )
    assembly.metrics.gauge(
        "restow_storage_scan_completed_timestamp_seconds",
        "Time at which this server last completed a background scan of the store.",
        (),
        lambda: [] if scan.completed_at is None else [((), scan.completed_at)],
    )
    assembly.metrics.gauge(
        "restow_storage_scan_values",
        "Values counted by the last background scan.",
        (),
        lambda: [((), scan.values)],
    )

    async def run() -> None:
        await runtime.clock.sleep(min(FIRST_SECONDS, options.storage_scan_interval_seconds))
        await repeat("storage scan", scan.step, runtime)

    tasks.spawn_loop("storage scan", run())
