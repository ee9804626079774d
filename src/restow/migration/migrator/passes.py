"""Interface of a pass over all objects of a resource, however they are rewritten.

Two implementations satisfy `Pages`: the server's own rewrite (`server_rewrite`) and conditional
patches (`patch_rewrite`). The engine requests one page after another, saves the position in
between, and evaluates the pass.

Not here: migration objects, conditions, agreement.
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
    """The reason of a Status: Invalid, Forbidden, InternalError."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDone:
    """The result of one page, after every object of it was processed."""

    token: str
    """Continue token of the next page; empty at the end of the pass."""
    scanned: int
    rewritten: int
    """Stored in another version or under another key before."""
    unchanged: int
    """In the target version already."""
    settled: int = 0
    """Changed concurrently and in the target version now, or deleted."""
    failed: int = 0
    failures: tuple[ObjectFailure, ...] = ()
    """Some of the failed objects; `failed` counts all of them."""
    remaining: int | None = None
    """Number of objects that follow, if the server reports it."""
    moment: str = ""
    """The epoch in which the page was processed, if servers report one."""
    is_verified: bool = False
    """Whether the server has recorded that the whole pass found nothing to rewrite."""


class AgreementLost(Exception):
    """The agreement that the pass was for has changed, or the server does not write the target.
    Nothing more may be written."""


class Pages(Protocol):
    """One way to rewrite. Requesting a page twice is harmless, even from two processes."""

    async def page(self, token: str) -> PageDone:
        """Rewrite the objects of the page of a token; the empty token is the first page.

        Objects that fail are in the result. Raises `AgreementLost`; a StatusError or
        ConnectionFailed if the whole page failed, after a bounded number of tries;
        `asyncio.CancelledError` at any time, and then nothing is in flight any more.
        """
        ...
