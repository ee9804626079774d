"""`restow preflight --drop-key NAME`: looks at the cluster and into its raw store.

The rules are in `restow.migration.preflight.key_removal`, which sees the API alone; the store is
read here, as `restow census` reads it. Not here: how the answer is printed (`preflight`).
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


async def ask_key(config: ClientConfig, name: str, *, address: str) -> tuple[PreflightReport, str]:
    """The answer, and which cluster it is about. Raises ClientError or StatusError."""
    runtime = Runtime.system()
    limits = ClientLimits(request_seconds_max=REQUEST_SECONDS_MAX)
    async with ApiClient.connect(config, runtime=runtime, limits=limits) as client:
        view = await read_keys(client)
        store = await _count(view, name, address=address, runtime=runtime)
        # Once more, after the census: what servers did meanwhile is in the answer, too.
        view = await read_keys(client)
    return judge_key_removal(name, view, store), f"{view.server} ({view.version})"


async def _count(view: KeyedView, name: str, *, address: str, runtime: Runtime) -> StoreCount:
    """What the store holds under the key. A store that cannot be read is an answer, too."""
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
    """What a store that is open holds under the key. Raises StorageError or OSError."""
    if problem := await _why_other(source, view):
        return StoreCount(address=address, problem=problem)
    census = await take_census(source)
    # Most resources are never encrypted: of plain values, only those matter that should be.
    encrypted = {str(each.resource) for each in view.resources if each.may_be_encrypted}
    found = count_key(
        census, name, is_counted=lambda resource: name != IDENTITY or resource in encrypted
    )
    return StoreCount(
        address=address,
        left=tuple((resource, row.objects) for resource, row in found.left),
        undecided=tuple((resource, row.objects) for resource, row in found.undecided),
    )


async def _why_other(source: KeyValueSource, view: KeyedView) -> str:
    """Why this is not the store of the cluster as it is now; empty if it is.

    Each life of a server has a lease of its own, which no other store and no older copy has.
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
        f"it does not know the server {missing[0]}, so it is another store, or an older copy; or a"
        " server has just begun or ended, then ask again"
    )
