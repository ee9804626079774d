"""Scans a store that no restow server can scan: that of stock Kubernetes, for `preflight`.

It is read as by `restow census`. Not here: the conclusions
(`restow.migration.preflight`).
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from restow.aio import Runtime
from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apis.storage_scan import EXAMPLES_MAX, OBJECTS_PREFIX, Problem, StoredCount
from restow.census import KeyValueSource, Row, open_source, take_census
from restow.cli.census import opener_of
from restow.client import ApiClient
from restow.encryption.configuration import read_configuration
from restow.encryption.keyring import readable_ids
from restow.migration.store_scan import StoreScan
from restow.storage.errors import OpenRefused

NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
ANCHOR: Final = "kube-system"
"""A namespace that exists in every cluster; its uid identifies the cluster."""


async def scan_source(
    client: ApiClient, address: str, *, keys_file: Path | None, runtime: Runtime
) -> StoreScan:
    """Scan all values of a store. Raises StorageError, ClientError, StatusError.

    Raises `OpenRefused` if it is not the store of this cluster.
    """
    uid = str((await client.get(NAMESPACES, ANCHOR))["metadata"]["uid"])
    async with AsyncExitStack() as undo:
        opener = None if keys_file is None else await opener_of(keys_file, undo)
        source = await open_source(address, runtime)
        undo.push_async_callback(source.close)
        await _check_cluster(source, address, uid)
        census = await take_census(source, opener=opener, samples_max=EXAMPLES_MAX)
    return StoreScan(
        revision=census.revision,
        source=address,
        rows=tuple(_row(each.resource, row) for each in census.resources for row in each.rows),
    )


async def _check_cluster(source: KeyValueSource, address: str, uid: str) -> None:
    """Raise OpenRefused for the store of another cluster. The uid of a namespace is plain text in
    every storage format of API servers, because namespaces are never encrypted."""
    key = f"{OBJECTS_PREFIX}namespaces/{ANCHOR}"
    async for page in source.pages([key]):
        for found, value in page:
            if found == key and uid.encode() in value:
                return
    raise OpenRefused(f"{address} is not the store of this cluster: no namespace with uid {uid}")


def _row(name: str, row: Row) -> StoredCount:
    stored, resource = row.stored, _resource(name)
    is_sealed = stored.form == "encrypted" or not stored.provider
    problem: Problem = ""
    if not stored.api_version:
        problem = "NotDecrypted" if is_sealed else "NotDecodable"
    elif not stored.is_object:
        problem = "NotDecodable"
    return StoredCount(
        prefix=name if resource is None else f"{OBJECTS_PREFIX}{'/'.join(filter(None, resource))}/",
        group="" if resource is None else resource.group,
        resource="" if resource is None else resource.resource,
        scope=row.scope,
        api_version=stored.api_version,
        kind=stored.kind,
        # The encoding inside a decrypted value is the server's.
        encoding="json" if is_sealed and stored.api_version else stored.form,
        encryption_key=":".join(filter(None, (stored.provider, stored.key))) if is_sealed else "",
        problem=problem,
        values=row.objects,
        examples=list(row.keys),
    )


def _resource(name: str) -> GroupResource | None:
    if name.startswith("/"):
        return None
    try:
        return GroupResource.parse(name)
    except InvalidName:
        return None


def keys_of_file(path: Path) -> KeysOfFile:
    """Read the keys of an encryption configuration. Raises OpenRefused."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise OpenRefused(f"{path} cannot be read: {error.strerror}") from error
    return KeysOfFile(data)


class KeysOfFile:
    """Returns the keys with which a configuration can read a resource."""

    def __init__(self, data: bytes) -> None:
        self._configuration = read_configuration(data)

    def __call__(self, resource: GroupResource) -> tuple[str, ...]:
        return readable_ids(self._configuration, resource)
