"""Many quotas in one namespace: each counts, and a create updates all of them concurrently."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from restow.admission.resource_quota import PARALLEL_QUOTAS_MAX
from restow.storage.interface import Outcome, Transaction
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import CONFIG_MAPS, NS, RunningServer, config_map
from tests.support.api_client import MERGE_PATCH

QUOTAS = f"{NS}/resourcequotas"
COUNT = PARALLEL_QUOTAS_MAX + 3
OBJECTS = "count/configmaps"


@pytest.mark.parametrize("driver", ["memory"], indirect=True)
async def test_many_quotas(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are charged concurrently, so that many do not add up; a full one refuses, and is
    named."""
    api = server.client
    for number in range(COUNT):
        name, hard = f"q-{number:03}", {OBJECTS: "1" if number == COUNT - 1 else "9"}
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"hard": hard}}
        assert (await api.post(QUOTAS, body)).status == 201
        counted = {"status": {"hard": hard, "used": {OBJECTS: "0"}}}
        reply = await api.patch(f"{QUOTAS}/{name}/status", counted, MERGE_PATCH)
        assert reply.status == 200, reply.body
    commit, under_way, most = MemoryStorage.commit, 0, 0

    async def counting(self: MemoryStorage, transaction: Transaction) -> Outcome:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            await asyncio.sleep(0.001)  # like a store that writes to a disk
            return await commit(self, transaction)
        finally:
            under_way -= 1

    monkeypatch.setattr(MemoryStorage, "commit", counting)
    assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201
    assert most == PARALLEL_QUOTAS_MAX
    refused = await api.post(CONFIG_MAPS, config_map("b"))
    assert refused.status == 403
    assert f"exceeded quota: q-{COUNT - 1:03}, requested: {OBJECTS}=1" in refused.message
    used = {each["status"]["used"][OBJECTS] for each in (await api.get(QUOTAS)).json["items"]}
    assert used == {"1"}
