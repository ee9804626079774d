"""The servers' agreement that a migration is for, and whether it still holds.

    StorageVersion with an epoch      restow: the same uid and epoch mean that nothing has changed
    StorageVersion without one        Kubernetes with that API: a watch without a gap, in which
                                      every state has the target as its common version
    discovery                         all others: its storage version hash, polled

An agreement is on a version and on an encryption key. A resource of an aggregated API that reports
neither is not migrated.

`follow` runs during the migration and raises `AgreementLost` as soon as the agreement changes.
`confirm` checks once more with a fresh read before the migration completes. With an epoch a watch
may break: the epoch shows any change during the gap. Without one every gap counts as a change.

Not here: the consequences of a change (`engine`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from restow.apimachinery.status import NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis.encryption_keys import IDENTITY
from restow.apis.internal_v1alpha1 import StorageVersion, name_of
from restow.apis.resources import STORAGE_VERSIONS
from restow.client import (
    ApiClient,
    ApiResource,
    ConnectionFailed,
    EventType,
    ListOptions,
    Object,
    WatchPolicy,
    key_of,
    version_of,
)
from restow.migration.encryption_keys import reported_keys
from restow.migration.migration_values import MigrationRecord
from restow.migration.migrator.options import EngineOptions
from restow.migration.migrator.passes import AgreementLost
from restow.migration.remote_apis import find_remote
from restow.migration.trigger.readings import reading_of
from restow.migration.trigger.values import StorageVersionReading

BY_REPORTS: Final = "second pass"
BY_SERVER: Final = "first pass, verified by the server"
"""The pass rewrote nothing, and the server that did its last page has recorded that."""
BY_DISCOVERY: Final = "discovery"
BY_LOOSE: Final = "second pass, not proven"
"""Servers may write in the old version for a while: only a census can verify the migration."""
READS_MAX: Final = 10
"""Limit of consecutive failed reads of the agreement."""
# With an epoch, a failed watch is reported at once, and the agreement is read again.
_AT_ONCE: Final = WatchPolicy(failures_max=0)

logger = logging.getLogger(__name__)


class NotAgreed(Exception):
    """The servers do not agree on a version now: a migration cannot start."""


class LeftAlone(Exception):
    """An aggregated server stores the resource and does not report how: it is never migrated."""


class AgreementCheck(Protocol):
    """The agreement that a migration is for."""

    target: str
    """The hash of the version that all servers write; empty if none is reported."""
    target_version: str
    """The apiVersion behind the hash; empty where only the hash is known."""
    target_key: str
    """The encryption key with which all servers write; empty: none is reported."""
    epoch: int | None
    by: str
    """The kind of evidence, as written to the proof."""

    @property
    def mark(self) -> str:
        """Identifies the agreement in positions and proofs; empty if nothing can."""
        ...

    async def follow(self) -> None:
        """Watch the agreement until cancelled. Raises `AgreementLost`."""
        ...

    async def confirm(self) -> None:
        """Check the agreement with a read. Raises `AgreementLost`, or an error of the read."""
        ...


async def begin(
    client: ApiClient,
    resource: ApiResource,
    *,
    record: MigrationRecord | None,
    options: EngineOptions,
) -> AgreementCheck:
    """Read the servers' current agreement.

    Raises `NotAgreed`, `LeftAlone`; `AgreementLost` if the migration is for another agreement.
    """
    found = await _find_report(client, resource)
    agreed: AgreementCheck
    if found is not None:
        agreed = Reported(client, resource, found, options=options)
        is_moved = record is not None and _is_moved(record, agreed.seen)
    else:
        await _check_remote(client, resource)
        agreed = Shown(client, resource, options=options)
        # A migration that was created from a StorageVersion cannot run without one.
        is_moved = record is not None and bool(record.storage_version)
    if record is not None and (is_moved or record.target != agreed.target):
        raise AgreementLost(
            f"the migration was created for another state of {resource.group_resource}: the"
            " servers' agreement has changed since"
        )
    if found is not None and not agreed.target:
        # KEP-35 1.11: wait until the servers agree
        raise NotAgreed(
            f"the servers do not agree on {_matter(found)} of {resource.group_resource}"
        )
    return agreed


def _matter(found: _Report) -> str:
    is_version_agreed = bool(found.version) and found.is_split
    return "the encryption key" if is_version_agreed else "a version"


async def _check_remote(client: ApiClient, resource: ApiResource) -> None:
    """Raise `LeftAlone` for an aggregated server that reports nothing and shows no hash: the result
    of a rewrite could not be verified, nor whether it was needed."""
    if resource.storage_version_hash:
        return
    service = await find_remote(client, resource.resource.group_version)
    if service:
        # KEP-2339 3.41: an aggregated API that reports nothing is not migrated
        raise LeftAlone(
            f"{resource.group_resource} is served by APIService {service}, which reports no storage"
            " versions: it is not migrated"
        )


def _is_moved(record: MigrationRecord, seen: StorageVersionReading) -> bool:
    made_for = record.storage_version
    if not made_for:
        return False
    if seen.epoch:
        return made_for != seen.mark
    return made_for.partition("/")[0] != seen.uid


async def _find_report(client: ApiClient, resource: ApiResource) -> _Report | None:
    """The StorageVersion of a resource; None where servers do not report it.

    Resources that share a store have one StorageVersion, under the name of one of them: it is
    found by the hash that discovery shows for the other.
    """
    kind, shown = resource.kind, resource.storage_version_hash
    try:
        found = await _read(client, name_of(resource.group_resource), kind)
        if found is not None or not shown:
            return found
        async for each in client.items(STORAGE_VERSIONS):
            name = key_of(each).name
            if name.rpartition(".")[2] == resource.name:
                shared = await _read(client, name, kind)
                if shared is not None and shared.reading.common == shown:
                    return shared
    except NotFound:
        pass  # no StorageVersions at all
    return None


async def _read(client: ApiClient, name: str, kind: str) -> _Report | None:
    """Read one StorageVersion with a list, whose resource version is current, so that a watch can
    start from it. The resource version of the object may be compacted."""
    page = await client.list_page(STORAGE_VERSIONS, options=_only(name))
    for each in page.items:
        if key_of(each).name == name:  # a server may ignore the selector
            return _Report.read(each, kind, page.resource_version)
    return None


def _only(name: str) -> ListOptions:
    return ListOptions(field_selector=f"metadata.name={name}", limit=0)


@dataclass(frozen=True, slots=True)
class _Report:
    """The parts of a StorageVersion that a migration uses."""

    name: str
    version: str
    """The common encoding version; empty when there is none."""
    reading: StorageVersionReading
    is_split: bool
    """Whether servers write with different encryption keys."""
    version_read: str
    """The resource version at which it was read."""

    @classmethod
    def read(cls, value: Object, kind: str, version_read: str) -> _Report:
        """Raises `AgreementLost` if the object is no valid StorageVersion."""
        try:
            found = msgspec.convert(value, StorageVersion)
        except msgspec.ValidationError as error:
            raise AgreementLost(f"a StorageVersion is not valid: {error}") from error
        return cls(
            str(found.metadata.get("name") or ""),
            found.status.common_encoding_version or "",
            reading_of(found, kind=kind, follows=False),
            not reported_keys(found).agreed,
            version_read,
        )


class Reported:
    """The agreement that the StorageVersion of a resource reports."""

    def __init__(
        self, client: ApiClient, resource: ApiResource, found: _Report, *, options: EngineOptions
    ) -> None:
        self.by = BY_LOOSE if found.reading.loose_seconds else BY_REPORTS
        self.target = found.reading.common
        self.target_version = found.version
        self.target_key = "" if found.reading.key == IDENTITY else found.reading.key
        epoch = found.reading.epoch
        self.epoch = int(epoch) if epoch.isdecimal() else None
        self.seen = found.reading
        """The last state for which the agreement has been confirmed without interruption."""
        self._begun = found.reading
        self._name = found.name
        self._kind = resource.kind
        self._client = client
        self._options = options
        self._version = found.version_read
        self._moved = asyncio.Event()

    @property
    def mark(self) -> str:
        return self.seen.mark

    async def follow(self) -> None:
        failures = 0
        while True:
            try:
                # KEP-2339 3.50: a watch ends the migration early
                async with self._client.watch(
                    STORAGE_VERSIONS,
                    resource_version=self._version,
                    options=_only(self._name),
                    policy=_AT_ONCE if self._begun.epoch else None,
                ) as events:
                    async for event in events:
                        failures = 0
                        self._see(event.type, event.object)
            except (StatusError, ConnectionFailed) as error:
                if not self._begun.epoch:
                    raise AgreementLost(f"the watch on {self._name} has a gap: {error}") from error
                logger.info("the watch on %s is opened again: %s", self._name, error)
            await self._read_again(failures)
            failures += 1

    async def _read_again(self, failures: int) -> None:
        """Read the state after a gap of the watch: the epoch shows whether anything changed."""
        runtime, backoff = self._client.runtime, self._options.retry_backoff
        for more in range(READS_MAX):
            delay_seconds = backoff.delay_seconds(failures + more, runtime.randomness)
            await runtime.clock.sleep(delay_seconds)
            try:
                self._take(await self._read())
                return
            except (StatusError, ConnectionFailed) as error:
                logger.info("%s cannot be read: %s", self._name, error)
        raise AgreementLost(f"whether {self._name} has changed is not known: it could not be read")

    async def confirm(self) -> None:
        # KEP-2339 3.50: compare the agreement before and after the migration
        found = await self._read()
        self._check(found)
        if self._begun.epoch:
            return
        # All states up to this one must have been seen: several may not have arrived yet.
        try:
            async with self._client.runtime.clock.timeout(self._options.confirm_seconds_max):
                while self.seen.resource_version != found.reading.resource_version:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise AgreementLost(f"the watch on {self._name} lags behind its last change") from None

    async def _read(self) -> _Report:
        found = await _read(self._client, self._name, self._kind)
        if found is None:
            raise AgreementLost(f"{self._name} was deleted")
        return found

    def _see(self, kind: EventType, value: Object) -> None:
        if kind is EventType.BOOKMARK or key_of(value).name != self._name:
            return
        if kind is EventType.DELETED:
            raise AgreementLost(f"{self._name} was deleted")
        self._take(_Report.read(value, self._kind, version_of(value)))

    def _take(self, report: _Report) -> None:
        self._check(report)
        self.seen, self._version = report.reading, report.version_read
        self._moved.set()

    def _check(self, report: _Report) -> None:
        now, begun = report.reading, self._begun
        # KEP-2339 3.43: a running migration ends when the common version becomes empty
        if not now.common:
            raise AgreementLost(f"the servers no longer agree on {_matter(report)} of {self._name}")
        if now.common != begun.common or report.version != self.target_version:
            raise AgreementLost(f"the servers now write {self._name} in {report.version}")
        if now.key != begun.key:
            raise AgreementLost(f"the servers now write {self._name} with the key {now.key}")
        if (now.uid, now.epoch) != (begun.uid, begun.epoch):
            raise AgreementLost(f"the agreement on {self._name} was interrupted")


class Shown:
    """The agreement as discovery shows it, from one server or any behind a load balancer."""

    by: str = BY_DISCOVERY
    mark: str = ""
    epoch: int | None = None
    target_version: str = ""
    target_key: str = ""

    def __init__(self, client: ApiClient, resource: ApiResource, *, options: EngineOptions) -> None:
        self.target = resource.storage_version_hash
        self._client = client
        self._resource = resource
        self._seconds = options.discovery_seconds

    async def follow(self) -> None:
        while True:
            await self._client.runtime.clock.sleep(self._seconds)
            try:
                await self.confirm()
            except (StatusError, ConnectionFailed) as error:
                # The agreement is unknown now; `confirm` reads it again before completion.
                logger.info("discovery of %s cannot be read: %s", self._resource.resource, error)

    async def confirm(self) -> None:
        wanted = self._resource
        listed = await self._client.resources(wanted.resource.group_version)
        shown = {each.storage_version_hash for each in listed if each.name == wanted.name}
        if shown != {self.target}:
            raise AgreementLost(f"servers no longer show {self.target} for {wanted.group_resource}")
