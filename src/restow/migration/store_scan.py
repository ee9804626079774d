"""The client's side of a StorageScan: requests all pages and adds them up.

Restow servers serve StorageScan; stock Kubernetes does not, and there a census of etcd or of a
snapshot returns the same rows. Not here: the conclusions (`preflight`, `overview`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.status import Expired, NotFound
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.storage_scan import (
    EXAMPLES_MAX,
    STORAGE_SCANS,
    Contradiction,
    ScannedDefinition,
    ScannedServer,
    StorageScan,
    StorageScanSpec,
    StorageScanStatus,
    StoredCount,
)
from restow.client import ApiClient

ATTEMPTS_MAX: Final = 3
"""Limit of the scans, if the revision of one is compacted before it ends."""
PAGES_MAX: Final = 100_000

OnProgress = Callable[[int, int | None], None]
"""Called with the number of values scanned, and the total; None: not known."""


class ScanFailed(Exception):
    """The store could not be scanned. The message contains the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreScan:
    """The counts of raw values, at one revision."""

    revision: int
    source: str = ""
    """The address of the store or snapshot, if no server did the scan."""
    rows: tuple[StoredCount, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    servers: tuple[ScannedServer, ...] = ()
    """All servers that could write during the scan."""
    unfenced: frozenset[str] = frozenset()
    definitions: Mapping[str, ScannedDefinition] = field(default_factory=dict)

    @property
    def values(self) -> int:
        return sum(row.values for row in self.rows)

    def rows_of(self, resource: GroupResource) -> tuple[StoredCount, ...]:
        return tuple(row for row in self.rows if resource_of(row) == resource)


def resource_of(row: StoredCount) -> GroupResource | None:
    """The resource of the prefix of a row; None if the prefix is of none."""
    return GroupResource(row.group, row.resource) if row.resource else None


def version_hash(row: StoredCount) -> str:
    """The storage version hash of the values of a row; empty if they have no valid version."""
    try:
        return storage_version_hash(GroupVersionKind.of(row.api_version, row.kind))
    except InvalidName:
        return ""


async def scan_store(
    client: ApiClient, *, prefix: str = "", on_progress: OnProgress | None = None
) -> StoreScan:
    """Scan the store of a restow cluster. Raises `ScanFailed`, or ClientError."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return add_up(await _all_pages(client, prefix, on_progress))
        except Expired:
            continue
        except NotFound as error:
            raise ScanFailed(
                "the server does not serve storagescans.storage.restow.dev: it runs an older"
                " restow; upgrade restow on all servers"
            ) from error
        except StatusError as error:
            raise ScanFailed(
                f"storagescans.storage.restow.dev: {error}; run it as a user who may create it,"
                " such as a cluster administrator, when the store is available"
            ) from error
    raise ScanFailed(
        f"the revision of the scan was compacted {ATTEMPTS_MAX} times before it ended: try again"
    )


async def _all_pages(
    client: ApiClient, prefix: str, on_progress: OnProgress | None
) -> list[StorageScanStatus]:
    pages: list[StorageScanStatus] = []
    token, scanned = "", 0
    for _ in range(PAGES_MAX):
        page = await _page(client, StorageScanSpec(prefix=prefix, continue_=token))
        pages.append(page)
        scanned += page.scanned
        if on_progress is not None:
            on_progress(scanned, pages[0].total)
        token = page.continue_
        if not token:
            return pages
    raise ScanFailed(f"the scan did not end within {PAGES_MAX:,} pages")


async def _page(client: ApiClient, spec: StorageScanSpec) -> StorageScanStatus:
    # The client itself waits and retries while too many scans are running.
    answer = await client.create(STORAGE_SCANS, msgspec.to_builtins(StorageScan(spec=spec)))
    try:
        return msgspec.convert(answer, StorageScan).status
    except msgspec.ValidationError as error:
        raise ScanFailed(f"the answer is not a StorageScan: {error}") from error


def add_up(pages: Iterable[StorageScanStatus]) -> StoreScan:
    """One scan out of its pages."""
    pages = list(pages)
    rows: dict[tuple[object, ...], StoredCount] = {}
    for row in (row for page in pages for row in page.counts):
        place = (
            *(row.prefix, row.scope, row.api_version, row.kind),
            *(row.encoding, row.encryption_key, row.problem),
        )
        known = rows.get(place)
        rows[place] = row if known is None else _merged(known, row)
    return StoreScan(
        revision=int(pages[0].resource_version or 0),
        rows=tuple(rows.values()),
        contradictions=tuple(each for page in pages for each in page.contradictions),
        servers=tuple({each.id: each for page in pages for each in page.servers}.values()),
        unfenced=frozenset(each for page in pages for each in page.unfenced_servers),
        definitions={each.name: each for page in pages for each in page.definitions},
    )


def _merged(one: StoredCount, other: StoredCount) -> StoredCount:
    return msgspec.structs.replace(
        one,
        values=one.values + other.values,
        examples=[*one.examples, *other.examples][:EXAMPLES_MAX],
        first_create_revision=min(one.first_create_revision, other.first_create_revision),
    )
