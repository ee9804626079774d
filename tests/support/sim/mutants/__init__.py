"""Mutants: the production code with one rule removed, to test the simulator.

Each mutant is what a naive implementation would do: mistakes that a search has found in the
proposals, the reference code's deviations from them, and the variants that our own design rejects.
A world in which nothing breaks is a blind spot of the workload, so each must be detected.

    fence        what each write carries          trigger    which migrations count
    membership   participating servers            migrator   how objects are rewritten
    agreement    persisted versions                base       store and API
    advice       answers for operators            replaced_stores   stores that are replaced
    encryption_keys   which server writes with which key

Each module ends in a table of its own. The production code contains nothing of this: attributes are
replaced while a world is played.
"""

from __future__ import annotations

from typing import Final

from tests.support.sim.mutants import (
    advice,
    agreement,
    base,
    encryption_keys,
    fence,
    membership,
    migrator,
    replaced_stores,
    trigger,
)
from tests.support.sim.mutants.mutant import Mutant, switched
from tests.support.sim.plan import make_plan

__all__ = [
    "ADVICE_MUTANTS",
    "BY_NAME",
    "CAUGHT_BY",
    "MUTANTS",
    "SHOWN_IN",
    "Mutant",
    "seeds_for",
    "switched",
]

MUTANTS: Final = (
    *fence.MUTANTS,
    *membership.MUTANTS,
    *agreement.MUTANTS,
    *trigger.MUTANTS,
    *migrator.MUTANTS,
    *base.MUTANTS,
)
ADVICE_MUTANTS: Final = (
    *advice.MUTANTS,
    *replaced_stores.MUTANTS,
    *encryption_keys.MUTANTS,
)
"""Mutants that worlds with advice detect."""
CAUGHT_BY: Final = {
    **advice.CAUGHT_BY,
    **replaced_stores.CAUGHT_BY,
    **encryption_keys.CAUGHT_BY,
}
SHOWN_IN: Final = {**replaced_stores.SHOWN_IN, **encryption_keys.SHOWN_IN}
BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}


def seeds_for(name: str, count: int) -> list[int]:
    """The seeds in which a mutant can make a difference, of so many."""
    mode = BY_NAME[name].mode
    return [seed for seed in range(count) if not mode or make_plan(seed).mode == mode]
