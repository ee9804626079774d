"""How far a migration is, as an annotation of its request: for what it was begun, and where it is.

A position counts only for what it was begun for: the same request, the same target, and an
agreement that has not moved since. A token of before would leave the first part as it was.

What is saved is always behind what is done. Whoever resumes repeats a little, which is harmless.

Pure. Not here: writing it (`status_writer`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Self

import orjson

from restow.migration.migrator.passes import PageDone

TEXT_LENGTH_MAX: Final = 64 * 1024

REWRITE: Final = "rewrite"
PATCH: Final = "patch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What has come of the objects of one pass."""

    scanned: int = 0
    rewritten: int = 0
    unchanged: int = 0
    settled: int = 0
    failed: int = 0

    def plus(self, done: PageDone) -> Counts:
        return Counts(
            scanned=self.scanned + done.scanned,
            rewritten=self.rewritten + done.rewritten,
            unchanged=self.unchanged + done.unchanged,
            settled=self.settled + done.settled,
            failed=self.failed + done.failed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """What a position is good for."""

    request_uid: str
    resource: str
    way: str
    target: str
    """The hash to which objects are rewritten."""
    mark: str
    """The agreement; empty where servers do not report, and then nothing tells that it moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a migration is: in which pass, and behind which token."""

    pass_number: int = 1
    """The first rewrites; those after it prove."""
    token: str = ""
    counts: Counts = field(default_factory=Counts)
    rewritten: int = 0
    """In the passes before this one."""
    objects: int | None = None
    """How many there were in the pass before this one."""

    @property
    def is_first(self) -> bool:
        return self.pass_number == 1 and not self.token

    def behind(self, done: PageDone) -> Position:
        """Behind a page."""
        return Position(
            pass_number=self.pass_number,
            token=done.token,
            counts=self.counts.plus(done),
            rewritten=self.rewritten,
            objects=self.objects,
        )

    def next_pass(self) -> Position:
        return Position(
            pass_number=self.pass_number + 1,
            rewritten=self.rewritten + self.counts.rewritten,
            objects=self.counts.scanned,
        )

    def begin_again(self) -> Position:
        """The first page of the same pass. What it has rewritten is not forgotten."""
        return Position(
            pass_number=self.pass_number,
            rewritten=self.rewritten + self.counts.rewritten,
            objects=self.objects,
        )

    def to_text(self, purpose: Purpose) -> str:
        """As it is written to a request."""
        counts = self.counts
        value: dict[str, Any] = {
            "uid": purpose.request_uid,
            "resource": purpose.resource,
            "way": purpose.way,
            "target": purpose.target,
            "mark": purpose.mark,
            "pass": self.pass_number,
            "token": self.token,
            "scanned": counts.scanned,
            "rewritten": counts.rewritten,
            "unchanged": counts.unchanged,
            "settled": counts.settled,
            "failed": counts.failed,
            "rewrittenBefore": self.rewritten,
            "objects": self.objects,
        }
        return orjson.dumps(value).decode()

    @classmethod
    def of_text(cls, text: str, purpose: Purpose) -> Self | None:
        """As it was written, if it was written for this purpose; None: begin at the beginning.

        Without a mark nothing tells whether the agreement was interrupted while nobody looked. A
        first pass may go on all the same, as another follows it; one that proves may not.
        """
        value = _object(text)
        said = (value.get("uid"), value.get("resource"), value.get("way"))
        if said != (purpose.request_uid, purpose.resource, purpose.way):
            return None
        if (value.get("target"), value.get("mark")) != (purpose.target, purpose.mark):
            return None
        token, number = value.get("token"), _count(value, "pass")
        if not isinstance(token, str) or number < 1 or (number > 1 and not purpose.mark):
            return None
        objects = value.get("objects")
        return cls(
            pass_number=number,
            token=token,
            counts=Counts(
                scanned=_count(value, "scanned"),
                rewritten=_count(value, "rewritten"),
                unchanged=_count(value, "unchanged"),
                settled=_count(value, "settled"),
                failed=_count(value, "failed"),
            ),
            rewritten=_count(value, "rewrittenBefore"),
            objects=objects if _is_count(objects) else None,
        )


def _object(text: str) -> dict[str, Any]:
    if not text or len(text) > TEXT_LENGTH_MAX:
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _count(value: dict[str, Any], name: str) -> int:
    found = value.get(name, 0)
    return int(found) if _is_count(found) else 0


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
