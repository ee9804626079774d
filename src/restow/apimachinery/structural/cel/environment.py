"""All functions that a rule may call, by name.

More can be added: an environment is a table of overloads. Not here: variables, which the checker
gets with each expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from restow.apimachinery.structural.cel.conversions import CONVERSIONS
from restow.apimachinery.structural.cel.functions import STANDARD, Overload
from restow.apimachinery.structural.cel.library_kubernetes import KUBERNETES
from restow.apimachinery.structural.cel.library_lists import LISTS
from restow.apimachinery.structural.cel.library_network import NETWORK
from restow.apimachinery.structural.cel.library_texts import TEXTS


class Environment:
    """Functions by name; never changed, so that it can be shared."""

    __slots__ = ("_by_name",)

    def __init__(self, overloads: Iterable[Overload]) -> None:
        self._by_name: dict[str, list[Overload]] = {}
        for each in overloads:
            self._by_name.setdefault(each.function, []).append(each)

    def overloads(self, name: str) -> list[Overload]:
        """All overloads of a function; nothing if there is no such function."""
        return self._by_name.get(name, [])

    def extended(self, overloads: Iterable[Overload]) -> Environment:
        """An environment with more functions, or more overloads of those that there are."""
        known = [each for found in self._by_name.values() for each in found]
        return Environment([*known, *overloads])


RULES: Final = Environment([*STANDARD, *CONVERSIONS, *TEXTS, *LISTS, *KUBERNETES, *NETWORK])
"""What rules of schemas may call."""
