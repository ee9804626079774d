"""The operators' steps in a world with advice, drawn from its seed.

A world is a sequence of stories, each about one thing that bookkeeping may miss. Between any two
steps servers may be killed or paused, and preflight may run for a release.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from restow.migration.trigger.options import TriggerSource
from restow.storageversion.identity import Mode
from tests.support.sim.plan import PLACES, Plan, Step
from tests.support.sim.releases import CLUSTER_SCOPED, GROUP, HOSTED, RELEASES, WITH_GADGETS

ACTS: Final = (
    *(
        "ask",
        "compare",
        "status",
        "rollback",
        "settle",
        "controllers",
        "upgrade",
        "gate off",
        "gate on",
        "restart",
    ),
    *("delete states", "forge verification", "remove CRD by force", "remove CRD", "define CRD"),
    *("put raw value", "pause"),
    *("replace store", "grow store", "put store back", "accept store", "restore backup"),
    *("set keys", "remove key"),
)
"""Acts of an operator, all of which a campaign must exercise."""
RAW_VALUES: Final = ("garbage", "unknown version", "unknown prefix", "other location")
STORES: Final = ("rolled back", "rolled back", "snapshot", "bumped", "other", "emptied")
"""How a store is replaced under running servers (`stores`)."""
FAULTS: Final = ("kill", "stop", "crash", "pause", "late", "slow")
STORIES_MIN, STORIES_MAX = 1, 3
SETTLED: Final = 0.75
"""Probability that a story begins when all migrations are complete."""
READ_ALL: Final = ("x+1", "x+2")
"""Releases that can read everything."""
UNADVISED: Final = 0.25
"""Probability that a gate is switched together with a release, whatever preflight answers."""
KEYED: Final = 0.2
"""Probability that a world has encryption keys although no story is about them."""
FIRST_KEYS: Final = (
    *(("identity",), ("k1", "identity"), ("k1", "identity")),
    ("k1", "k2", "identity"),
)
"""The initial configurations; all of them read values that are not encrypted."""
REVISIONS_BACK: Final = (1, 5, 25, 100, 400)
"""Number of revisions that a store loses when it goes back."""
LONG_PAUSE_SECONDS: Final = (20.0, 30.0, 60.0)
"""Longer than a lease, so that the server does not participate when the next step is decided."""


@dataclass(frozen=True, slots=True)
class Story:
    """An operator's steps about one thing."""

    first: str
    """The release that servers should run before the first step."""
    steps: list[Step]
    needs_keys: bool = False
    """Whether servers must have an encryption configuration."""


def make_advice_plan(seed: int, *, mode: Mode | None = None) -> Plan:
    """The plan of a seed."""
    random = Random(f"advice/{seed}")
    drawn: Mode = random.choices(("report", "strict"), (3, 1))[0]
    servers = random.choice((2, 2, 3))
    places = PLACES[:servers]
    # Each story is certain in one seed of so many; the others of a seed are drawn.
    chosen = [STORIES[seed % len(STORIES)]]
    chosen += random.sample(STORIES, random.randint(STORIES_MIN, STORIES_MAX) - 1)
    random.shuffle(chosen)
    stories = [story(random, places) for story in chosen]
    first = stories[0].first
    is_keyed = random.random() < KEYED or any(story.needs_keys for story in stories)
    steps: list[Step] = []
    for story in stories:
        if random.random() < SETTLED:
            steps.append(Step(0.1, "", 1, "settle"))
        steps += story.steps
        steps += _between(random, places)
    return Plan(
        seed=seed,
        mode=mode or drawn,
        releases=(first, random.choice(("x+1", "x+2"))),
        servers=servers,
        controllers=1,
        source=TriggerSource.AUTO,
        delay_seconds=random.choice((0.002, 0.02)),
        gap_seconds=random.choice((0.3, 0.6)),
        old_objects=random.choice((0, 5, 12)),
        old_version=f"{GROUP}/{RELEASES[first][1]}",
        has_custom=True,
        compaction_seconds=0.0,
        skews=(0.0,) * servers,
        steps=tuple(steps),
        is_advised=True,
        keys=random.choice(FIRST_KEYS) if is_keyed else (),
    )


