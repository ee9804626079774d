"""How a server repairs a failed fence while the store fails too."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from restow.apimachinery.status_error import StatusError
from restow.storage.errors import Unavailable
from restow.storage.interface import Delete, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.identity import ServerId
from restow.storageversion.records import encoder_key
from tests.scenarios.cluster import WIDGETS, open_cluster
from tests.scenarios.runner import Runner, Scenario

pytestmark = pytest.mark.area("coordination")


@pytest.mark.parametrize("seed", range(8))
async def test_a_failed_repair_is_retried_without_a_request(seed: int, tmp_path: Path) -> None:
    """An encoder key was removed, and the store is unavailable during the repair by the write that
    detects
    it: the resource is opened later."""
    async with open_cluster(tmp_path, seed=seed) as cluster:
        await Runner(cluster).play(Scenario.of_text("made-up", "start s1 x+1\n"))
        node = cluster.nodes["s1"]
        removed = Transaction((), (Delete(encoder_key(ServerId(node.id), WIDGETS)),))
        await MemoryStorage.commit(cluster.storage, removed)
        node.wire.link.chances.error = 0.5
        for number in range(5):
            with suppress(StatusError, Unavailable):
                await cluster.run(node.server.write(f"o{number}"))
        node.wire.link.chances.error = 0.0
        await cluster.clock.advance(30)
        assert node.server.coordinator.completed
        await cluster.run(node.server.write("a"))
        assert await cluster.stored("a") == "v1"
