"""Checks the logs of the stores: every write of an object against the reports valid at that time.

In the main servers' store one log contains everything. With a store of their own there are two
logs, without a common clock. Two things relate them: each report names the revision of the other
store at which it was made, and a `Sampler` reads one store between two reads of the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

import orjson

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.storage.drivers import open_storage
from restow.storage.interface import Event, Item, Revision, Span, Storage
from restow.storageversion.identity import ServerId
from restow.storageversion.object_codec import decode_report, decode_state, report_key, state_key
from restow.storageversion.raw_scan import version_of
from restow.storageversion.records import ENCODERS_PREFIX, is_held, parse_encoder_key
from restow.storageversion.rules import UNKNOWN_HASH, StorageVersionEntries
from tests.e2e.custom.replaying import replay

KIND: Final = "Part"
SAMPLE_SECONDS: Final = 0.02
SAMPLES_MAX: Final = 100_000

T = TypeVar("T")


def look(address: str, work: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine on the store itself."""

    async def run() -> T:
        storage = await open_storage(address, Runtime.system())
        try:
            return await work(storage)
        finally:
            await storage.close()

    return asyncio.run(run())


def versions_in(address: str, group: str) -> Counter[str]:
    """Counts the stored objects by version, independent of reports."""

    async def read(storage: Storage) -> Counter[str]:
        found = (await storage.range(Span.of_prefix(f"/registry/{group}/parts/"))).items
        return Counter(version_of(item.value) for item in found)

    return look(address, read)


@dataclass(slots=True)
class Log:
    """The log of a store, limited to one kind."""

    group: str
    checks_states: bool = True
    """Whether this store has StorageStates; those of the main servers do."""
    written: Counter[str] = field(default_factory=Counter)
    """Number of objects by the version they were written in."""
    openings: list[tuple[Revision, str, str]] = field(default_factory=list)
    """The revision from which a server could write a version."""
    reports: list[tuple[Revision, StorageVersionEntries]] = field(default_factory=list)
    """The reports, with the revision of each."""
    broken: list[str] = field(default_factory=list)
    _encoders: dict[ServerId, str] = field(default_factory=dict)
    _persisted: tuple[str, ...] = ()

    @classmethod
    def read(cls, address: str, group: str, *, checks_states: bool = True) -> Log:
        log = cls(group, checks_states=checks_states)
        look(address, lambda storage: replay(storage, log.take))
        return log

    def take(self, events: Sequence[Event]) -> None:
        """Processes all changes of one revision."""
        for event in events:
            if event.key.startswith(f"/registry/{self.group}/parts/") and event.value is not None:
                self._judge(event.key, event.value, event.revision)
        for event in events:
            self._note(event)
        is_touched = any(self._is_about_agreement(event.key) for event in events)
        if is_touched and self.reports:
            self._compare(events[0].revision)

    @property
    def _name(self) -> str:
        return f"{self.group}.parts"

    def _is_about_agreement(self, key: str) -> bool:
        return key == report_key(self._name) or (
            key.startswith(ENCODERS_PREFIX) and key.endswith(f"/{self._name}")
        )

    def _judge(self, key: str, value: bytes, revision: Revision) -> None:
        version = version_of(value)
        self.written[version] += 1
        if version not in self._encoders.values():
            self.broken.append(f"{key} at {revision} in {version}, reported: {self._encoders}")
        if self.checks_states and not {
            storage_version_hash(GroupVersionKind.of(version, KIND)),
            UNKNOWN_HASH,
        } & {*self._persisted}:
            self.broken.append(f"{key} at {revision} in {version}, persisted: {self._persisted}")

    def _note(self, event: Event) -> None:
        if event.key == state_key(self._name) and event.value is not None:
            self._persisted = decode_state(_item(event)).state.persisted
        elif event.key == report_key(self._name):
            report = (
                StorageVersionEntries()
                if event.value is None
                else decode_report(_item(event)).report
            )
            self.reports.append((event.revision, report))
        elif self._is_about_agreement(event.key):
            server_id = parse_encoder_key(event.key)[0]
            self._encoders.pop(server_id, None)
            if event.value is not None and not is_held(event.value):
                version = orjson.loads(event.value)["version"]
                self._encoders[server_id] = version
                self.openings.append((event.revision, server_id, version))

    def _compare(self, revision: Revision) -> None:
        report = self.reports[-1][1]
        own = {e.server_id: e.encoding_version for e in report.entries if not e.store}
        if any(own.get(server_id) != version for server_id, version in self._encoders.items()):
            self.broken.append(f"at {revision} {self._encoders} may write, reported is {own}")
        versions = {entry.encoding_version for entry in report.entries}
        if report.common_version is not None and versions != {report.common_version}:
            self.broken.append(f"at {revision} {report.common_version} is agreed on by {versions}")


def _item(event: Event) -> Item:
    assert event.value is not None
    return Item(event.key, event.value, event.revision, event.revision)


@dataclass(frozen=True, slots=True)
class Sample:
    """The servers that could write each version in the own store, between two revisions of the
    main store."""

    after: Revision
    writers: dict[ServerId, str]
    before: Revision


class Sampler:
    """Reads a store of aggregated servers repeatedly, between two reads of the main one."""

    def __init__(self, main: str, own: str, *, group: str) -> None:
        self._addresses = (main, own)
        self._name = f"{group}.parts"
        self._stop = threading.Event()
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        main, own = [await open_storage(each, Runtime.system()) for each in self._addresses]
        try:
            for _ in range(SAMPLES_MAX):
                await self._sample(main, own)
                if await asyncio.to_thread(self._stop.wait, SAMPLE_SECONDS):
                    return
        finally:
            await main.close()
            await own.close()

    async def _sample(self, main: Storage, own: Storage) -> None:
        after = await main.revision()
        found = (await own.range(Span.of_prefix(ENCODERS_PREFIX))).items
        writers = {
            parse_encoder_key(item.key)[0]: orjson.loads(item.value)["version"]
            for item in found
            if item.key.endswith(f"/{self._name}") and not is_held(item.value)
        }
        self.samples.append(Sample(after, writers, await main.revision()))

    def broken(self, main: Log) -> list[str]:
        """Returns the writers that the main servers did not report at any time in between."""
        return list(self._broken(main))

    def _broken(self, main: Log) -> Iterator[str]:
        for sample in self.samples:
            at_start = [report for at, report in main.reports if at <= sample.after][-1:]
            within = [report for at, report in main.reports if sample.after < at <= sample.before]
            said = {
                (entry.server_id, entry.encoding_version)
                for report in at_start + within
                for entry in report.entries
            }
            if missing := {*sample.writers.items()} - said:
                yield f"between {sample.after} and {sample.before} nobody says {missing}"


def unreported(own: Log, main: Log) -> list[str]:
    """Returns the openings of the own store that were not reported to the main servers before."""
    reported = {
        (entry.server_id, entry.encoding_version, entry.sequence)
        for _, report in main.reports
        for entry in report.entries
    }
    return [
        f"{server_id} writes {version} from {revision} on"
        for revision, server_id, version in own.openings
        if not any((server_id, version) == each[:2] and each[2] < revision for each in reported)
    ]
