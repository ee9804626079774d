"""`restow status -w`: the output of `restow status`, kept up to date by watches until Ctrl-C.

    LiveOverview    informers on all objects that are shown; builds the overview from their caches
    Screen          terminal: redrawn in place, cut to the height of the terminal
    Blocks          no terminal: one more block of lines after each change
    Records         -o json: one more line after each change

Requests are sent only when a watch starts or breaks, and for discovery when resources or servers
appear or disappear. Ages and expired leases are computed from the clock, without requests.

Not here: the tables (`status_tables`).
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Hashable, Sequence
from typing import Any, Final, Protocol

import orjson
from rich.console import Console
from rich.live import Live
from rich.text import Text

from restow.aio import Backoff, TaskFailure, Tasks
from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apimachinery.status_error import StatusError
from restow.apis.names import IDENTITY_LABEL, LEASE_NAMESPACE
from restow.apis.resources import LEASES, STATES, STORAGE_VERSIONS
from restow.cli.hints import Hints
from restow.cli.status_tables import fields_of, print_all
from restow.cli.untrusted_text import shown
from restow.client import (
    ApiClient,
    ClientError,
    DiscoveredResources,
    Informer,
    ListOptions,
    Object,
    ObjectChange,
    WatchPolicy,
    key_of,
)
from restow.localcluster.shutdown_signals import ShutdownSignals
from restow.migration import migration_objects
from restow.migration.names import MIGRATOR_LEASE, TRIGGER_LEASE
from restow.migration.overview import (
    OBJECTS_MAX,
    OverviewObjects,
    build_overview,
    look,
    read_stored,
    read_unread,
)
from restow.migration.overview_reader import unread_notes
from restow.migration.overview_values import (
    ClusterOverview,
    ResourceSeen,
    ResourceStatus,
    StoredSeen,
)
from restow.migration.readability import Unread
from restow.migration.remote_apis import API_SERVICES, LEFT_ALONE_END
from restow.migration.times import time_text

REFRESH_SECONDS: Final = 1.0
"""Interval at which ages and leases are updated if nothing changes."""
LIST_SECONDS: Final = 60.0
"""Interval of checks whether all resources can be listed."""
SYNC_LOOK_SECONDS: Final = 0.05
STALE: Final = "not up to date"
"""Prefix of the note that the output is not up to date."""
ROWS_MIN: Final = 3
"""Minimum number of resources that are shown, on any terminal."""
WIDTH_OF_FILES: Final = 1_000
_URGENCY: Final = (
    ResourceStatus.UNREADABLE,
    ResourceStatus.DISAGREEING,
    ResourceStatus.MIGRATING,
    ResourceStatus.TO_MIGRATE,
    ResourceStatus.UNKNOWN,
    ResourceStatus.OK,
    ResourceStatus.LEFT_ALONE,
    ResourceStatus.GONE,
)
_MOMENTS: Final = frozenset({"time", "renewTime", "heartbeatTime"})
"""Fields that change all the time, and do not count as a change."""
_SOON: Final = Backoff(initial_seconds=0.5, factor=2, max_seconds=5, jitter=0.5)
# Report a broken stream at once, and list again.
_AT_ONCE: Final = WatchPolicy(failures_max=0)


class LiveOverview:
    """The overview, built from the caches of informers."""

    def __init__(self, client: ApiClient, names: Sequence[str]) -> None:
        self._client = client
        self._names = names
        self._notes: list[str] = []
        self._missing: list[str] = []
        self._discovered: DiscoveredResources | None = None
        self._wanted: frozenset[GroupResource] = frozenset()
        self._shape: Hashable = None
        self._informers: dict[str, Informer] = {}
        self._unread: list[Unread] = []
        self._stored = StoredSeen()
        self._failed: list[BaseException] = []
        self._stale = ""
        """Note that it is not up to date; unchanged until it is again."""
        self._changed = asyncio.Event()

    async def start(self, tasks: Tasks) -> None:
        """Read the overview once, then start the informers. Raises as `look` does."""
        first = await look(self._client, self._names)
        passing = {*unread_notes(first.unread), *first.stored.notes}
        self._notes = [
            each
            for each in first.notes
            if not each.endswith(LEFT_ALONE_END) and each not in passing
        ]
        self._missing = first.missing
        self._unread, self._stored = first.unread, first.stored
        await self._discover()
        for name, informer in self._made().items():
            self._informers[name] = informer
            informer.on_change(self._on_change)
            tasks.spawn(f"informer {name}", informer.run())
        for informer in self._informers.values():
            await self._synced_or_failed(informer)
        self._shape = self._read_shape()
        tasks.spawn("lists", self._list_again())

    async def _list_again(self) -> None:
        """Check periodically whether all resources can be listed, which cannot be watched."""
        while True:
            await self._client.runtime.clock.sleep(LIST_SECONDS)
            assert self._discovered is not None, "not started"
            self._unread = await read_unread(self._client, self._discovered, self._wanted)
            self._stored = await read_stored(self._client, self._discovered)
            self._changed.set()

    def on_failure(self, failure: TaskFailure) -> None:
        """Record that an informer ended, which happens only if there are too many objects."""
        self._failed.append(failure.error)
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a change, at most this long."""
        try:
            async with self._client.runtime.clock.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()
        if self._failed:
            raise self._failed[0]

    async def view(self) -> ClusterOverview:
        """Build the current overview."""
        await self._discover_again()
        assert self._discovered is not None, "not started"
        problems = self._problems()
        migrations = [
            each
            for name, informer in self._informers.items()
            if name.startswith("migrations")
            for each in informer.objects()
        ]
        return build_overview(
            ClusterOverview(
                self._client.server,
                self._client.runtime.clock.wall(),
                stored=self._stored,
                unread=self._unread,
                notes=[*self._notes, *problems],
                missing=[*self._missing, *problems],
            ),
            OverviewObjects(
                states=self._objects("states"),
                reports=self._objects("reports"),
                migrations=sorted(migrations, key=_by_resource),
                servers=sorted(self._objects("servers"), key=key_of),
                leases=self._objects(TRIGGER_LEASE) + self._objects(MIGRATOR_LEASE),
                services=self._objects("services"),
            ),
            self._discovered,
            self._wanted,
        )

    def _made(self) -> dict[str, Informer]:
        """Create an informer for each resource that the server has."""
        assert self._discovered is not None, "not discovered"
        served = {each.resource for each in self._discovered.resources}
        identity = ListOptions(label_selector=IDENTITY_LABEL)
        wanted: list[tuple[str, GroupVersionResource, str, ListOptions | None]] = [
            ("states", STATES, "", None),
            ("reports", STORAGE_VERSIONS, "", None),
            ("servers", LEASES, LEASE_NAMESPACE, identity),
            ("services", API_SERVICES, "", None),
        ]
        for name in (TRIGGER_LEASE, MIGRATOR_LEASE):
            options = ListOptions(field_selector=f"metadata.name={name}")
            wanted.append((name, LEASES, "", options))
        groups: set[str] = set()
        for each in migration_objects.MIGRATION_APIS:
            if each in served and each.group not in groups:
                groups.add(each.group)
                wanted.append((f"migrations of {each.group}", each, "", None))
        return {
            name: Informer(
                self._client,
                resource,
                namespace=namespace,
                options=options,
                objects_max=OBJECTS_MAX,
                backoff=_SOON,
                watch_policy=_AT_ONCE,
            )
            for name, resource, namespace, options in wanted
            if resource in served
        }

    async def _synced_or_failed(self, informer: Informer) -> None:
        """Wait for the cache to sync. A forbidden resource never syncs; a note reports that."""
        clock = self._client.runtime.clock
        while not (informer.is_synced or informer.last_error or self._failed):
            try:
                async with clock.timeout(SYNC_LOOK_SECONDS):
                    await informer.wait_synced()
            except TimeoutError:
                continue

    async def _discover(self) -> None:
        found = await self._client.discover()
        self._wanted = frozenset(found.find(name).group_resource for name in self._names)
        self._discovered = found

    async def _discover_again(self) -> None:
        """Repeat discovery if resources, servers or storage versions changed."""
        shape = self._read_shape()
        if shape == self._shape:
            return
        try:
            await self._discover()
        except (ClientError, StatusError):
            return  # retried later; the informers report the error
        self._shape = shape

    def _read_shape(self) -> Hashable:
        states = [
            (
                key_of(each),
                migration_objects.mapping(each, "status").get("currentStorageVersionHash"),
            )
            for each in self._objects("states")
        ]
        names = [key_of(each) for name in ("reports", "servers") for each in self._objects(name)]
        return frozenset(states), frozenset(names)

    def _problems(self) -> list[str]:
        """Notes on unreadable and stale objects; a note stays the same while its cause does."""
        notes: list[str] = []
        lost = ""
        for name, informer in self._informers.items():
            error = informer.last_error
            if isinstance(error, StatusError) and error.code < 500:
                notes.append(f"{name} could not be read: {shown(str(error))}")
            elif error is not None:
                lost = lost or str(error)
        if not lost:
            self._stale = ""
            return notes
        if not self._stale:
            since = self._client.runtime.clock.wall()
            self._stale = f"{STALE} since {time_text(since)}, trying again: {shown(lost)}"
        return [*notes, self._stale]

    def _objects(self, name: str) -> list[dict[str, Any]]:
        informer = self._informers.get(name)
        return [] if informer is None else informer.objects()

    def _on_change(self, _change: ObjectChange) -> None:
        self._changed.set()