def _between(random: Random, places: Sequence[str]) -> list[Step]:
    """A question, and now and then a fault."""
    found = [Step(_wait(random), "", 1, "ask", argument=random.choice(tuple(HOSTED)))]
    if random.random() < 0.5:
        found.append(Step(0.1, "", 1, "status"))
    if random.random() < 0.3:
        found.append(Step(0.1, "", 1, "compare", argument=random.choice(tuple(RELEASES))))
    if random.random() < 0.4:
        act = random.choice(FAULTS)
        argument: str | float = ""
        if act in ("pause", "late", "slow"):
            argument = random.choice((2.0, 8.0, 18.0))
        elif act == "crash":
            argument = float(random.choice((0, 3, 40)))
        found.append(Step(_wait(random), "", 1, act, random.choice(places), argument))
    return found


def _wait(random: Random) -> float:
    return round(random.choice((0.1, 1.0, 4.0, 10.0)) * (0.5 + random.random()), 3)


def _gates(random: Random, _places: Sequence[str]) -> Story:
    """The gate is off for a while, and releases change meanwhile."""
    how = random.choice(("together", "together", "one by one"))
    first, other = random.sample(("x+1", "x+2"), 2)
    after = random.choice((first, *RELEASES))
    return Story(
        first,
        [
            *_maybe(random, 0.5, _controllers(random)),
            Step(_wait(random), "", 1, "gate off", how, _release(random, other)),
            Step(_wait(random) + 3.0, "", 1, "ask", argument=random.choice(tuple(RELEASES))),
            *_maybe(random, 0.2, Step(1.0, "", 1, "upgrade", argument=random.choice(READ_ALL))),
            Step(_wait(random), "", 1, "gate on", how, _release(random, after)),
            Step(_wait(random), "", 1, "status"),
            Step(0.5, "", 1, "ask", argument=random.choice(tuple(RELEASES))),
        ],
    )


def _release(random: Random, chosen: str) -> str:
    """A release for a step; empty: the running one; "!": the step ignores preflight's answer."""
    if random.random() < 0.2:
        return ""
    return f"!{chosen}" if random.random() < UNADVISED else chosen


def _states(random: Random, places: Sequence[str]) -> Story:
    """StorageStates are deleted, or created again without a status, before servers register."""
    first, other = random.choice((("x+1", "x+2"), ("x+2", "x+1")))
    return Story(
        first,
        [
            *_maybe(random, 0.6, _controllers(random)),
            Step(_wait(random), "", 1, "upgrade", argument=other),
            Step(0.1, "", 1, "delete states", argument=random.choice(("gone", "empty"))),
            Step(0.0, "", 1, "restart", random.choice((*places, "all"))),
            Step(_wait(random), "", 1, "status"),
            Step(0.5, "", 1, "ask", argument=random.choice(tuple(RELEASES))),
        ],
    )


def _forged(random: Random, _places: Sequence[str]) -> Story:
    """A client marks a migration as succeeded and verified."""
    first, other = random.choice((("x+1", "x+2"), ("x+2", "x+1")))
    how = random.choice(("text", "JSON"))
    return Story(
        first,
        [
            Step(0.1, "", 1, "controllers", argument=random.choice(("all", "trigger", "trigger"))),
            Step(_wait(random), "", 1, "upgrade", argument=other),
            Step(random.choice((0.0, 3.0)), "", 1, "forge verification", argument=how),
            Step(_wait(random), "", 1, "status"),
            Step(0.5, "", 1, "ask", argument="x+3" if other == "x+2" else "x"),
        ],
    )


def _forced(random: Random, _places: Sequence[str]) -> Story:
    """The finalizers of a CRD are patched away, and it is created again with other versions."""
    versions = random.choice(("v2", "v1,v2", "v9", "v2,v9"))
    question = Step(_wait(random), "", 1, "ask", argument=random.choice((WITH_GADGETS, "x+1")))
    return Story(
        random.choice(READ_ALL),
        [
            Step(_wait(random), "", 1, "remove CRD by force"),
            *_maybe(random, 0.4, question),
            Step(_wait(random), "", 1, "define CRD", argument=versions),
            Step(_wait(random) + 2.0, "", 1, "ask", argument=random.choice(tuple(HOSTED))),
            Step(0.1, "", 1, "status"),
        ],
    )


