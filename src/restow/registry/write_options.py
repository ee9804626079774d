"""Options of a write: admission, the field manager, dry run and the retry budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct, field

from restow.apimachinery.apply.entries import Manager
from restow.apimachinery.codec import LONG_BODY_SIZE
from restow.registry.field_management import SERVER
from restow.registry.long_work import RunLong, WorkRunner, in_thread
from restow.registry.resource import Object
from restow.storage.interface import RevisionIs

RETRIES_MAX: Final = 16
"""Limit of the retries of one request, for all causes together: the object was changed meanwhile,
the fence did not hold, a generated name is taken, the CRD was replaced."""


class Retries:
    """The remaining retries of one request, shared by all of its loops."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = RETRIES_MAX

    def take(self) -> bool:
        """Use one retry; return False if none is left."""
        self.left -= 1
        return self.left >= 0


class Review(Protocol):
    """Validating admission: called with the new object and the current one."""

    async def __call__(
        self, obj: Object | None, old: Object | None, /, *, is_dry_run: bool, runner: WorkRunner
    ) -> None:
        """Raise a StatusError to reject. `old` is None for a create, `obj` is None for a delete."""


class Mutate(Protocol):
    """Mutating admission: may change the object before it is validated."""

    async def __call__(
        self, obj: Object, old: Object | None, /, *, is_dry_run: bool, runner: WorkRunner
    ) -> Object:
        """Return the object to write instead, complete like one from a client, or the same one.
        `old` is None for a create, and the name may be missing. Raise a StatusError to reject."""


class FindPlace(Protocol):
    """Looks up the namespace of a new object."""

    async def __call__(self, *, must_be_fresh: bool) -> RevisionIs | None:
        """Return a guard on the namespace as it was found. Raises a StatusError if nothing may be
        created there. `must_be_fresh`: a previous guard did not hold."""


Check = Callable[[Object, Object | None], None]
"""Synchronous admission: called with the new object and the current one, if any; raises a
StatusError to reject."""


class ObjectWriteOptions(Struct, frozen=True, kw_only=True):
    """Options of one write. The defaults are those of the server's own controllers."""

    manager: Manager | None = SERVER
    """The field manager; None: keep the managed fields of the object."""
    mutate: Mutate | None = None
    check: Check | None = None
    review: Review | None = None
    dry_run: bool = False
    retries: Retries = field(default_factory=Retries)
    body_bytes: int = 0
    """Size of the request body."""
    run_long: RunLong = in_thread
    """Runs what would block the event loop for too long."""

    def runner(self, stored_bytes: int = 0) -> WorkRunner:
        """Return what runs the steps of a write of a stored object of this size."""
        is_long = self.body_bytes + stored_bytes > LONG_BODY_SIZE
        return WorkRunner(self.run_long, is_long=is_long)