class View(Protocol):
    """Where the overview is shown."""

    def show(self, view: ClusterOverview) -> None: ...

    def close(self) -> None: ...


class Blocks:
    """Prints a block of lines with the time for each change."""

    def __init__(self, hints: Hints, console: Console | None = None) -> None:
        self._hints = hints
        self._console = console or Console(
            width=WIDTH_OF_FILES, highlight=False, markup=False, emoji=False
        )
        self._last: object = None
        self._is_stale = False

    def show(self, view: ClusterOverview) -> None:
        content = _stable_fields(fields_of(view))
        if content == self._last:
            return
        if self._last is not None:
            self._console.print()
        self._last = content
        is_stale = any(note.startswith(STALE) for note in view.notes)
        again = " up to date again" if self._is_stale and not is_stale else ""
        self._is_stale = is_stale
        self._console.print(f"--- {time_text(view.moment)}{again}")
        print_all(view, self._console, hints=self._hints)

    def close(self) -> None:
        """No resources to release."""


class Records:
    """Prints one JSON object per line for each change."""

    def __init__(self) -> None:
        self._last: object = None

    def show(self, view: ClusterOverview) -> None:
        fields = fields_of(view)
        if (content := _stable_fields(fields)) != self._last:
            self._last = content
            print(orjson.dumps(fields).decode(), flush=True)

    def close(self) -> None:
        """No resources to release."""