def _removed(random: Random, _places: Sequence[str]) -> Story:
    """A CRD is deleted regularly, and not created again."""
    release = random.choice(("x+1", "x+2", WITH_GADGETS))
    return Story(
        random.choice(READ_ALL),
        [
            Step(_wait(random), "", 1, "remove CRD"),
            Step(_wait(random), "", 1, "ask", argument=release),
            Step(0.1, "", 1, "upgrade", argument=release),
        ],
    )


def _scope(random: Random, _places: Sequence[str]) -> Story:
    """A release in which a kind has another scope, and back."""
    return Story(
        "x+1",
        [
            *_maybe(random, 0.5, Step(_wait(random), "", 1, "ask", argument=CLUSTER_SCOPED)),
            Step(0.1, "", 1, "upgrade", argument=CLUSTER_SCOPED),
            Step(_wait(random), "", 1, "status"),
            Step(0.1, "", 1, "rollback"),
        ],
    )


def _builtin(random: Random, _places: Sequence[str]) -> Story:
    """A release has as a built-in kind what a CRD defines; then back."""
    back = Step(_wait(random), "", 1, "upgrade", argument="x+1")
    return Story(
        random.choice(("x+1", "x+2")),
        [
            *_maybe(random, 0.5, Step(0.1, "", 1, "remove CRD")),
            Step(_wait(random), "", 1, "upgrade", argument=WITH_GADGETS),
            Step(_wait(random), "", 1, "ask", argument=random.choice(("x+1", "x+2"))),
            random.choice((back, Step(_wait(random), "", 1, "rollback"))),
            *_maybe(random, 0.5, Step(0.1, "", 1, "define CRD", argument="v1,v2")),
        ],
    )


def _raw(random: Random, _places: Sequence[str]) -> Story:
    """A value is written to the store directly, bypassing the servers."""
    return Story(
        random.choice(READ_ALL),
        [
            Step(_wait(random), "", 1, "put raw value", argument=random.choice(RAW_VALUES)),
            Step(_wait(random), "", 1, "ask", argument=random.choice(READ_ALL)),
            Step(0.1, "", 1, "status"),
            *_maybe(random, 0.4, Step(0.1, "", 1, "upgrade", argument=random.choice(READ_ALL))),
        ],
    )


def _away(random: Random, places: Sequence[str]) -> Story:
    """A server is paused for longer than its lease while others are upgraded, possibly to a newer
    release than its own."""
    place, *others = random.sample(places, len(places))
    middle = random.random() < 0.7
    return Story(
        "x",
        [
            *(Step(0.1, "", 1, "upgrade", each, "x+1") for each in others if middle),
            Step(_wait(random), "", 1, "pause", place, random.choice(LONG_PAUSE_SECONDS)),
            *_maybe(random, 0.5, Step(1.0, "", 1, "ask", argument=random.choice(READ_ALL))),
            Step(17.0, "", 1, "upgrade", others[0], "x+2" if middle else "x+1"),
            Step(1.0, "", 1, "ask", argument=random.choice(READ_ALL)),
        ],
    )


def _replaced(random: Random, places: Sequence[str]) -> Story:
    """Another store, or an earlier state of it, appears under running servers. An operator accepts
    it, or puts the original one back."""
    how = f"{random.choice(STORES)} {random.choice(REVISIONS_BACK)}"
    other = random.choice(READ_ALL)
    return Story(
        random.choice(READ_ALL),
        [
            *_maybe(random, 0.5, Step(_wait(random), "", 1, "upgrade", argument=other)),
            *_maybe(random, 0.3, Step(0.1, "", 1, "pause", random.choice(places), 8.0)),
            Step(_wait(random), "", 1, "replace store", argument=how),
            *_maybe(random, 0.3, Step(_wait(random), "", 1, "restart", random.choice(places))),
            *_maybe(random, 0.3, Step(_wait(random), "", 1, "kill", random.choice(places))),
            *_maybe(random, 0.3, Step(0.1, "", 1, "ask", argument=random.choice(READ_ALL))),
            *_maybe(random, 0.5, Step(_wait(random), "", 1, "grow store", "", "by 400")),
            *_maybe(random, 0.3, Step(_wait(random), "", 1, "put store back")),
            Step(random.choice((0.0, 0.3, _wait(random))), "", 1, "accept store"),
            *_maybe(random, 0.3, Step(_wait(random), "", 1, "kill", random.choice(places))),
            Step(_wait(random), "", 1, "ask", argument=random.choice(tuple(RELEASES))),
            *_maybe(random, 0.5, Step(0.1, "", 1, "status")),
        ],
    )


