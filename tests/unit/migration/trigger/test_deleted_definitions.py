"""A CRD's StorageState is deleted with the CRD, and the trigger does not recreate it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status import NotFound
from restow.apis.resources import DEFINITIONS, STATES
from restow.client import ApiClient, Informer, ObjectChange, key_of
from restow.migration.trigger.controller import TriggerController
from restow.migration.trigger.options import TriggerOptions
from tests.unit.migration.running_process import running_server, until

GIZMOS = GroupVersionResource("adv.io", "v1", "gizmos")
NAME = "gizmos.adv.io"
AFTERWARDS_SECONDS = 3.0
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": NAME},
    "spec": {
        "group": "adv.io",
        "scope": "Namespaced",
        "names": {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}
GIZMO = {
    "apiVersion": "adv.io/v1",
    "kind": "Gizmo",
    "metadata": {"name": "a", "namespace": "default"},
}


async def test_a_deleted_crd_leaves_no_state(tmp_path: Path) -> None:
    """The server creates the StorageState once; `kubectl delete crd` removes it, and it is not
    recreated
    although the trigger observes the deletion."""
    creations: list[str] = []

    def count(change: ObjectChange) -> None:
        if change.old is None and change.new is not None and key_of(change.new).name == NAME:
            creations.append(str(change.new["metadata"]["uid"]))

    async with (
        running_server(tmp_path) as config,
        ApiClient.connect(config, runtime=Runtime.system()) as client,
        client.runtime.tasks("test") as tasks,
    ):
        informer = Informer(client, STATES)
        informer.on_change(count)
        tasks.spawn("states", informer.run())
        await client.create(DEFINITIONS, CRD)
        await until(lambda: _is_created(client))
        trigger = TriggerController(client, runtime=client.runtime, settings=TriggerOptions())
        tasks.spawn("trigger", trigger.run())
        await until(lambda: GIZMOS.group_resource in trigger.resources)
        await until(lambda: len(creations) == 1)
        await client.delete(DEFINITIONS, NAME)
        await until(lambda: _is_gone(client))
        await asyncio.sleep(AFTERWARDS_SECONDS)
        assert len(creations) == 1
        assert await _is_gone(client)


async def _is_created(client: ApiClient) -> bool:
    """Returns whether the server accepts objects of the new kind."""
    try:
        await client.create(GIZMOS, GIZMO)
    except NotFound:
        return False
    return True


async def _is_gone(client: ApiClient) -> bool:
    try:
        await client.get(STATES, NAME)
    except NotFound:
        return True
    return False
