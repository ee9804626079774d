"""`restow preflight --drop-key NAME`: check the cluster and its raw store for uses of a key.

The rules are in `restow.migration.preflight.key_removal`, which uses only the API; this module
reads the store, as `restow census` does. Not here: the output (`preflight`).
"""

from __future__ import annotations

from typing import Final

from restow.aio import Runtime
from restow.apis.encryption_keys import IDENTITY
from restow.apis.names import LEASE_NAMESPACE
from restow.census import KeyValueSource, count_key, open_source, take_census
from restow.census.resource_names import PREFIX_DEFAULT
from restow.client import ApiClient, ClientConfig, ClientLimits
from restow.migration.preflight import (
    KeyedView,
    PreflightReport,
    StoreCount,
    judge_key_removal,
    read_keys,
)
from restow.storage.errors import StorageError

REQUEST_SECONDS_MAX: Final = 20.0
LEASES_PREFIX: Final = f"{PREFIX_DEFAULT}leases/{LEASE_NAMESPACE}/"


async def check_key(
    config: ClientConfig, name: str, *, address: str
) -> tuple[PreflightReport, str]:
    """Return the report and the cluster that it is about. Raises ClientError or StatusError."""
    runtime = Runtime.system()
    limits = ClientLimits(request_seconds_max=REQUEST_SECONDS_MAX)
    async with ApiClient.connect(config, runtime=runtime, limits=limits) as client:
        view = await read_keys(client)
        store = await _count(view, name, address=address, runtime=runtime)
        # Read again after the census, so that changes by servers in between are included.
        view = await read_keys(client)
    return judge_key_removal(name, view, store), f"{view.server} ({view.version})"


async def _count(view: KeyedView, name: str, *, address: str, runtime: Runtime) -> StoreCount:
    """Count the values encrypted with the key; an unreadable store is reported as a problem."""
    try:
        source = await open_source(address, runtime)
        try:
            return await count_under(source, view, name, address=address)
        finally:
            await source.close()
    except (StorageError, OSError) as error:
        return StoreCount(address=address, problem=str(error))


async def count_under(
    source: KeyValueSource, view: KeyedView, name: str, *, address: str
) -> StoreCount:
    """Count the values encrypted with the key. Raises StorageError or OSError."""
    if problem := await _mismatch(source, view):
        return StoreCount(address=address, problem=problem)
    census = await take_census(source)
    # Most resources are never encrypted: count plaintext only where encryption is configured.
    encrypted = {str(each.resource) for each in view.resources if each.may_be_encrypted}
    found = count_key(
        census, name, is_counted=lambda resource: name != IDENTITY or resource in encrypted
    )
    return StoreCount(
        address=address,
        left=tuple((resource, row.objects) for resource, row in found.left),
        undecided=tuple((resource, row.objects) for resource, row in found.undecided),
    )


async def _mismatch(source: KeyValueSource, view: KeyedView) -> str:
    """Why this store is not the current store of the cluster; empty if it is.

    Each incarnation of a server has its own lease, which no other store or older copy contains.
    """
    held = {
        key.removeprefix(LEASES_PREFIX)
        async for page in source.pages([LEASES_PREFIX])
        for key, _ in page
    }
    missing = sorted(view.servers - held)
    if not missing:
        return ""
    return (
        f"it has no lease of server {missing[0]}: it is another store, or an older copy; if a"
        " server has just started or stopped, try again"
    )
