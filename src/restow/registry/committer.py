"""Where objects are committed: one guarded transaction for each write, under the fence.

A plan says what to store for one state of an object. Here it is encoded as the policy says at that
moment and given to the store, with its own guards and those of the policy. If the fence does not
hold, the policy is asked anew; if the state has moved on, whoever made the plan makes another.

Not here: how a plan is made (`write_plans`, `store`), and which version is written (`encoding`).
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, assert_never

from restow.apimachinery import status
from restow.encryption.decryption import open_value
from restow.encryption.interface import Keys
from restow.registry.caches import Caches
from restow.registry.encoding import Encoding, EncodingPolicy
from restow.registry.errors import ResourceReplaced, translate
from restow.registry.resource import Resource
from restow.registry.watch_cache import WatchCache
from restow.registry.write_plans import WritePlan, Written
from restow.storage.checks import check_transaction
from restow.storage.errors import StorageError
from restow.storage.interface import (
    SEAL_BYTES_MAX,
    TRANSACTION_BYTES_MAX,
    Delete,
    Done,
    Item,
    Outcome,
    Put,
    Refused,
    RevisionIs,
    Storage,
    Transaction,
    Unknown,
    Write,
)

FENCE_ATTEMPTS_MAX: Final = 5


class PlaceMoved(Exception):
    """The namespace of a new object is not as it was when it was looked at."""


class StateMoved(Exception):
    """The object is not as it was when the plan was made; here is what is there now."""

    def __init__(self, current: Item | None) -> None:
        super().__init__("the state has moved on")
        self.current = current


class _Stopped(Exception):
    """A plan that is committed once, or not at all, was not."""

    def __init__(self, outcome: Refused | Unknown) -> None:
        super().__init__("stopped")
        self.outcome = outcome


class Begun:
    """A write that the store has been given and that nobody waits for.

    When `outcome` is done, `settle` says what has come of it.
    """

    __slots__ = ("_cache", "_encoded", "_plan", "_write", "outcome")

    def __init__(
        self,
        outcome: asyncio.Future[Outcome],
        plan: WritePlan,
        write: Write,
        encoded: str,
        cache: WatchCache | None,
    ) -> None:
        self.outcome = outcome
        self._plan = plan
        self._write = write
        self._encoded = encoded
        self._cache = cache

    def settle(self) -> Written | None:
        """What a client is to be told; None when a guard did not hold, so that nothing was done.

        Whoever gets None does it all again the patient way. Raises what `create` and `update` do.
        """
        try:
            outcome = self.outcome.result()
        except StorageError as error:
            raise translate(error) from error
        match outcome:
            case Done(revision):
                return self._plan.written(
                    revision, self._write, self._encoded, self._cached(revision)
                )
            case Refused():
                return None
            case Unknown():
                raise _unknown(outcome)
            case _:
                assert_never(outcome)

    def _cached(self, revision: int) -> bytes | None:
        """The body, if the change has reached the cache already: it usually comes first."""
        entry = None if self._cache is None else self._cache.of_key(self._plan.guard.key)
        if entry is None or entry[0] != revision or entry[1] != self._encoded:
            return None
        return entry[2]


class Sealed(NamedTuple):
    """Values as they are stored, and what opens them."""

    storage: Storage
    keys: Keys


class ObjectCommitter:
    """Gives the store what was planned."""

    def __init__(
        self,
        storage: Storage,
        caches: Caches,
        policy: EncodingPolicy,
        sealed: Sealed | None = None,
    ) -> None:
        """`sealed` is what lies beneath a storage that is encrypted; None: it is not."""
        self._storage = storage
        self._sealed = sealed
        self._caches = caches
        self._policy = policy
        self.must_wait = False
        """Set when the store turns out to be one whose commits must be awaited."""

    async def rewrite(self, plan: WritePlan) -> Refused | Unknown | None:
        """Commit a plan that is right for one state and one version, and never encode it anew.

        None when that is done; otherwise what kept it from being done.
        """
        try:
            await self.carry_out(plan, is_rewrite=True)
        except _Stopped as stopped:
            return stopped.outcome
        return None

    async def carry_out(self, plan: WritePlan, *, is_rewrite: bool = False) -> Written:
        """Commit one write under its own guards and the fence.

        Raises `StateMoved` with the newest state when the object's guard does not hold; a rewrite
        is not repeated, whatever guard it was, and raises `_Stopped`.
        """
        resource = plan.resource
        for _ in range(FENCE_ATTEMPTS_MAX):
            encoding = self._encoding(resource)
            if resource.remote is not None and plan.must_prepare(encoding):
                # It may take a while. If all has changed then, the fence does not hold.
                await plan.prepare(encoding)
                check_current(resource)
            write = plan.write(encoding)
            if write is None:
                write = await self._still_to_write(plan, encoding)
            if write is None:
                return plan.unchanged()
            sealed = self._seal(plan, encoding, write, is_rewrite=is_rewrite)
            try:
                outcome = await self._storage.commit(
                    _transaction(plan, encoding, sealed, in_background=is_rewrite)
                )
            except StorageError as error:
                raise translate(error) from error
            match outcome:
                case Done(revision):
                    return plan.written(revision, write, encoding.api_version)
                case Refused() | Unknown() if is_rewrite:
                    raise _Stopped(outcome)
                case Refused(failed, current, _) if failed is plan.guard:
                    raise StateMoved(current)
                case Refused(failed, _, _) if failed is plan.place:
                    raise PlaceMoved
                case Refused():
                    await self._policy.refresh(resource)
                case Unknown():
                    raise _unknown(outcome)
                case _:
                    assert_never(outcome)
        raise status.unavailable(
            f"the storage version of {resource.kind.group_resource} is changing; try again",
            retry_after_seconds=status.RETRY_AFTER_SECONDS,
        )

    def begin(self, plan: WritePlan) -> Begun | Written | None:
        """The same, once and without waiting: see `Begun`. None when the store cannot."""
        encoding = self._encoding(plan.resource)
        if plan.resource.remote is not None and plan.must_prepare(encoding):
            return None
        write = plan.write(encoding)
        if write is None:
            return plan.unchanged() if self._sealed is None else None
        sealed = self._seal(plan, encoding, write)
        try:
            outcome = self._storage.submit(_transaction(plan, encoding, sealed))
        except StorageError as error:
            raise translate(error) from error
        if outcome is None:
            self.must_wait = True
            return None
        cache = self._caches.ready(plan.resource.root)
        return Begun(outcome, plan, write, encoding.api_version, cache)

    async def _still_to_write(self, plan: WritePlan, encoding: Encoding) -> Write | None:
        """An object that does not change is written all the same if it is stored under another
        key: how that is only the store itself can tell. Raises `StateMoved`."""
        if self._sealed is None or plan.resource.kind.pinned:
            return None
        key, (storage, keys) = plan.guard.key, self._sealed
        try:
            item = await storage.get(key)
            found = None if item is None else await open_value(keys, key, item.value)
        except StorageError as error:
            raise translate(error) from error
        if item is None or found is None:
            raise StateMoved(None)
        if plan.guard != RevisionIs(key, item.revision):
            raise StateMoved(item._replace(value=found.value))
        return None if found.key_id == encoding.key_id else Put(key, found.value)

    def _seal(
        self, plan: WritePlan, encoding: Encoding, write: Write, *, is_rewrite: bool = False
    ) -> Write:
        """What is given to the store: nobody else sees a value that is encrypted."""
        if not encoding.key_id or isinstance(write, Delete):
            return write
        assert self._sealed is not None, "a key was reported that nobody has"
        try:
            if not is_rewrite and len(write.value) > TRANSACTION_BYTES_MAX - SEAL_BYTES_MAX:
                # What would be too large without encryption is so with it: or it could never be
                # stored without.
                check_transaction(_transaction(plan, encoding, write))
            value = self._sealed.keys.seal(encoding.key_id, write.key, write.value)
        except StorageError as error:
            raise translate(error) from error
        return Put(write.key, value)

    def _encoding(self, resource: Resource) -> Encoding:
        """How to write now. Raises `ResourceReplaced` when that is not for this resource to say."""
        check_current(resource)
        encoding = self._policy.encoding(resource)
        if resource.origin is not None and encoding.api_version not in resource.decodable:
            raise ResourceReplaced
        return encoding


def check_current(resource: Resource) -> None:
    """Raises `ResourceReplaced` for a custom resource in whose place there is another by now."""
    if resource.origin is not None and resource.origin.is_replaced:
        raise ResourceReplaced


def _transaction(
    plan: WritePlan, encoding: Encoding, write: Write, *, in_background: bool = False
) -> Transaction:
    """One write with all its guards: its own, its place's, and the fence."""
    if plan.place is None:
        return Transaction((plan.guard, *encoding.guards), (write,), in_background)
    return Transaction((plan.guard, plan.place, *encoding.guards), (write,), in_background)


def _unknown(outcome: Unknown) -> status.StatusError:
    return status.timeout(f"it is not known whether the write has happened: {outcome.reason}")
