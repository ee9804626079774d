"""Metrics of a server's storage version registration and agreements."""

from __future__ import annotations

from pathlib import Path

from restow.apiserver.storageversion_metrics import publish_coordination
from restow.request.metrics import Metrics
from tests.unit.storageversion.world import open_world

DISAGREEMENT_SECONDS = 20.0


async def test_durations_of_registration_and_agreement(tmp_path: Path) -> None:
    """The metrics have the duration of the registration and of the last disagreement."""
    async with open_world(tmp_path) as world:
        old = await world.started("x+1")
        new = await world.started("x+2")
        metrics = Metrics()
        publish_coordination(new.coordinator, metrics)
        read = metrics.registry.get_sample_value
        registration = "restow_storage_version_registration_seconds"
        assert read(registration) == new.coordinator.registration_seconds
        await world.clock.advance(DISAGREEMENT_SECONDS)
        labels = {"resource": "example.com.widgets"}
        assert read("restow_storage_version_agreement", labels) == 0
        assert read("restow_storage_version_agreement_seconds", labels) is None
        await world.run(old.stop())
        await world.clock.advance(1)
        assert read("restow_storage_version_agreement", labels) == 1
        seconds = read("restow_storage_version_agreement_seconds", labels)
        assert seconds is not None
        assert DISAGREEMENT_SECONDS <= seconds < DISAGREEMENT_SECONDS + 2
