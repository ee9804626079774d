"""The definition of a mutant, and its activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

Patch = Callable[[Any, str, Any], None]
"""Replaces an attribute while the mutant is active."""
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Mutant:
    """A removed rule."""

    name: str
    rows: str
    """The invariants that it breaks, or one of them."""
    what: str
    apply: Callable[[Patch], None]
    mode: str = ""
    """The only coordination mode in which it makes a difference; empty: any."""


@contextmanager
def switched(mutant: Mutant | None) -> Iterator[None]:
    """Play worlds with a rule removed."""
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, value: Any) -> None:
        getattr(owner, name)  # A renamed function must not turn its mutant into the real code.
        undo.append((owner, name, owner.__dict__[name] if name in vars(owner) else _MISSING))
        setattr(owner, name, value)

    if mutant is not None:
        mutant.apply(patch)
    try:
        yield
    finally:
        for owner, name, value in reversed(undo):
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
