"""The position of a migration, as an annotation of it: its purpose, and the next page.

A position is valid only for its purpose: the same migration, the same target, and an agreement that
has not changed since. With an older token the pages before it would not be rewritten.

The saved position is never ahead of the work. A resumed run repeats some pages, which is harmless.

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
    """The number of objects of one pass, by outcome."""

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
    """The migration and agreement for which a position is valid."""

    request_uid: str
    resource: str
    way: str
    target: str
    """The hash to which objects are rewritten."""
    mark: str
    """The agreement; empty if servers do not report one, and then changes of it are not detected.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The progress of a migration: the pass, and the continue token in it."""

    pass_number: int = 1
    """Number of the pass; the first rewrites, the later ones verify."""
    token: str = ""
    counts: Counts = field(default_factory=Counts)
    rewritten: int = 0
    """Objects rewritten in earlier passes."""
    objects: int | None = None
    """Number of objects in the previous pass."""

    @property
    def is_first(self) -> bool:
        return self.pass_number == 1 and not self.token

    def behind(self, done: PageDone) -> Position:
        """Return the position after a page."""
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

    def restart(self) -> Position:
        """Return the first page of the same pass. The count of rewritten objects is kept."""
        return Position(
            pass_number=self.pass_number,
            rewritten=self.rewritten + self.counts.rewritten,
            objects=self.objects,
        )

    def to_text(self, purpose: Purpose) -> str:
        """Return the JSON for the annotation of a migration."""
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
        """Parse an annotation; None if it was written for another purpose: start over then.

        Without a mark an interruption of the agreement is not detected. A first pass may be resumed
        all the same, as another follows it; a pass that verifies may not.
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
