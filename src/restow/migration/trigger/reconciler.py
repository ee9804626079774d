"""Reconciles one resource: reads its state, decides and acts, until there is nothing left to do.

The order of reads is: the state, the migrations, the servers. Writes to the state are conditional
on the state that was read first, so they succeed only if it has not changed since.

Not here: when to reconcile, and retries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from restow.aio import Clock, Tasks
from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apimachinery.status import Forbidden, NotFound
from restow.apis.resources import DEFINITIONS, STATES
from restow.client import ApiClient, Object
from restow.kinds.builtin import has_group
from restow.migration.event_sinks import EventSink, TriggerMetrics
from restow.migration.migration_objects import mapping, resource_of, seen
from restow.migration.trigger.by_reports import agreed_hash
from restow.migration.trigger.decide import decide
from restow.migration.trigger.eligibility import DiscoveredVersion
from restow.migration.trigger.executor import Acted, Executor
from restow.migration.trigger.observations import Observation, state_name, state_seen
from restow.migration.trigger.options import TriggerOptions
from restow.migration.trigger.shared_reading import SharedReading
from restow.migration.trigger.sources import NotKnownYet, ServerObserver, Sources
from restow.migration.trigger.values import (
    CensusReading,
    DiscoveryReading,
    LocalReading,
    Memory,
    Now,
    Reading,
    ServersReading,
    StorageVersionReading,
    TriggerView,
)

ROUNDS_MAX: Final = 8
"""Limit of consecutive decisions on one resource; after that it is retried later."""
ROUNDS_WAIT_SECONDS: Final = 1.0

CensusOf = Callable[[GroupResource], CensusReading | None]
Migrations = dict[GroupResource, tuple[Object, ...]]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Known:
    """A tracked resource, and the memory of each observer of it."""

    found: DiscoveredVersion
    memories: dict[str, Memory] = field(default_factory=dict)
    is_agreed: bool | None = None
    """Whether servers write it in the same version; None: not known."""
    not_before_seconds: float = 0.0
    """When it may be reconciled again after too many rounds: without this delay, two controllers
    that undo each other's work would overload a server."""
    definition_due_seconds: float = 0.0
    """When its CRD is read again, if it has one: once per polling period."""

    def renew(self, found: DiscoveredVersion) -> None:
        """Take the entry of a newer discovery."""
        self.found = found


async def read_state(client: ApiClient, resource: GroupResource) -> Object | None:
    """Read the StorageState of a resource; None if it does not exist."""
    try:
        return await client.get(STATES, state_name(resource))
    except NotFound:
        return None


class Reconciler:
    """Reconciles resources, several concurrently. The tasks own the readings that they share."""

    def __init__(
        self,
        client: ApiClient,
        sources: Sources,
        options: TriggerOptions,
        *,
        tasks: Tasks,
        recorder: EventSink,
        metrics: TriggerMetrics,
        census: CensusOf | None,
    ) -> None:
        self._client = client
        self._sources = sources
        self._options = options
        self._census = census
        self._clock: Clock = client.runtime.clock
        self._executor = Executor(client, recorder=recorder, metrics=metrics)
        self._migrations = SharedReading("migrations", self._read_migrations, tasks=tasks)
        self._migration_apis: tuple[GroupVersionResource, ...] = ()

    def use_apis(self, migration_apis: Sequence[GroupVersionResource]) -> None:
        """Use these migration APIs from now on; new migrations are created in the first."""
        self._migration_apis = tuple(migration_apis)

    async def reconcile(self, known: Known) -> float:
        """Decide and act until there is nothing to do; return the seconds until the next run.

        Raises NotKnownYet, Behind, a StatusError or a ClientError, which need a retry.
        """
        if not self._migration_apis:
            raise NotKnownYet("no migration API could be read yet")
        observer = await self._sources.observer(known.found)
        wait_seconds = self._options.reconcile_seconds
        if observer is None:
            known.is_agreed = None
            known.memories.clear()
            return wait_seconds
        known.memories = {n: each for n, each in known.memories.items() if n == observer.name}
        for _ in range(ROUNDS_MAX):
            is_changed, until_seconds = await self._round(known, observer)
            if not is_changed:
                break
        else:
            logger.warning("%s is not stable, retrying", known.found.name.group_resource)
            until_seconds = self._clock.monotonic() + ROUNDS_WAIT_SECONDS
            known.not_before_seconds = until_seconds
        if until_seconds is not None:
            wait_seconds = min(wait_seconds, until_seconds - self._clock.monotonic())
        return wait_seconds

    async def _round(self, known: Known, observer: ServerObserver) -> Acted:
        """Read, decide and act once. The memory is kept whether or not the actions succeed."""
        resource = known.found.name
        name = resource.group_resource
        state = await read_state(self._client, name)
        migrations = (await self._migrations.get()).get(name, ())
        # Before the servers are read: a heartbeat must not be later than what it confirms.
        now = self._now()
        reading = await observer.read()
        view = TriggerView(
            resource=resource,
            state=None if state is None else state_seen(state),
            migrations=tuple(seen(each) for each in migrations),
            reading=reading,
            census=None if self._census is None else self._census(name),
            lists_more=state is not None and _reacts(reading) and await self._lists_more(known),
        )
        memory = known.memories.get(observer.name)
        actions, memory = decide(view, memory, now=now, settings=self._options.rules)
        if memory is not None:
            known.memories[observer.name] = memory
        known.is_agreed = _is_agreed(view)
        logger.debug("%s: %s", name, actions)
        observation = Observation(resource=resource, state=state, migrations=migrations)
        acted = await self._executor.act(
            actions, observation, migration_api=self._migration_apis[0]
        )
        if acted.is_changed and view.lists_more:
            # This decision may only have reported; the next one must see the CRD again.
            known.definition_due_seconds = 0.0
        return acted

    async def _lists_more(self, known: Known) -> bool:
        """Whether the CRD lists several stored versions; False if it was read recently.

        Without permission to read CRDs their storedVersions are never trimmed.
        """
        name, now = known.found.name.group_resource, self._clock.monotonic()
        if has_group(name.group) or now < known.definition_due_seconds:
            return False
        known.definition_due_seconds = now + self._options.rules.poll_seconds
        try:
            definition = await self._client.get(DEFINITIONS, str(name))
        except (NotFound, Forbidden):
            return False
        return len(mapping(definition, "status").get("storedVersions") or ()) > 1

    async def _read_migrations(self) -> Migrations:
        """All migrations of each API, by resource."""
        found: dict[GroupResource, list[Object]] = {}
        for api in self._migration_apis:
            async for each in self._client.items(api):
                found.setdefault(resource_of(each), []).append(each)
        return {name: tuple(each) for name, each in found.items()}

    def _now(self) -> Now:
        """The clocks; the wall clock in whole seconds, like the times in objects."""
        return Now(self._clock.monotonic(), self._clock.wall().replace(microsecond=0))


def _reacts(reading: Reading) -> bool:
    """Whether migrations may follow from this reading. The CRD is read once per period: for a
    reading that only reports, the result would be lost."""
    return not isinstance(reading, LocalReading) or reading.is_leader


def _is_agreed(view: TriggerView) -> bool:
    """Whether servers write in the same version, according to the reading."""
    match view.reading:
        case StorageVersionReading() as reading:
            return bool(reading.common)
        case DiscoveryReading() as reading:
            return bool(reading.hash)
        case LocalReading() | ServersReading():
            return view.state is not None and bool(agreed_hash(view.state.status.reports))
        case other:
            assert_never(other)
