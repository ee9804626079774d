"""The plan of a world: drawn from its seed, as a list of steps that can be read and shortened.

A step waits for some seconds, then for an event (`after`, so many times), and then acts on a place:
so faults occur in the middle of what they are meant to disturb.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from restow.migration.trigger.options import TriggerSource
from restow.storageversion.identity import Mode
from tests.support.sim.releases import GROUP, RELEASES

PLACES: Final = ("s1", "s2", "s3")
CONTROLLERS: Final = ("c1", "c2")
FAULTS: Final = {
    "kill": 4,
    "crash": 6,
    "pause": 8,
    "stop": 4,
    "cut": 4,
    "slow": 4,
    "lossy": 5,
    "late": 5,
    "deaf": 4,
    "stall": 5,
    "break": 4,
    "skew": 4,
}
"""Possible faults of a server, with their frequency."""
CONTROLLER_FAULTS: Final = {"kill": 3, "crash": 4, "pause": 4, "cut": 2, "lossy": 3, "stall": 2}
MOMENTS: Final = (
    *("", "", "", ""),
    *("report", "report", "joined", "left", "removed"),
    *("requested", "running", "running", "rewritten", "rewritten", "rewritten"),
    *("narrowed", "selected", "switched", "proven", "succeeded"),
)
PAUSES: Final = (0.3, 2.0, 6.0, 16.0, 18.0, 25.0, 40.0)
"""Seconds; a lease expires after 15."""
FAULT_SECONDS: Final = (0.5, 3.0, 8.0, 17.0, 25.0)
LONG_SECONDS: Final = 130.0
"""Longer than any server may continue without a reply from the store."""
RELEASES_OF_NEIGHBOURS: Final = (("x+1", "x+2"), ("x+1", "x+2"), ("x+1", "x+2"), ("x+2", "x+3"))
ENDS: Final = 0.6
"""Part of the worlds with a custom resource whose CRD is deleted, and created again."""
REGRETS: Final = 0.15
"""Part of them with a storage version that is withdrawn before any server writes it."""
STEPS_MIN, STEPS_MAX = 8, 20
STORIES: Final = 0.12
"""Probability of several related steps in a row."""
SPLITS: Final = 0.75
"""Part of the worlds in which servers can differ that have faults while they do, and no other
events."""


@dataclass(frozen=True, slots=True)
class Step:
    """One act, with its delay and the event that it waits for."""

    wait_seconds: float
    after: str
    count: int
    act: str
    target: str = ""
    argument: str | float = 0.0

    def __str__(self) -> str:
        moment = f", at the {self.count}. '{self.after}'" if self.after else ""
        what = " ".join(str(each) for each in (self.act, self.target, self.argument) if each != "")
        return f"{self.wait_seconds:.2f} s later{moment}: {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A world before it begins."""

    seed: int
    mode: Mode
    releases: tuple[str, str]
    """The initial release of the servers, and the final one."""
    servers: int
    controllers: int
    source: TriggerSource
    """The source of the trigger."""
    delay_seconds: float
    """Maximum delay of messages."""
    gap_seconds: float
    """Average time between two operations of one client."""
    old_objects: int
    """Number of objects from before the start."""
    old_version: str
    """The version in which they are stored."""
    has_custom: bool
    compaction_seconds: float
    skews: tuple[float, ...]
    steps: tuple[Step, ...]
    is_advised: bool = False
    """Whether operators request advice, and do what breaks naive bookkeeping (`advice`)."""
    keys: tuple[str, ...] = ()
    """The encryption keys of all servers at first (`keys`); empty: no configuration."""

    def with_steps(self, steps: Sequence[Step]) -> Plan:
        return Plan(
            **{name: getattr(self, name) for name in self.__slots__ if name != "steps"},
            steps=tuple(steps),
        )

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: {self.servers} servers that {self.mode}, from {self.releases[0]} to"
            f" {self.releases[1]}, {self.controllers} controllers by {self.source},"
            f" {self.old_objects} old objects, delay {self.delay_seconds} s,"
            f" custom resources: {self.has_custom}"
        )
        head += f", keys {','.join(self.keys)}" if self.keys else ""
        return "\n".join([head, *(f"  {each}" for each in self.steps)])