class Screen:
    """Redraws in place; resources that do not fit are counted."""

    def __init__(self, hints: Hints, console: Console | None = None) -> None:
        self._hints = hints
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def show(self, view: ClusterOverview) -> None:
        self._live.update(self._fitted(view), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def _fitted(self, view: ClusterOverview) -> Text:
        """Render as many resources as fit; a row can take several lines."""
        text = self._drawn(view, resources=None)
        if self._fits(text):
            return text
        fewest, most = min(ROWS_MIN, len(view.resources)), len(view.resources)
        text = self._drawn(view, resources=most_urgent(view.resources, fewest))
        while most - fewest > 1:
            middle = (fewest + most) // 2
            tried = self._drawn(view, resources=most_urgent(view.resources, middle))
            if self._fits(tried):
                fewest, text = middle, tried
            else:
                most = middle
        return text

    def _fits(self, text: Text) -> bool:
        return text.plain.count("\n") < self._console.height - 1

    def _drawn(self, view: ClusterOverview, *, resources: Sequence[ResourceSeen] | None) -> Text:
        """Render the overview on an off-screen console of the same width."""
        sheet = Console(
            file=io.StringIO(),
            width=self._console.width,
            force_terminal=True,
            color_system="truecolor" if not self._console.no_color else None,
            highlight=False,
            markup=False,
            emoji=False,
        )
        with sheet.capture() as capture:
            print_all(view, sheet, hints=self._hints, resources=resources)
        return Text.from_ansi(capture.get().rstrip())


def most_urgent(resources: Sequence[ResourceSeen], count: int) -> list[ResourceSeen]:
    """The `count` most urgent resources; equally urgent ones keep their order."""
    return sorted(resources, key=lambda each: _URGENCY.index(each.verdict))[:count]


def _by_resource(migration: Object) -> tuple[str, str]:
    return str(migration_objects.resource_of(migration)), key_of(migration).name


def _stable_fields(value: Any) -> Any:
    """The fields without those that change all the time."""
    if isinstance(value, dict):
        return {key: _stable_fields(each) for key, each in value.items() if key not in _MOMENTS}
    return [_stable_fields(each) for each in value] if isinstance(value, list) else value


def make_view(output: str, hints: Hints) -> View:
    if output == "json":
        return Records()
    return Screen(hints) if sys.stdout.isatty() else Blocks(hints)


async def follow(
    client: ApiClient, names: Sequence[str], *, output: str, interval: float, hints: Hints
) -> None:
    """Update the view until a signal. Raises errors of the first read; later ones are shown."""
    clock = client.runtime.clock
    following = LiveOverview(client, names)
    ending = ShutdownSignals(clock, lambda: None)  # no second signal needed
    async with (
        ending.interrupts(),
        client.runtime.tasks("status", on_failure=following.on_failure) as tasks,
    ):
        await following.start(tasks)
        shown_by = make_view(output, hints)
        try:
            while True:
                shown_by.show(await following.view())
                await clock.sleep(interval)
                await following.wait(REFRESH_SECONDS)
        finally:
            shown_by.close()
