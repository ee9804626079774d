"""What would go wrong if a rule were left out: switches of the simulator's build.

Each mutant is the production code with one rule of it broken, as a naive build would have it: those
that a search has found in the proposals, the departures of the reference code from them, and the
variants that our own design rejects. A world in which nothing breaks is a blind spot of the
workload, so each must be caught.

    fence        what each write carries          trigger    which requests count
    membership   who is a server, and who is not   migrator   how objects are rewritten
    agreement    what may be stored                base       store and API
    advice       what operators are told           replaced_stores   stores that are replaced
    encryption_keys   who writes with which key

Each module ends in a table of its own. Nothing of this is in the production code: attributes are
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
"""Those that worlds about advice show."""
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
