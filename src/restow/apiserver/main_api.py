"""Access to the main servers' StorageVersions for a server with a store of its own.

Implements `MainApi` of `restow.storageversion.remote_registration`. Each call is bounded by the
client and by a timeout here, since this server's writes may wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import orjson

from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status import NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis.internal_v1alpha1 import GROUP
from restow.apis.storage_version_report import (
    SEQUENCE_PARAMETER,
    SERVER_PARAMETER,
    STORE_PARAMETER,
    SUBRESOURCE,
    new_report,
)
from restow.client import ApiClient, ClientError, Object
from restow.storage.errors import StoreDamaged
from restow.storage.interface import Item, Revision
from restow.storageversion.errors import NotReported
from restow.storageversion.identity import ServerId
from restow.storageversion.object_codec import decode_report, report_key
from restow.storageversion.rules import StorageVersionEntry

CALL_SECONDS_MAX: Final = 10.0
STORAGE_VERSIONS: Final = GroupVersionResource(GROUP, "v1alpha1", "storageversions")


class ClientMainApi:
    """Calls the main servers through a client, which the caller closes."""

    def __init__(self, client: ApiClient, *, seconds_max: float = CALL_SECONDS_MAX) -> None:
        self._client = client
        self._seconds_max = seconds_max

    async def report(self, name: str, kind: str, entry: StorageVersionEntry) -> None:
        said = new_report(
            metadata={"name": name},
            server_id=entry.server_id,
            store=entry.store,
            sequence=entry.sequence,
            object_kind=kind,
            encoding_version=entry.encoding_version,
            decodable_versions=list(entry.decodable_versions),
            served_versions=list(entry.served_versions),
            encryption_key=entry.key_id,
            readable_encryption_keys=list(entry.readable_keys),
            preferred_encryption_key=entry.preferred_key,
        )
        async with self._reporting(f"cannot report the storage version of {name}"):
            await self._client.create(
                STORAGE_VERSIONS, msgspec.to_builtins(said), name=name, subresource=SUBRESOURCE
            )

    async def withdraw(self, name: str, *, server_id: ServerId, store: str, sequence: int) -> None:
        query = {
            SERVER_PARAMETER: server_id,
            STORE_PARAMETER: store,
            SEQUENCE_PARAMETER: str(sequence),
        }
        async with self._reporting(f"cannot withdraw the entry of {server_id} for {name}"):
            await self._client.delete(STORAGE_VERSIONS, name, subresource=SUBRESOURCE, query=query)

    async def entries(self) -> Mapping[str, tuple[StorageVersionEntry, ...]]:
        found: dict[str, tuple[StorageVersionEntry, ...]] = {}
        async with self._reporting("cannot read the StorageVersions"):
            async for page in self._client.pages(STORAGE_VERSIONS):
                for obj in page.items:
                    found[obj["metadata"]["name"]] = _entries(obj)
        return found

    async def entries_of(self, name: str) -> tuple[StorageVersionEntry, ...]:
        found: tuple[StorageVersionEntry, ...] = ()
        async with self._reporting(f"cannot read the StorageVersion {name}"):
            try:
                found = _entries(await self._client.get(STORAGE_VERSIONS, name))
            except NotFound as error:
                # A 404 of the object, not of the kind: a server without that kind accepts no
                # reports.
                if error.details is None or not error.details.name:
                    raise
        return found

    @asynccontextmanager
    async def _reporting(self, what: str) -> AsyncIterator[None]:
        """Raise every error as `NotReported`."""
        try:
            async with self._client.runtime.clock.timeout(self._seconds_max):
                yield
        except TimeoutError as error:
            raise NotReported(
                f"{what}: {self._client.server} did not respond within {self._seconds_max:.0f} s"
            ) from error
        except (StatusError, ClientError, StoreDamaged) as error:
            raise NotReported(f"{what}: {error}") from error


def _entries(obj: Object) -> tuple[StorageVersionEntry, ...]:
    """The server entries of a StorageVersion."""
    name = str((obj.get("metadata") or {}).get("name") or "")
    item = Item(report_key(name), orjson.dumps(obj), Revision(0), Revision(0))
    return decode_report(item).report.entries
