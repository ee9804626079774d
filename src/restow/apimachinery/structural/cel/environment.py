"""The functions that an expression may call, by name.

An environment is an immutable table of overloads that can be extended. Not here: variables, which
the checker takes with each expression.
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
    """Functions by name; immutable, so it can be shared."""

    __slots__ = ("_by_name",)

    def __init__(self, overloads: Iterable[Overload]) -> None:
        self._by_name: dict[str, list[Overload]] = {}
        for each in overloads:
            self._by_name.setdefault(each.function, []).append(each)

    def overloads(self, name: str) -> list[Overload]:
        """Return all overloads of a function; empty if there is none."""
        return self._by_name.get(name, [])

    def extended(self, overloads: Iterable[Overload]) -> Environment:
        """Return an environment with additional functions or overloads."""
        known = [each for found in self._by_name.values() for each in found]
        return Environment([*known, *overloads])


RULES: Final = Environment([*STANDARD, *CONVERSIONS, *TEXTS, *LISTS, *KUBERNETES, *NETWORK])
"""The functions that schema rules may call."""
