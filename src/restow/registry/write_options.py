"""What a write is done with besides its object: admission, the field manager, the retry budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct, field

from restow.apimachinery.apply.entries import Manager
from restow.registry.field_management import SERVER
from restow.registry.resource import Object
from restow.storage.interface import RevisionIs

RETRIES_MAX: Final = 16
"""How often one request is tried again, whatever the causes: the object was changed meanwhile, the
fence did not hold, a generated name is taken, the CRD was replaced."""


class Retries:
    """The retries that one request has left. All loops of the request share it."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = RETRIES_MAX

    def take(self) -> bool:
        """Use one; False when none is left."""
        self.left -= 1
        return self.left >= 0


class Review(Protocol):
    """Validating admission: asked with the object as it would be, and as it is."""

    async def __call__(
        self, obj: Object | None, old: Object | None, /, *, is_dry_run: bool
    ) -> None:
        """Raise a StatusError to refuse. No old object: it is new; no other: it is deleted."""


class Mutate(Protocol):
    """Mutating admission: may change what is written, before it is validated."""

    async def __call__(self, obj: Object, old: Object | None, /, *, is_dry_run: bool) -> Object:
        """The object to write instead, complete like one that a client has sent; or the same one.
        No old object: it is new, and may have no name yet. Raise a StatusError to refuse."""


class FindPlace(Protocol):
    """Looks up the namespace of a new object."""

    async def __call__(self, *, must_be_fresh: bool) -> RevisionIs | None:
        """The guard that the namespace is as it was found. Raises a StatusError if nothing may be
        created there. `must_be_fresh`: the guard did not hold."""


Check = Callable[[Object, Object | None], None]
"""Admission that never waits: told of an object as it would be, and as it is, if it is; raises a
StatusError to refuse it."""


class ObjectWriteOptions(Struct, frozen=True, kw_only=True):
    """How one write is done. The default is for the server's own controllers."""

    manager: Manager | None = SERVER
    """The field manager; None: the object says itself who manages its fields."""
    mutate: Mutate | None = None
    check: Check | None = None
    review: Review | None = None
    dry_run: bool = False
    retries: Retries = field(default_factory=Retries)