def make_plan(seed: int, *, mode: Mode | None = None) -> Plan:
    """The plan of a seed."""
    random = Random(f"plan/{seed}")
    drawn: Mode = random.choices(("report", "strict", "loose"), (6, 3, 1))[0]
    mode = mode or drawn
    servers, controllers = random.choice((2, 2, 3)), random.choice((1, 1, 2))
    neighbours = random.choice(RELEASES_OF_NEIGHBOURS)
    releases = neighbours if random.random() < 0.7 else (neighbours[1], neighbours[0])
    old_version = RELEASES[releases[0]][1]
    if neighbours == ("x+2", "x+3") and random.random() < 0.7:
        # A release with v2 alone must wait; in the end all servers have the one with both.
        releases, old_version = ("x+2", "x+2"), "v1"
    has_custom = random.random() < 0.4
    places, names = PLACES[:servers], CONTROLLERS[:controllers]
    steps: list[Step] = []
    while len(steps) < random.randint(STEPS_MIN, STEPS_MAX):
        if random.random() < STORIES:
            steps += _story(random, places, neighbours, has_custom=has_custom)
            continue
        act, target, argument = _act(random, places, names, neighbours, has_custom=has_custom)
        wait_seconds = random.choice((0.01, 0.1, 0.5, 2.0, 5.0)) * (0.5 + random.random())
        after, count = random.choice(MOMENTS), random.choice((1, 1, 2, 3, 5))
        steps.append(Step(round(wait_seconds, 3), after, count, act, target, argument))
    # In any case: servers change to the other release, one after the other.
    steps.insert(
        random.randint(0, len(steps) // 2),
        Step(1.0, "", 1, "roll", argument=random.choice(neighbours)),
    )
    source = _source(Random(f"source/{seed}"), mode)
    can_differ = (
        mode == "report" and neighbours == ("x+1", "x+2") and source is not TriggerSource.DISCOVERY
    )
    if can_differ and random.random() < SPLITS:
        where = random.randint(0, len(steps))
        steps[where:where] = _split(random, places, neighbours)
    if has_custom and random.random() < ENDS:
        where = random.randint(0, len(steps))
        steps[where:where] = _end(random, places)
    if has_custom:
        steps += _regret(Random(f"regret/{seed}"), places)
    if mode == "loose":
        # A server is cut off for longer than it may continue, while another version is selected.
        place = random.choice(places)
        steps[2:2] = [
            Step(0.5, "", 1, "roll", argument=neighbours[0]),
            Step(20.0, "", 1, "replace", place, neighbours[1]),
            Step(15.0, "", 1, "stall", place, LONG_SECONDS),
            Step(0.1, "", 1, "roll", argument=neighbours[1]),
            Step(60.0, "", 1, "request", "", ""),
        ]
    return Plan(
        seed=seed,
        mode=mode,
        releases=releases,
        servers=servers,
        controllers=controllers,
        source=source,
        delay_seconds=random.choice((0.002, 0.02, 0.1, 0.2)),
        gap_seconds=random.choice((0.15, 0.3, 0.6)),
        old_objects=random.choice((0, 5, 12, 25)),
        old_version=f"{GROUP}/{old_version}",
        has_custom=has_custom,
        compaction_seconds=random.choice((0.0, 0.0, 10.0)),
        skews=tuple(random.choice((0.0, 0.0, 5.0, -5.0, 3600.0, -3600.0)) for _ in places),
        steps=tuple(steps),
    )


def _source(random: Random, mode: Mode) -> TriggerSource:
    """Loose servers declare it in their reports only, and a trigger has to wait for them."""
    if mode == "loose":
        return TriggerSource.AUTO
    return random.choices(
        (TriggerSource.AUTO, TriggerSource.DISCOVERY, TriggerSource.DISCOVERY_HA), (6, 1, 1)
    )[0]


def _act(
    random: Random,
    places: Sequence[str],
    controllers: Sequence[str],
    releases: tuple[str, str],
    *,
    has_custom: bool,
) -> tuple[str, str, str | float]:
    draw = random.random()
    if has_custom and draw > 0.88:
        return "switch", "", random.choice(("v1", "v2"))
    if draw < 0.55:
        act = random.choices(tuple(FAULTS), tuple(FAULTS.values()))[0]
        return act, random.choice(places), _argument(random, act)
    if draw < 0.7:
        act = random.choices(tuple(CONTROLLER_FAULTS), tuple(CONTROLLER_FAULTS.values()))[0]
        return act, random.choice(controllers), _argument(random, act)
    if draw < 0.78:
        return "roll", "", random.choice(releases)
    if draw < 0.82:
        return "replace", random.choice(places), random.choice(releases)
    if draw < 0.85:
        return random.choice(("request", "delete request", "delete request")), "", ""
    if draw < 0.87:
        return "forge", "", ""
    if draw < 0.9:
        return "outage", "", random.choice(FAULT_SECONDS)
    return random.choice(("request", "delete request")), "", ""


def _story(
    random: Random, places: Sequence[str], releases: tuple[str, str], *, has_custom: bool
) -> list[Step]:
    """Sequences that break naive implementations, and rarely occur by chance."""
    place = random.choice(places)
    other: tuple[str, str, str | float] = ("replace", random.choice(places), releases[1])
    if has_custom and random.random() < 0.7:
        other = ("switch", "", random.choice(("v1", "v2")))
    match random.randrange(7 if has_custom else 6):
        case 5:  # a migration is deleted while it runs
            return [
                Step(0.1, "", 1, "roll", argument=random.choice(releases)),
                Step(0.0, "rewritten", random.choice((1, 2, 6)), "delete request"),
            ]
        case 6:  # a CRD changes when its former version is verified
            first, second = random.sample(("v1", "v2"), 2)
            return [
                Step(0.5, "", 1, "switch", "", first),
                Step(0.0, "proven custom", 1, "switch", "", second),
                Step(0.0, "proven custom", 1, "switch", "", first),
            ]
        case 3:  # all of them at once
            return [Step(0.01, "", 1, "kill", each, "") for each in places]
        case 4:  # one after the other, while the first ones come back
            gap = random.choice((0.1, 1.0, 3.0))
            return [Step(gap, "", 1, "stop", each, "") for each in (*places, *places)]
        case 0:  # a message of a server arrives when it is killed, and others have continued
            return [
                Step(0.5, "", 1, "late", place, 8.0),
                Step(1.0, "", 1, "kill", place, ""),
                Step(0.2, "", 1, *other),
            ]
        case 1:  # the lease of a server expires, and it does not learn what has changed since
            return [
                Step(0.2, "", 1, "stall", place, 40.0),
                Step(0.2, "", 1, *other),
                Step(random.choice((0.05, 2.0, 6.0)), "", 1, "pause", place, 17.0),
                Step(16.0, "", 1, *other),
            ]
        case _:  # a server is paused with a write in flight, until long after its lease
            return [
                Step(0.2, "", 1, "slow", place, 4.0),
                Step(0.5, "", 1, "pause", place, random.choice((16.0, 18.0, 25.0))),
                Step(1.0, "", 1, *other),
            ]


def _split(random: Random, places: Sequence[str], releases: tuple[str, str]) -> list[Step]:
    """Servers of two releases stay as they are, and then a fault affects one of them."""
    one, other = random.sample(places, 2)
    steps = [
        Step(0.1, "", 1, "replace", one, releases[0]),
        Step(0.1, "", 1, "replace", other, releases[1]),
    ]
    for _ in range(random.randint(1, 3)):
        act = random.choice(tuple(FAULTS))
        wait_seconds = round(random.random(), 3)
        victim = random.choice(places)
        steps.append(Step(wait_seconds, "split", 1, act, victim, _argument(random, act)))
    return steps


def _end(random: Random, places: Sequence[str]) -> list[Step]:
    """The CRD of the custom resource is deleted with all its objects, and created again."""
    place, other = random.sample(places, 2)
    version = random.choice(("v1", "v2"))
    undefine = Step(random.choice((0.0, 0.3)), "", 1, "undefine", other, version)
    match random.randrange(4):
        case 0:  # nothing else
            return [undefine]
        case (
            1
        ):  # while a server starts, which no other waits for yet, and which does not learn of it
            return [
                Step(0.2, "", 1, "stop", place, ""),
                Step(0.0, f"definitions read by {place}", 1, "pause", place, 6.0),
                Step(0.0, "", 1, "blind", place, 12.0),
                undefine,
            ]
        case 2:  # while a server does not learn of it, and is waited for
            return [Step(0.2, "", 1, "blind", place, random.choice((5.0, 25.0))), undefine]
        case _:  # while a message of a server is in flight
            return [
                Step(0.2, "", 1, random.choice(("late", "slow", "deaf")), place, 8.0),
                undefine,
                Step(0.0, "undefined", 1, random.choice(("kill", "stop", "break")), place, ""),
            ]


def _regret(random: Random, places: Sequence[str]) -> list[Step]:
    """Sometimes list a version as stored that was never written, when all before it is verified:
    switch the storage version of the CRD and back, while no server sees it."""
    first, second = random.sample(("v1", "v2"), 2)
    if random.random() >= REGRETS:
        return []
    return [
        Step(0.1, "", 1, "switch", "", first),
        Step(30.0, "", 1, "blind", places[0], 4.0),
        *(Step(0.0, "", 1, "blind", place, 4.0) for place in places[1:]),
        Step(0.0, "", 1, "switch", "", second),
        Step(0.0, "", 1, "switch", "", first),
    ]


def _argument(random: Random, act: str) -> str | float:
    match act:
        case "pause":
            return random.choice(PAUSES)
        case "crash":
            return float(random.choice((0, 1, 3, 10, 40, 150)))
        case "skew":
            return random.choice((5.0, -5.0, 60.0, 3600.0, -3600.0))
        case "kill" | "stop" | "break":
            return ""
        case "stall":
            return random.choice((*FAULT_SECONDS, LONG_SECONDS))
        case _:
            return random.choice(FAULT_SECONDS)
