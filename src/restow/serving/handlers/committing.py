"""Writes that are answered when the store reports their commit, without a task in between.

Nearly all writes meet nothing that changed under them. So a handler works a write out in one go,
hands it to the store, and leaves here what is to be done with the outcome. Only a write whose
guards did not hold is done again, by the patient way that waits and repeats.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from restow.resources.store import Begun, Written
from restow.serving.listener.response import Answer, Response


class Committing(NamedTuple):
    """A write under way. It runs to its end even if the client goes away."""

    begun: Begun
    answer: Callable[[Written], Response]
    again: Callable[[], Awaitable[Answer]]
    """The whole write anew, for when something had changed and nothing was done."""
