"""What a pass over all objects of a resource is made of, whichever way they are rewritten.

Two ways satisfy `Pages`: the server's own rewrite (`server_rewrite`) and conditional patches
(`patch_rewrite`). The engine calls one page after another, keeps the position in between, and
decides what a whole pass means.

Not here: requests, conditions, agreement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFailure:
    """An object that could not be rewritten."""

    namespace: str
    name: str
    reason: str
    """One word, as a Status has it: Invalid, Forbidden, InternalError."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDone:
    """What has come of one page, once every object of it is settled."""

    token: str
    """Where to go on; empty at the end of the pass."""
    scanned: int
    rewritten: int
    """Stored anew: they were in another version, or under another key."""
    unchanged: int
    """Found as they should be."""
    settled: int = 0
    """Changed or deleted by someone else meanwhile, and found right, or gone."""
    failed: int = 0
    failures: tuple[ObjectFailure, ...] = ()
    """At most some of those that failed; `failed` counts all."""
    remaining: int | None = None
    """How many objects follow, if the server says so."""
    moment: str = ""
    """The epoch in which the page was done, where servers keep one."""
    is_verified: bool = False
    """Whether the server has recorded that the whole pass found nothing to rewrite."""


class Lost(Exception):
    """What the pass was begun for is no longer so: the server does not write the target, or the
    servers' agreement has changed. Nothing more may be written."""


class Pages(Protocol):
    """One way to rewrite. It may be asked for the same page again, by another process too."""

    async def page(self, token: str) -> PageDone:
        """Rewrite what is on the page behind a token; an empty one is the first.

        Single objects that fail are told in the answer. Raises `Lost`; a StatusError or
        ConnectionFailed when the page as a whole could not be done, after a bounded number of
        tries; `asyncio.CancelledError` at any time, and then nothing is under way any more.
        """
        ...
