"""Writes that are answered when the store reports their commit, without a task in between.

Nearly all writes meet nothing that changed under them. So a handler works a write out in one go,
hands it to the store, and leaves here what is to be done with the outcome. Only a write whose
guards did not hold is done again, by the patient way that waits and repeats.

While others are committed, memory is often behind by a moment. A write that comes then is worked
out when memory has caught up, and that needs no task either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from restow.httpserver.response import Answer, HttpResponse
from restow.registry.store import Begun, Written


class PendingCommit(NamedTuple):
    """A write under way. It runs to its end even if the client goes away."""

    begun: Begun
    answer: Callable[[Written], HttpResponse]
    again: Callable[[], Awaitable[Answer]]
    """The whole write anew, for when something had changed and nothing was done."""


class Freshening(NamedTuple):
    """A write of which nothing was begun, as memory may lack what was acknowledged before it."""

    begin: Callable[[], HttpResponse | PendingCommit | None]
    """To be called when memory has that; None: nothing was begun all the same."""
    again: Callable[[], Awaitable[Answer]]
    """The whole write in the patient way, for then."""


Writing: TypeAlias = "PendingCommit | Freshening"
"""A write that is answered without a task of its own."""
