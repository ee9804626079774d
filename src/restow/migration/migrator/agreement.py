"""What a migration is begun for, and whether it is still so: the agreement of the servers.

    StorageVersion with an epoch      restow: the same uid and epoch say that nothing has moved
    StorageVersion without one        Kubernetes with that API: a watch without a gap, in which
                                      every state has the target as its common version
    discovery                         any other: the hash that it shows, looked at again and again

What servers agree on is a version and an encryption key. A resource of an aggregated API that tells
neither is left alone.

`follow` runs beside the migration and raises `Lost` as soon as it is over. `confirm` asks once
more, by a fresh read, before anything is concluded. Where servers keep an epoch a watch may break:
what happened meanwhile, the epoch tells. Elsewhere what was not seen counts as a change.

Not here: what follows when it is lost (`engine`).
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
from restow.migration.encryption_keys import keys_said
from restow.migration.migration_values import MigrationRecord
from restow.migration.migrator.options import EngineOptions
from restow.migration.migrator.passes import Lost
from restow.migration.remote_apis import find_remote
from restow.migration.trigger.readings import reading_of
from restow.migration.trigger.values import StorageVersionReading

BY_REPORTS: Final = "second pass"
BY_SERVER: Final = "first pass, verified by the server"
"""It found nothing to rewrite, and the server that did its last page has recorded that."""
BY_DISCOVERY: Final = "discovery"
BY_LOOSE: Final = "second pass, not proven"
"""Servers may go on writing as before for a while: only a census can prove anything."""
READS_MAX: Final = 10
"""How often in a row the agreement may be unreadable while it is followed."""
# Where the epoch tells what was missed, a watch that fails is better known of at once.
_AT_ONCE: Final = WatchPolicy(failures_max=0)

logger = logging.getLogger(__name__)


class NotAgreed(Exception):
    """The servers do not write one version now: nothing can be begun."""


class LeftAlone(Exception):
    """Another server stores the resource, and does not tell how: nothing is begun, now or later."""


class AgreementCheck(Protocol):
    """What a migration is begun for."""

    target: str
    """The hash of what all servers write; empty where none is shown."""
    target_version: str
    """The apiVersion behind the hash; empty where only the hash is known."""
    target_key: str
    """The encryption key that all servers write with; empty: none, as far as is told."""
    epoch: int | None
    by: str
    """How it is known: goes into the proof."""

    @property
    def mark(self) -> str:
        """Stands for the agreement in positions and proofs; empty where nothing can."""
        ...

    async def follow(self) -> None:
        """Runs until it is cancelled. Raises `Lost`."""
        ...

    async def confirm(self) -> None:
        """Raises `Lost`, or what a read raises."""
        ...


async def begin(
    client: ApiClient,
    resource: ApiResource,
    *,
    record: MigrationRecord | None,
    options: EngineOptions,
) -> AgreementCheck:
    """What the servers agree on now.

    Raises `NotAgreed`, `LeftAlone`; `Lost` if a request was made for something else.
    """
    found = await _find_report(client, resource)
    agreed: AgreementCheck
    if found is not None:
        agreed = Reported(client, resource, found, options=options)
        is_moved = record is not None and _is_moved(record, agreed.seen)
    else:
        await _check_remote(client, resource)
        agreed = Shown(client, resource, options=options)
        # A request that was made by a StorageVersion is not worked off without one.
        is_moved = record is not None and bool(record.storage_version)
    if record is not None and (is_moved or record.target != agreed.target):
        raise Lost(
            f"the request was made for another state of {resource.group_resource}: the servers'"
            " agreement has changed since"
        )
    if found is not None and not agreed.target:
        raise NotAgreed(
            f"the servers do not agree on {_matter(found)} of {resource.group_resource}"
        )
    return agreed


def _matter(found: _Report) -> str:
    is_version_agreed = bool(found.version) and found.is_split
    return "the encryption key" if is_version_agreed else "a version"


async def _check_remote(client: ApiClient, resource: ApiResource) -> None:
    """An aggregated server that reports nothing and shows no hash: nobody could tell what a rewrite
    does, or whether it was needed."""
    if resource.storage_version_hash:
        return
    service = await find_remote(client, resource.resource.group_version)
    if service:
        raise LeftAlone(
            f"{resource.group_resource} is served by APIService {service}, which reports no storage"
            " versions: it is left alone"
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

    Resources that share a store have one together, under the name of one of them: it is found by
    the hash that discovery shows for the other.
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
    """By a list: its version is of now, so that a watch can go on from it. That of an object which
    has not changed for days is forgotten."""
    page = await client.list_page(STORAGE_VERSIONS, options=_only(name))
    for each in page.items:
        if key_of(each).name == name:  # a server may not know the selector
            return _Report.read(each, kind, page.resource_version)
    return None


def _only(name: str) -> ListOptions:
    return ListOptions(field_selector=f"metadata.name={name}", limit=0)


@dataclass(frozen=True, slots=True)
class _Report:
    """A StorageVersion, as far as a migration goes by it."""

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
        """Raises `Lost` for what is no StorageVersion."""
        try:
            found = msgspec.convert(value, StorageVersion)
        except msgspec.ValidationError as error:
            raise Lost(f"a StorageVersion makes no sense: {error}") from error
        return cls(
            str(found.metadata.get("name") or ""),
            found.status.common_encoding_version or "",
            reading_of(found, kind=kind, follows=False),
            not keys_said(found).agreed,
            version_read,
        )


class Reported:
    """Agreement as the StorageVersion of a resource tells it."""

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
        """The last state, of which, and of all before it, it is known that they agree."""
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
                    raise Lost(f"the watch on {self._name} has a gap: {error}") from error
                logger.info("the watch on %s is begun anew: %s", self._name, error)
            await self._read_again(failures)
            failures += 1

    async def _read_again(self, failures: int) -> None:
        """After a gap: the epoch tells whether anything happened in it."""
        runtime, backoff = self._client.runtime, self._options.retry_backoff
        for more in range(READS_MAX):
            delay_seconds = backoff.delay_seconds(failures + more, runtime.randomness)
            await runtime.clock.sleep(delay_seconds)
            try:
                self._take(await self._read())
                return
            except (StatusError, ConnectionFailed) as error:
                logger.info("%s cannot be read: %s", self._name, error)
        raise Lost(f"nobody can tell whether {self._name} has changed")

    async def confirm(self) -> None:
        found = await self._read()
        self._check(found)
        if self._begun.epoch:
            return
        # All states up to this one must have been seen: what the watch has not shown may be many.
        try:
            async with self._client.runtime.clock.timeout(self._options.confirm_seconds_max):
                while self.seen.resource_version != found.reading.resource_version:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise Lost(f"not every change of {self._name} has been seen") from None

    async def _read(self) -> _Report:
        found = await _read(self._client, self._name, self._kind)
        if found is None:
            raise Lost(f"{self._name} was deleted")
        return found

    def _see(self, kind: EventType, value: Object) -> None:
        if kind is EventType.BOOKMARK or key_of(value).name != self._name:
            return
        if kind is EventType.DELETED:
            raise Lost(f"{self._name} was deleted")
        self._take(_Report.read(value, self._kind, version_of(value)))

    def _take(self, report: _Report) -> None:
        self._check(report)
        self.seen, self._version = report.reading, report.version_read
        self._moved.set()

    def _check(self, report: _Report) -> None:
        now, begun = report.reading, self._begun
        if not now.common:
            raise Lost(f"the servers do not agree on {_matter(report)} of {self._name} any more")
        if now.common != begun.common or report.version != self.target_version:
            raise Lost(f"the servers write {self._name} in {report.version} now")
        if now.key != begun.key:
            raise Lost(f"the servers write {self._name} with the key {now.key} now")
        if (now.uid, now.epoch) != (begun.uid, begun.epoch):
            raise Lost(f"the agreement on {self._name} was interrupted")


class Shown:
    """Agreement as far as discovery tells: what one server, or any behind a balancer, shows."""

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
                # Nobody can tell now; before anything is concluded, it is asked again.
                logger.info("discovery of %s cannot be read: %s", self._resource.resource, error)

    async def confirm(self) -> None:
        wanted = self._resource
        listed = await self._client.resources(wanted.resource.group_version)
        shown = {each.storage_version_hash for each in listed if each.name == wanted.name}
        if shown != {self.target}:
            raise Lost(f"servers do not show {self.target} for {wanted.group_resource} any more")
