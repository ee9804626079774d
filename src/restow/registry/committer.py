"""Commits writes of objects: one guarded transaction per write, under the fence.

A plan determines what to store for one state of an object. It is encoded as the policy requires at
that moment and committed in one transaction, with the guards of the plan and those of the policy.
The guard that did not hold determines the exception: `StateMoved`, `PlaceMoved` or `FenceMoved`.

Not here: how a plan is made (`write_plans`), the retry loop (`store`), and the choice of the
version (`encoding`).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, assert_never

from restow.apimachinery import status
from restow.encryption.decryption import open_value
from restow.encryption.interface import Keys
from restow.registry.caches import Caches
from restow.registry.encoding import Encoding, EncodingPolicy
from restow.registry.errors import ResourceReplaced, translate
from restow.registry.long_work import WorkRunner, in_thread
from restow.registry.resource import Resource
from restow.registry.write_plans import CreatePlan, WritePlan, Written
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


class PlaceMoved(Exception):
    """The namespace of a new object has changed since it was read."""


class StateMoved(Exception):
    """The object has changed since the plan was made; `current` is its newest state."""

    def __init__(self, current: Item | None) -> None:
        super().__init__("the object has changed")
        self.current = current


class FenceMoved(Exception):
    """The encoding policy has changed since the object was encoded; it must be refreshed."""


Moved = StateMoved | PlaceMoved | FenceMoved
"""A guard did not hold, and nothing was written."""


def overtaken(
    resource: Resource, verb: str, moved: Moved, plan: WritePlan | None
) -> status.StatusError:
    """Return the error for a write whose guards did not hold until its retries were used up."""
    named, seconds = resource.kind.group_resource, status.RETRY_AFTER_SECONDS
    if isinstance(moved, FenceMoved):
        return status.unavailable(
            f"the storage version of {named} is changing; try again", retry_after_seconds=seconds
        )
    if isinstance(plan, CreatePlan) and isinstance(moved, StateMoved):
        return status.generated_name_taken(named, plan.path.rpartition("/")[2])
    return status.server_timeout(named, verb, retry_after_seconds=seconds)


class Sealed(NamedTuple):
    """The storage below the encryption layer, and the keys that decrypt its values."""

    storage: Storage
    keys: Keys


class ObjectCommitter:
    """Commits planned writes to the store."""

    def __init__(
        self,
        storage: Storage,
        caches: Caches,
        policy: EncodingPolicy,
        sealed: Sealed | None = None,
    ) -> None:
        """`sealed`: the storage below the encryption layer; None without encryption."""
        self._storage = storage
        self._sealed = sealed
        self._caches = caches
        self._policy = policy

    async def commit(self, plan: WritePlan, runner: WorkRunner) -> Written:
        """Commit one write under its own guards and the fence, once. Raises `Moved` when a guard
        does not hold, and a StatusError."""
        encoding, write, outcome = await self._transact(plan, runner)
        if write is None or outcome is None:
            return await in_thread(plan.unchanged) if runner.is_long else plan.unchanged()
        match outcome:
            case Done(revision):
                cached = self._cached(plan, encoding, revision)
                written = partial(plan.written, revision, write, encoding.api_version, cached)
                # Not by the runner, which may refuse the work: the object is stored.
                return await in_thread(written) if runner.is_long else written()
            case Refused(failed, current, _) if failed is plan.guard:
                raise StateMoved(current)
            case Refused(failed, _, _) if failed is plan.place:
                raise PlaceMoved
            case Refused():
                raise FenceMoved
            case Unknown():
                raise status.timeout(
                    f"it is not known whether the write has happened: {outcome.reason}"
                )
            case _:
                assert_never(outcome)

    async def rewrite(self, plan: WritePlan) -> Refused | Unknown | None:
        """Commit a plan that is valid for one state and one version only; do not encode it again.

        Return None if it was committed, otherwise the outcome.
        """
        _, _, outcome = await self._transact(plan, None)
        return None if isinstance(outcome, Done) else outcome

    async def _transact(
        self, plan: WritePlan, runner: WorkRunner | None
    ) -> tuple[Encoding, Write | None, Outcome | None]:
        """Encode the object and commit it; a rewrite has no `runner`. Return the encoding, what was
        written, and the outcome; the last two are None if the object is stored like that
        already."""
        resource, is_rewrite = plan.resource, runner is None
        # KEP-1201 0.25: built-in and custom resources are written under one fence
        encoding = self._encoding(resource)
        if resource.remote is not None and plan.must_prepare(encoding):
            # The webhook may take a while. If the policy changes meanwhile, the fence rejects it.
            await plan.prepare(encoding)
            check_current(resource)
        if runner is None or not runner.is_long:
            write = plan.write(encoding)
        else:
            # Not by the runner, which may refuse the work: admission has charged quotas for it.
            write = await in_thread(partial(plan.write, encoding))
        if write is None:
            write = await self._still_to_write(plan, encoding)
            if write is None:
                return encoding, None, None
        sealed = self._seal(plan, encoding, write, is_rewrite=is_rewrite)
        transaction = _transaction(plan, encoding, sealed, in_background=is_rewrite)
        # Last, and in the step of the commit: the loop may have been blocked since the first check.
        self._policy.check_lease()
        try:
            return encoding, write, await self._storage.commit(transaction)
        except StorageError as error:
            raise translate(error) from error

    def _cached(self, plan: WritePlan, encoding: Encoding, revision: int) -> bytes | None:
        """Return the served body if the watch cache has the change already, which is usual."""
        cache = self._caches.ready(plan.resource.root)
        entry = None if cache is None else cache.of_key(plan.guard.key)
        if entry is None or entry[0] != revision or entry[1] != encoding.api_version:
            return None
        return entry[2]

    async def _still_to_write(self, plan: WritePlan, encoding: Encoding) -> Write | None:
        """Return the write for an unchanged object that is stored under another encryption key,
        which only the raw value shows; otherwise None. Raises `StateMoved`."""
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
        """Encrypt the value of a write if the encoding requires it."""
        if not encoding.key_id or isinstance(write, Delete):
            return write
        assert self._sealed is not None, "an encryption key was reported, but encryption is off"
        try:
            if not is_rewrite and len(write.value) > TRANSACTION_BYTES_MAX - SEAL_BYTES_MAX:
                # The size limit must not depend on encryption: an object that is too large
                # without it is rejected with it as well, or it could never be stored in plain form.
                check_transaction(_transaction(plan, encoding, write))
            # KEP-2339 3.71: a write uses the key of its fence
            value = self._sealed.keys.seal(encoding.key_id, write.key, write.value)
        except StorageError as error:
            raise translate(error) from error
        return Put(write.key, value)

    def _encoding(self, resource: Resource) -> Encoding:
        """Return the current encoding. Raises `ResourceReplaced` if the CRD has changed."""
        check_current(resource)
        encoding = self._policy.encoding(resource)
        if resource.origin is not None and encoding.api_version not in resource.decodable:
            raise ResourceReplaced
        return encoding


def check_current(resource: Resource) -> None:
    """Raises `ResourceReplaced` if a changed CRD has replaced this custom resource."""
    if resource.origin is not None and resource.origin.is_replaced:
        raise ResourceReplaced


def _transaction(
    plan: WritePlan, encoding: Encoding, write: Write, *, in_background: bool = False
) -> Transaction:
    """Return the transaction of a write with the guards of object, namespace and fence."""
    # KEP-1201 0.19: the condition is in the write's own transaction
    # KEP-2339 3.24: a write that was sent before a pause fails this fence
    if plan.place is None:
        return Transaction((plan.guard, *encoding.guards), (write,), in_background)
    return Transaction((plan.guard, plan.place, *encoding.guards), (write,), in_background)
