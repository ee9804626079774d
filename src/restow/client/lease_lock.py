"""Leader election by a Lease, compatible with client-go: Go and Python candidates can share one.

    elector = lease_elector(client, namespace="kube-system", name="migrator", identity=hostname)
    async with elector.leading() as term:
        ...

Not here: the election (`restow.aio.leader_election`), and the work of a leader.
"""

from __future__ import annotations

from typing import Final

from restow.aio import Ids
from restow.aio.leader_election import (
    LeaderElector,
    LeaderTiming,
    LockConflict,
    LockRecord,
    LockUnavailable,
)
from restow.apimachinery.status import AlreadyExists, Conflict, NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis.resources import LEASES
from restow.client.client import ApiClient
from restow.client.errors import ConnectionFailed
from restow.client.lease_record import LeaseRecord, micro_time, new_lease
from restow.client.objects import Object
from restow.client.retry_policy import NO_RETRY

# Lease duration of a released lease: others can acquire it at once.
_RELEASED_SECONDS: Final = 1


class LeaseLock:
    """A lock on one Lease. Satisfies `Lock`."""

    is_lost_when_deleted = False
    """As in client-go: a Lease that was deleted is created again."""

    def __init__(self, client: ApiClient, *, namespace: str, name: str) -> None:
        self.name = f"lease {namespace}/{name}"
        # The elector retries itself, within its deadline.
        self._client = client.with_retry(NO_RETRY)
        self._clock = client.runtime.clock
        self._namespace = namespace
        self._name = name

    async def read(self) -> LockRecord:
        try:
            lease = await self._client.get(LEASES, self._name, namespace=self._namespace)
        except NotFound:
            return LockRecord()
        except (StatusError, ConnectionFailed) as error:
            raise LockUnavailable(str(error)) from error
        return _record_of(lease)

    async def write(self, seen: LockRecord, *, holder: str, lease_seconds: float) -> LockRecord:
        now = micro_time(self._clock.wall())
        before = LeaseRecord.read(seen.handle or {})
        acquired, transitions = before.acquire_time, before.transitions
        if before.holder != holder:
            acquired, transitions = now, 0 if seen.handle is None else transitions + 1
        record = LeaseRecord(
            holder=holder,
            lease_seconds=round(lease_seconds),
            acquire_time=acquired,
            renew_time=now,
            transitions=transitions,
        )
        return _record_of(await self._put(seen, record))

    async def release(self, seen: LockRecord) -> None:
        now = micro_time(self._clock.wall())
        free = LeaseRecord(
            lease_seconds=_RELEASED_SECONDS,
            acquire_time=now,
            renew_time=now,
            transitions=seen.transitions,
        )
        await self._put(seen, free)

    async def _put(self, seen: LockRecord, record: LeaseRecord) -> Object:
        is_new = seen.handle is None
        lease = new_lease(self._namespace, self._name) if is_new else seen.handle
        put = self._client.create if is_new else self._client.update
        try:
            return await put(LEASES, record.written_to(lease), namespace=self._namespace)
        except (AlreadyExists, Conflict) as error:
            raise LockConflict(str(error)) from error
        except (StatusError, ConnectionFailed) as error:
            raise LockUnavailable(str(error)) from error


def unique_identity(name: str, ids: Ids) -> str:
    """The identity of one process, `<name>_<uid>`, which is never reused."""
    # KEP-2343 4.33: a process that starts again has another id
    return f"{name}_{ids.uid()}"


def lease_elector(
    client: ApiClient,
    *,
    namespace: str,
    name: str,
    identity: str,
    is_unique: bool = False,
    timing: LeaderTiming | None = None,
) -> LeaderElector:
    """A candidate for a Lease. Without `is_unique` the identity is extended (`unique_identity`)."""
    return LeaderElector(
        LeaseLock(client, namespace=namespace, name=name),
        client.runtime,
        identity=identity if is_unique else unique_identity(identity, client.runtime.ids),
        timing=timing,
    )


def _record_of(lease: Object) -> LockRecord:
    record = LeaseRecord.read(lease)
    return LockRecord(
        holder=record.holder,
        lease_seconds=record.lease_seconds,
        transitions=record.transitions,
        renewal=record,
        handle=lease,
    )
