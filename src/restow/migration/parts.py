"""Creates trigger and migrator as parts of a process, from its options.

Not here: the implementation of the parts, and the process around them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from restow.client import ApiClient
from restow.migration.events import EventRecorder
from restow.migration.led_controller import MIGRATOR, TRIGGER, Part, Runs
from restow.migration.metrics import ControllerMetrics
from restow.migration.migrator.controller import MigratorController
from restow.migration.migrator.options import MigratorOptions
from restow.migration.names import MIGRATOR_LEASE, TRIGGER_LEASE
from restow.migration.trigger.controller import TriggerController
from restow.migration.trigger.options import TriggerOptions
from restow.migration.trigger.reconciler import CensusOf

PART_NAMES: Final = (TRIGGER, MIGRATOR)
SILENCE_SECONDS: Final = 60.0
"""Limit of the migrator's inactivity. The trigger's limit is two polling periods longer."""

ConnectTo = Callable[[str], ApiClient]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOptions:
    """The parts to run, and their options."""

    names: tuple[str, ...] = PART_NAMES
    trigger: TriggerOptions = field(default_factory=TriggerOptions)
    migrator: MigratorOptions = field(default_factory=MigratorOptions)


def make_parts(
    options: PartOptions,
    *,
    client: ApiClient,
    bulk: ApiClient,
    connect_to: ConnectTo | None,
    recorder: EventRecorder,
    metrics: ControllerMetrics,
    census: CensusOf | None = None,
) -> list[Part]:
    """Create the selected parts. The migrator sends its requests over its own connections."""

    def trigger(is_leader: Callable[[], bool]) -> Runs:
        return TriggerController(
            client,
            runtime=client.runtime,
            settings=options.trigger,
            recorder=recorder,
            metrics=metrics,
            is_leader=is_leader,
            connect_to=connect_to,
            census=census,
        )

    def migrator(_is_leader: Callable[[], bool]) -> Runs:
        return MigratorController(
            bulk,
            runtime=bulk.runtime,
            options=options.migrator,
            recorder=recorder,
            metrics=metrics,
        )

    known = {
        TRIGGER: Part(
            name=TRIGGER,
            lease=TRIGGER_LEASE,
            make=trigger,
            silence_seconds_max=2 * options.trigger.rules.poll_seconds + SILENCE_SECONDS,
            is_always_on=options.trigger.is_local,
        ),
        MIGRATOR: Part(
            name=MIGRATOR,
            lease=MIGRATOR_LEASE,
            make=migrator,
            silence_seconds_max=SILENCE_SECONDS,
            problem_of=_problem_of_migrator,
        ),
    }
    # KEP-35 1.12: the trigger can be left out, so that migrations are started by hand
    # KEP-2343 4.24: the migrator runs without the trigger
    return [known[name] for name in options.names]


def _problem_of_migrator(controller: Runs) -> str:
    """The migrator is healthy once its caches are synced, even without migrations."""
    assert isinstance(controller, MigratorController)
    return "" if controller.is_synced else "the migrations could not be listed yet"
