"""One look at one resource: read everything fresh, decide, act, until there is nothing to do.

Read in this order: the state, the requests, what the servers say. What is written to the state is
conditional on the state that was read first, so it holds only if nothing has touched it since.

Not here: when to look, and what to do when a look fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
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
"""How often in a row it is decided about one resource; what never comes to rest has to wait."""
ROUNDS_WAIT_SECONDS: Final = 1.0

CensusOf = Callable[[GroupResource], CensusReading | None]
Requests = dict[GroupResource, tuple[Object, ...]]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Known:
    """A resource, and what is remembered of it by each observer."""

    found: DiscoveredVersion
    memories: dict[str, Memory] = field(default_factory=dict)
    is_agreed: bool | None = None
    """Whether servers write it alike; None: nobody tells."""
    not_before_seconds: float = 0.0
    """When it may be looked at again, if it did not come to rest: whatever wakes it, or two
    controllers that undo each other's work would keep a server busy."""
    definition_due_seconds: float = 0.0
    """When its definition is looked at again, if it has one: once in a polling period."""


class Reconciler:
    """Looks at resources, several at a time. The tasks own the readings that looks share."""

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
        self._actor = Executor(client, recorder=recorder, metrics=metrics)
        self._requests = SharedReading("requests", self._read_requests, tasks=tasks)
        self.request_apis: tuple[GroupVersionResource, ...] = ()
        """Where requests are; new ones are made in the first."""

    async def bring_to_rest(self, known: Known) -> float:
        """Decide and act until there is nothing to do; the seconds until the next look.

        Raises NotKnownYet, Behind, a StatusError or a ClientError: then it is to be done again.
        """
        if not self.request_apis:
            raise NotKnownYet("no API of migration requests could be read yet")
        observer = await self._sources.observer(known.found)
        wait_seconds = self._options.look_seconds
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
            logger.warning("%s does not come to rest", known.found.name.group_resource)
            until_seconds = self._clock.monotonic() + ROUNDS_WAIT_SECONDS
            known.not_before_seconds = until_seconds
        if until_seconds is not None:
            wait_seconds = min(wait_seconds, until_seconds - self._clock.monotonic())
        return wait_seconds

    async def _round(self, known: Known, observer: ServerObserver) -> Acted:
        """Read, decide, act, once. What is remembered holds whether or not the actions succeed."""
        resource = known.found.name
        name = resource.group_resource
        state = await self._read_state(name)
        requests = (await self._requests.get()).get(name, ())
        # Before the servers are asked: a heartbeat must not tell of a later moment than theirs.
        now = self._now()
        reading = await observer.read()
        view = TriggerView(
            resource=resource,
            state=None if state is None else state_seen(state),
            migrations=tuple(seen(each) for each in requests),
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
        sight = Observation(resource=resource, state=state, requests=requests)
        acted = await self._actor.act(actions, sight, request_api=self.request_apis[0])
        if acted.is_changed and view.lists_more:
            # The decision may only have reported; the next one reacts, and must be told again.
            known.definition_due_seconds = 0.0
        return acted

    async def _read_state(self, resource: GroupResource) -> Object | None:
        try:
            return await self._client.get(STATES, state_name(resource))
        except NotFound:
            return None

    async def _lists_more(self, known: Known) -> bool:
        """Whether the definition lists more than what it stores; False if it was asked lately.

        Whoever may not read definitions is not told: then they stay as they are.
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

    async def _read_requests(self) -> Requests:
        """All requests of each API, by their resource."""
        found: dict[GroupResource, list[Object]] = {}
        for api in self.request_apis:
            async for each in self._client.items(api):
                found.setdefault(resource_of(each), []).append(each)
        return {name: tuple(each) for name, each in found.items()}

    def _now(self) -> Now:
        """The wall clock in whole seconds, as the times in objects are."""
        return Now(self._clock.monotonic(), self._clock.wall().replace(microsecond=0))


def _reacts(reading: Reading) -> bool:
    """Whether anything is asked for by this reading. Who only reports must not be told what is told
    once in a period: those who react would never hear of it."""
    return not isinstance(reading, LocalReading) or reading.is_leader


def _is_agreed(view: TriggerView) -> bool:
    """Whether servers write alike, as far as is seen."""
    match view.reading:
        case StorageVersionReading() as reading:
            return bool(reading.common)
        case DiscoveryReading() as reading:
            return bool(reading.hash)
        case LocalReading() | ServersReading():
            return view.state is not None and bool(agreed_hash(view.state.status.reports))
        case other:
            assert_never(other)