def _restored(random: Random, _places: Sequence[str]) -> Story:
    """An older backup is restored."""
    other = random.choice(READ_ALL)
    return Story(
        random.choice(READ_ALL),
        [
            *_maybe(random, 0.5, Step(_wait(random), "", 1, "upgrade", argument=other)),
            Step(
                _wait(random),
                "",
                1,
                "restore backup",
                argument=f"restored {random.choice(REVISIONS_BACK)}",
            ),
            Step(_wait(random), "", 1, "ask", argument=random.choice(tuple(RELEASES))),
            Step(0.1, "", 1, "status"),
        ],
    )


def _rotated(random: Random, places: Sequence[str]) -> Story:
    """An encryption key is rotated: added, put first, and the old one removed when preflight
    reports it as unused. Now and then servers take a step at different times."""
    steps = [
        *_keys_everywhere(random, places, "k1,k3,identity"),
        *_keys_everywhere(random, places, "k3,k1,identity"),
        _ask_with_keys(random),
        *_maybe(random, 0.5, Step(0.1, "", 1, "status")),
    ]
    wait_seconds = random.choice((1.0, 10.0, 40.0))
    steps.append(Step(wait_seconds, "", 1, "remove key", "advised", "k1"))
    steps += _maybe(random, 0.5, Step(3.0, "", 1, "restart", random.choice((*places, "all"))))
    return Story(random.choice(READ_ALL), [*steps, _ask_with_keys(random)], needs_keys=True)


def _removed_early(random: Random, places: Sequence[str]) -> Story:
    """A key is removed from the servers' configurations while values are encrypted with it."""
    return Story(
        random.choice(READ_ALL),
        [
            *_keys_everywhere(random, places, random.choice(("k2,k1,identity", "k1,k2,identity"))),
            Step(_wait(random), "", 1, "remove key", "", random.choice(("k1", "k2", "identity"))),
            *_maybe(random, 0.5, Step(2.0, "", 1, "restart", random.choice((*places, "all")))),
            _ask_with_keys(random),
            *_maybe(random, 0.5, Step(0.1, "", 1, "status")),
            *_maybe(random, 0.5, Step(1.0, "", 1, "upgrade", argument=random.choice(READ_ALL))),
        ],
        needs_keys=True,
    )


def _same_name(random: Random, places: Sequence[str]) -> Story:
    """A server gets another secret under the name of a key that is in use."""
    keys = random.choice(("k1!,identity", "k1!,k1,identity", "k2,k1!,identity"))
    place = random.choice(places)
    return Story(
        random.choice(READ_ALL),
        [
            Step(_wait(random), "", 1, "set keys", "", "k1,k2,identity"),
            Step(_wait(random), "", 1, "set keys", place, keys),
            *_maybe(random, 0.6, Step(2.0, "", 1, "restart", place)),
            _ask_with_keys(random),
            *_maybe(random, 0.5, Step(0.1, "", 1, "status")),
        ],
        needs_keys=True,
    )


def _keys_everywhere(random: Random, places: Sequence[str], keys: str) -> list[Step]:
    """All servers get a configuration, at once or one after the other."""
    if random.random() < 0.5:
        return [Step(_wait(random), "", 1, "set keys", "", keys)]
    order = random.sample(places, len(places))
    return [Step(_wait(random), "", 1, "set keys", place, keys) for place in order]


def _ask_with_keys(random: Random) -> Step:
    """A preflight for a release with some of the keys."""
    keys = random.choice(("", "k1,identity", "k3,identity", "k1,k2,identity", "k1!,identity", "k3"))
    return Step(_wait(random), "", 1, "ask", keys, random.choice(READ_ALL))


def _controllers(random: Random) -> Step:
    """No controller runs for a while, or no migrator does."""
    return Step(0.1, "", 1, "controllers", argument=random.choice(("none", "trigger")))


def _maybe(random: Random, chance: float, step: Step) -> list[Step]:
    return [step] if random.random() < chance else []


STORIES: Final[tuple[Callable[[Random, Sequence[str]], Story], ...]] = (
    *(_gates, _states, _forged, _forced, _removed, _scope, _builtin, _raw, _away),
    *(_replaced, _replaced, _restored, _rotated, _removed_early, _same_name),
)
