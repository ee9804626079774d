"""A custom resource under constant writes while its storage version switches repeatedly.

Each object contains the server that last wrote it, so that the log of the store can be compared
with the version that this server had reported at that revision. Nothing is sampled.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.storage.interface import Event, Item, Key, Revision, Storage
from restow.storageversion.object_codec import decode_state, state_key
from restow.storageversion.raw_scan import version_of
from restow.storageversion.records import ENCODERS_PREFIX, parse_encoder_key
from restow.storageversion.rules import UNKNOWN_HASH
from tests.e2e.custom.replaying import replay
from tests.support.api_client import ApiClient
from tests.support.server_process import ServerProcess

GROUP: Final = "switch.example.org"
KIND: Final = "Gadget"
NAME: Final = f"gadgets.{GROUP}"
REPORT_NAME: Final = f"{GROUP}.gadgets"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REPORT: Final = f"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{REPORT_NAME}"
VERSIONS: Final = ("v1", "v2")
ROOT: Final = f"/registry/{GROUP}/gadgets/"
DEFINITION_KEY: Final = f"/registry/apiextensions.k8s.io/customresourcedefinitions/{NAME}"
STATE_KEY: Final = state_key(REPORT_NAME)
WRITERS_PER_SERVER: Final = 4
OBJECTS_PER_WRITER: Final = 20
PAUSE_SECONDS_MAX: Final = 0.3
"""Between two switches: some come before all servers have completed the last one."""
SWITCHES_MIN: Final = 20
"""Minimum number, however fast the writes are: with few switches hardly a write would meet one."""


def definition(storage: str = "v1") -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "writer": {"type": "string"},
                    "turn": {"type": "integer"},
                    "color": {"type": "string", "default": "red"},
                },
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": KIND},
            "versions": versions(storage, schema),
        },
    }


def versions(storage: str, schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "served": True,
            "storage": name == storage,
            "schema": {"openAPIV3Schema": schema},
        }
        for name in VERSIONS
    ]


def client_of(server: ServerProcess) -> ApiClient:
    tls = ssl.create_default_context(cadata=server.ca_pem)
    return ApiClient(server.port, token=server.token, tls=tls)


@dataclass(slots=True)
class Hammer:
    """Writers on every server, and a task that switches the storage version."""

    servers: Sequence[ServerProcess]
    ids: Sequence[str]
    writes_wanted: int
    seed: int = 1
    written: int = 0
    switches: int = 0
    unavailable: int = 0
    """Number of responses that asked for a retry."""
    unexpected: list[str] = field(default_factory=list)

    @property
    def _is_enough(self) -> bool:
        return self.written >= self.writes_wanted and self.switches >= SWITCHES_MIN

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            switching = group.create_task(self._switch(), name="switching")
            writers = [
                group.create_task(self._write(server, server_id, number), name=f"writer {number}")
                for server, server_id in zip(self.servers, self.ids, strict=True)
                for number in range(WRITERS_PER_SERVER)
            ]
            await asyncio.wait(writers)
            switching.cancel()

    async def _write(self, server: ServerProcess, server_id: str, number: int) -> None:
        client, turn = client_of(server), 0
        made: set[str] = set()
        try:
            while not self._is_enough and not self.unexpected:
                turn += 1
                version = VERSIONS[turn % 2]
                name = f"{server.port}-{number}-{turn % OBJECTS_PER_WRITER}"
                await self._write_one(client, server_id, version, name, turn, made)
        finally:
            await client.close()

    async def _write_one(  # noqa: PLR0917 - all parameters of one write
        self,
        client: ApiClient,
        server_id: str,
        version: str,
        name: str,
        turn: int,
        made: set[str],
    ) -> None:
        path = f"/apis/{GROUP}/{version}/namespaces/default/gadgets"
        spec = {"writer": server_id, "turn": turn}
        if name in made:
            reply = await client.patch(f"{path}/{name}", {"spec": spec})
        else:
            body = {
                "apiVersion": f"{GROUP}/{version}",
                "kind": KIND,
                "metadata": {"name": name},
                "spec": spec,
            }
            reply = await client.post(path, body)
        if reply.status in (200, 201):
            made.add(name)
            self.written += 1
        elif reply.status == 503:
            self.unavailable += 1
        else:
            self.unexpected.append(f"{reply.status} {reply.message}")

    async def _switch(self) -> None:
        chance = random.Random(self.seed)
        clients = [client_of(server) for server in self.servers]
        try:
            while True:
                await asyncio.sleep(chance.uniform(0, PAUSE_SECONDS_MAX))
                await self._switch_once(chance.choice(clients))
        finally:
            for client in clients:
                await client.close()

    async def _switch_once(self, client: ApiClient) -> None:
        found = (await client.get(f"{DEFINITIONS}/{NAME}")).json
        for version in found["spec"]["versions"]:
            version["storage"] = not version["storage"]
        reply = await client.put(f"{DEFINITIONS}/{NAME}", found)
        if reply.status == 200:
            self.switches += 1
        elif reply.status not in (409, 503):
            self.unexpected.append(f"the switch: {reply.status} {reply.message}")


@dataclass(slots=True)
class Audit:
    """The log of the store, compared with the reports of each server."""

    encoders: dict[str, str] = field(default_factory=dict)
    """By server: the encoding version in its report."""
    listed: tuple[str, ...] = ()
    """`status.storedVersions` of the CRD."""
    persisted: tuple[str, ...] = (UNKNOWN_HASH,)
    written: Counter[str] = field(default_factory=Counter)
    """By version."""
    broken: list[str] = field(default_factory=list)
    listings: int = 0
    registrations: int = 0

    def take(self, events: Sequence[Event]) -> None:
        """Processes all changes of one revision."""
        for event in events:
            self._take_report(event.key, event.value)
        for event in events:
            if event.key.startswith(ROOT) and event.value is not None:
                self._judge(event.key, event.value, event.revision)

    def _take_report(self, key: str, value: bytes | None) -> None:
        if key.startswith(ENCODERS_PREFIX):
            server_id, name = parse_encoder_key(Key(key))
            if name == REPORT_NAME:
                self.registrations += 1
                self.encoders.pop(server_id, None)
                if value is not None:
                    self.encoders[server_id] = orjson.loads(value)["version"]
        elif key == DEFINITION_KEY and value is not None:
            self.listings += 1
            self.listed = tuple(orjson.loads(value)["status"]["storedVersions"])
        elif key == STATE_KEY and value is not None:
            item = Item(Key(key), value, Revision(0), Revision(0))
            self.persisted = decode_state(item).state.persisted

    def _judge(self, key: str, value: bytes, revision: int) -> None:
        version = version_of(value)
        writer = orjson.loads(value)["spec"]["writer"]
        self.written[version] += 1
        if self.encoders.get(writer) != version:
            self.broken.append(
                f"{key} at {revision}: {writer} wrote {version}, and had reported"
                f" {self.encoders.get(writer)}"
            )
        if version.rpartition("/")[2] not in self.listed:
            self.broken.append(f"{key} at {revision}: {version} is not among {self.listed}")
        if (
            UNKNOWN_HASH not in self.persisted
            and storage_version_hash(GroupVersionKind.of(version, KIND)) not in self.persisted
        ):
            self.broken.append(f"{key} at {revision}: {version} is not among {self.persisted}")


async def audited(storage: Storage) -> Audit:
    """Checks the whole log, from its first revision to the current one."""
    audit = Audit()
    await replay(storage, audit.take)
    return audit
