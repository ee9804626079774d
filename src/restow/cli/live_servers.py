"""The API servers that use a store now, for commands that write directly to it.

A server is live until its lease expires. A registered server whose lease is missing or unreadable
is live too: an unneeded confirmation does no harm. A supervisor of `restow up` is live while it
holds its lock, also while its servers restart.

Not here: permissions to write.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import orjson

from restow.client.lease_record import LeaseRecord
from restow.localcluster.layout import Layout
from restow.localcluster.lock import supervisor_of
from restow.migration.times import read_time
from restow.storage.interface import Key, Span, Storage
from restow.storageversion.identity import SERVERS_PREFIX
from restow.storageversion.object_codec import LEASES_PREFIX

SERVERS_MAX: Final = 100
IDENTITY_PREFIX: Final = "apiserver-"
"""Prefix of the leases of API servers, including kube-apiserver."""
LEASE_SECONDS_DEFAULT: Final = 3_600
SKEW_SECONDS: Final = 5.0


async def live_servers(storage: Storage, now: datetime) -> list[str]:
    """Return the ids of servers, except those with an expired lease."""
    members = await _names(storage, SERVERS_PREFIX, "")
    identities = await _names(storage, LEASES_PREFIX, IDENTITY_PREFIX)
    found: list[str] = []
    for name in sorted(members | identities):
        item = await storage.get(Key(LEASES_PREFIX + name))
        if item is None or not _is_expired(item.value, now):
            found.append(name)
    return found


def local_supervisor(address: str, data_dir: Path | None) -> str | None:
    """The process id of the `restow up` that uses this store, or None."""
    scheme, _, rest = address.partition(":")
    directory = data_dir or (Path(rest).parent if scheme == "sqlite" else None)
    return None if directory is None else supervisor_of(Layout(directory))


async def _names(storage: Storage, prefix: str, begin: str) -> set[str]:
    page = await storage.range(Span.of_prefix(prefix + begin), limit=SERVERS_MAX)
    return {item.key.removeprefix(prefix) for item in page.items}


def _is_expired(lease: bytes, now: datetime) -> bool:
    """Whether a lease is expired; False if it cannot be read."""
    try:
        fields = orjson.loads(lease)
    except orjson.JSONDecodeError:
        return False
    record = LeaseRecord.read(fields if isinstance(fields, dict) else {})
    renewed = read_time(record.renew_time)
    if renewed is None:
        return False
    seconds = (record.lease_seconds or LEASE_SECONDS_DEFAULT) + SKEW_SECONDS
    return now - renewed > timedelta(seconds=seconds)
