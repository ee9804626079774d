"""Replays every change of a store, and checks invariants at every revision.

| checked at every revision | |
|---|---|
| M4 | every object is stored in a version that the persisted hashes contain |
| M3 | while servers do not agree on the target, at most one more page is rewritten |
| M5 | persisted hashes become fewer only while servers agree on the remaining one |

Nothing is sampled: the log of the store is complete.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.storage.interface import Event, Item, Revision, Span, Storage
from restow.storageversion.object_codec import decode_state, state_key
from restow.storageversion.raw_scan import UNREADABLE, version_of
from restow.storageversion.records import decode_epoch, epoch_key
from restow.storageversion.rules import UNKNOWN_HASH
from tests.e2e.storageversion.clusters import V1, V2, WIDGETS_NAME

KIND: Final = "Widget"
ROOT: Final = "/registry/example.com/widgets/"
OLD: Final = "old-"
"""Prefix of objects that only migrations write."""
STATE: Final = state_key(WIDGETS_NAME)
EPOCH: Final = epoch_key(WIDGETS_NAME)
HASHES: Final = {
    version: storage_version_hash(GroupVersionKind.of(version, KIND)) for version in (V1, V2)
}
REQUESTS_ROOT: Final = "/registry/migration.k8s.io/storageversionmigrations/"


@dataclass(slots=True)
class History:
    """The replayed log, with counts and violations."""

    versions: dict[str, str] = field(default_factory=dict)
    """The version in which each object is stored."""
    persisted: tuple[str, ...] | None = None
    agreed: str | None = None
    """The common encoding version."""
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    """The number of objects rewritten in each period without agreement on the target."""
    narrowed: int = 0
    rewritten: int = 0
    """Old objects that are stored in the target version."""
    since_deletion: int | None = None
    """The number of them since a migration was last deleted."""

    def begin(self, items: list[Item]) -> None:
        for item in items:
            self._take(item.key, item.value)
        self.late.clear()
        self.narrowed = self.rewritten = 0

    def go_on(self, events: list[Event]) -> None:
        """Processes all changes of one revision."""
        before = self.persisted
        for event in events:
            self._take(event.key, event.value)
        self._judge(events[0].revision, before)

    def _take(self, key: str, value: bytes | None) -> None:
        if key.startswith(ROOT):
            self._take_object(key, value)
        elif key == STATE:
            item = None if value is None else Item(STATE, value, Revision(0), Revision(0))
            self.persisted = None if item is None else decode_state(item).state.persisted
        elif key == EPOCH and value is not None:
            agreement = decode_epoch(value).agreement
            agreed = None if agreement is None else agreement.version
            if agreed != V2 and self.agreed == V2:
                self.late.append(0)
            self.agreed = agreed
        elif key.startswith(REQUESTS_ROOT) and value is None:
            self.since_deletion = 0

    def _take_object(self, key: str, value: bytes | None) -> None:
        old = self.versions.pop(key, None)
        if old is not None:
            self.counts[old] -= 1
        if value is None:
            return
        self.versions[key] = version = version_of(value)
        self.counts[version] += 1
        is_rewritten = f"/{OLD}" in key and version == V2 != old
        if is_rewritten:
            self.rewritten += 1
            if self.agreed != V2 and self.late:
                self.late[-1] += 1
            if self.since_deletion is not None:
                self.since_deletion += 1

    def _judge(self, revision: int, before: tuple[str, ...] | None) -> None:
        now = self.persisted
        if now is None:
            return  # no state has been written yet
        for version, count in self.counts.items():
            if count and UNKNOWN_HASH not in now and HASHES.get(version) not in now:
                self.broken.append(f"M4: {count} in {version} at {revision}, persisted {now}")
        if before is not None and set(now) < set(before):
            self.narrowed += 1
            if self.agreed is None or now != (HASHES[self.agreed],):
                self.broken.append(f"M5: {before} -> {now} at {revision}, agreed {self.agreed}")

    @property
    def left(self) -> dict[str, int]:
        """Counts the objects that are stored now, by version."""
        return {version: count for version, count in self.counts.items() if count}


async def snapshot(storage: Storage) -> tuple[Revision, list[Item]]:
    """Reads the records that are checked."""
    page = await storage.range(Span.of_prefix("/"))
    return page.revision, page.items


async def replay(storage: Storage, begun: tuple[Revision, list[Item]]) -> History:
    """Replays all changes since a snapshot."""
    after, items = begun
    history = History()
    history.begin(items)
    until = await storage.revision()
    if until <= after:
        return history
    watch = storage.watch(Span.of_prefix("/"), after=after)
    watch.expect(until)
    try:
        async for batch in watch:
            _apply(history, [event for event in batch.events if event.revision <= until])
            if batch.revision >= until:
                return history
    finally:
        await watch.close()
    raise AssertionError("a watch does not end by itself")


def _apply(history: History, events: list[Event]) -> None:
    of_one: list[Event] = []
    for event in events:
        if of_one and event.revision != of_one[0].revision:
            history.go_on(of_one)
            of_one = []
        of_one.append(event)
    if of_one:
        history.go_on(of_one)


assert UNREADABLE not in HASHES, "only `Unknown` stands for what cannot be read"
