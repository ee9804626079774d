"""Coverage of a campaign: faults by phase, and evaluations of each rule.

A campaign with too little coverage proves nothing, however many worlds it had.
"""

from __future__ import annotations

from typing import Final

from tests.support.sim.advice.plan import ACTS
from tests.support.sim.campaign import Tally
from tests.support.sim.invariants import ADVISED, SIMULATED
from tests.support.sim.plan import FAULTS

PHASES: Final = ("starting", "split", "migrating", "steady")
OTHER_ACTS: Final = (
    *("roll", "replace", "switch", "request", "delete request", "forge", "outage"),
    *("undefine", "blind"),
)
HITS: Final = (
    *("kill", "stop", "pause", "skew", "cut", "broken", "stalled"),
    *("lost", "reply_lost", "late", "error", "duplicated", "refused", "blind"),
)
"""Faults of the network and of processes, by what they have actually affected."""
HAPPENED: Final = (
    *("writes", "rewrites", "deletes", "watches cut", "undefined"),
    *("by discovery", "by discovery-ha"),
)
WORLDS_PER_HIT: Final = 20
"""Each fault must occur at least once per this number of worlds."""
WORLDS_PER_CELL: Final = 200
"""Each fault must occur in each phase at least once per this number of worlds."""


def gaps(tally: Tally) -> list[str]:
    """Insufficient coverage for a campaign of this size; empty: it is valid."""
    cells = [
        f"'{act}' occurred {tally.phases[act, phase]} times while {phase}"
        for act in FAULTS
        for phase in PHASES
        if tally.phases[act, phase] < tally.worlds // WORLDS_PER_CELL
    ]
    return [
        *cells,
        *_rare(tally, "'{}' occurred {} times", {act: _total(tally, act) for act in OTHER_ACTS}),
        *_rare(tally, "'{}' had an effect {} times", {hit: tally.hits[hit] for hit in HITS}),
        *_rare(tally, "{} was evaluated {} times", {row: tally.checked[row] for row in SIMULATED}),
        *_rare(tally, "'{}' happened {} times", {what: tally.counts[what] for what in HAPPENED}),
    ]


def advice_gaps(tally: Tally) -> list[str]:
    """Insufficient coverage for a campaign of worlds with advice; empty: it is valid."""
    return [
        *_rare(tally, "'{}' occurred {} times", {act: _total(tally, act) for act in ACTS}),
        *_rare(tally, "{} was evaluated {} times", {row: tally.checked[row] for row in ADVISED}),
    ]


def _rare(tally: Tally, text: str, counts: dict[str, int]) -> list[str]:
    wanted = max(1, tally.worlds // WORLDS_PER_HIT)
    return [text.format(name, count) for name, count in counts.items() if count < wanted]


def advice_table_of(tally: Tally) -> str:
    """The same, as text."""
    acts = ", ".join(f"{act} {_total(tally, act)}" for act in ACTS)
    rows = ", ".join(f"{row} {tally.checked[row]:,}" for row in ADVISED)
    return "\n".join(
        [
            f"{tally.worlds:,} worlds, {tally.steps:,} steps, {tally.seconds:,.0f} simulated s",
            f"acts: {acts}",
            f"evaluated: {rows}",
            *(f"exercised too little: {each}" for each in advice_gaps(tally)),
        ]
    )


def _total(tally: Tally, act: str) -> int:
    return sum(tally.phases[act, phase] for phase in PHASES)


def table_of(tally: Tally) -> str:
    """The same, as text."""
    width = max(map(len, (*FAULTS, *OTHER_ACTS)))
    lines = [
        f"{tally.worlds:,} worlds, {tally.steps:,} steps, {tally.seconds:,.0f} simulated s",
        f"{'occurred while':>{width}}  " + "  ".join(f"{phase:>9}" for phase in PHASES),
    ]
    for act in (*FAULTS, *OTHER_ACTS):
        row = "  ".join(f"{tally.phases[act, phase]:>9}" for phase in PHASES)
        lines.append(f"{act:>{width}}  {row}")
    lines.append("hits: " + ", ".join(f"{hit} {tally.hits[hit]:,}" for hit in HITS))
    lines.append("evaluated: " + ", ".join(f"{row} {tally.checked[row]:,}" for row in SIMULATED))
    kinds = ("commits", "unanswered", *HAPPENED)
    lines.append(", ".join(f"{name} {tally.counts[name]:,}" for name in kinds))
    missing = gaps(tally)
    lines += [f"exercised too little: {each}" for each in missing]
    return "\n".join(lines)
