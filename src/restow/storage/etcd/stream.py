"""One watch stream over the whole key space, split into whole revisions.

Every revision of etcd has an event somewhere in the key space. So a stream over all of it shows
its position without progress notifications, and a missing revision shows as a gap. A stream does
not recover: when it fails, its owner opens the next one.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

import grpc

from restow.storage.errors import Compacted, StoreReplaced
from restow.storage.etcd.connection import EtcdConnection, is_cancelled
from restow.storage.etcd.encoding import decode_events
from restow.storage.etcd.errors import (
    MOVE_ON,
    EtcdCallFailed,
    EtcdFailureCause,
    classify,
    failure_of,
)
from restow.storage.etcd.messages import WatchRequest
from restow.storage.feed import RevisionEvents
from restow.storage.interface import REVISION_FIRST, Revision

_ALL_KEYS: Final = b"\0"
_PROBE_SECONDS: Final = 1.0
"""Timeout of the watch that reads the compacted revision; etcd reports it within 0.1 s."""


class EventStream:
    """A running stream."""

    def __init__(self, connection: EtcdConnection, *, after: Revision) -> None:
        self._connection = connection
        self._position = max(after, REVISION_FIRST)
        self._member, self._call = connection.open_watch()

    @classmethod
    async def open(cls, connection: EtcdConnection, *, after: Revision) -> Self:
        """Open a stream of all changes after a revision; raises `EtcdCallFailed` or `Compacted`."""
        stream = cls(connection, after=after)
        # It begins with the last known revision, not with the next one: etcd accepts a watch that
        # begins exactly at a compaction, but omits the deletions of that revision.
        await stream.start(key=_ALL_KEYS, range_end=_ALL_KEYS, prev_kv=True, fragment=True)
        return stream

    async def start(self, **create: Any) -> None:
        """Create the watch, and wait until it exists."""
        request = WatchRequest(create_request={**create, "start_revision": self._position})
        try:
            async with self._connection.runtime.clock.timeout(
                self._connection.options.request_timeout_seconds
            ):
                await self._guarded(self._call.write(request))
                response = await self.receive()
        except TimeoutError:
            self.close()
            self._connection.move_on(self._member)
            raise EtcdCallFailed(
                EtcdFailureCause.LOST, "etcd did not create the watch in time"
            ) from None
        if not response.created:
            self.close()
            raise EtcdCallFailed(
                EtcdFailureCause.LOST, "etcd sent an unexpected message for a new watch"
            )

    async def read(self) -> list[RevisionEvents]:
        """The next revisions, at least one; raises `EtcdCallFailed` or `Compacted`."""
        while True:
            events: list[Any] = []
            while True:
                response = await self.receive()
                events += [e for e in response.events if e.kv.mod_revision > self._position]
                if not response.fragment:
                    break
            entries = decode_events(events)
            if entries:
                self._check_order(entries)
                self._position = entries[-1].revision
                self._connection.saw(self._position)
                return entries

    async def receive(self) -> Any:
        """The next message; raises for an error or a cancellation."""
        response = await self._guarded(self._call.read())
        if response is grpc.aio.EOF:
            raise EtcdCallFailed(EtcdFailureCause.LOST, "etcd ended the watch")
        try:
            self._connection.check_cluster(response.header)
        except StoreReplaced as error:
            self.close()
            raise EtcdCallFailed(EtcdFailureCause.LOST, str(error)) from error
        if response.compact_revision:
            self.close()
            raise Compacted(response.compact_revision)
        if response.canceled:
            self.close()
            raise self._cancelled(response.cancel_reason)
        return response

    def close(self) -> None:
        self._call.cancel()

    async def _guarded(self, step: Any) -> Any:
        try:
            return await step
        except grpc.RpcError as error:
            failed = failure_of(error)
            if failed.cause in MOVE_ON:
                self._connection.move_on(self._member)
            raise failed from error
        except (asyncio.CancelledError, asyncio.InvalidStateError):
            # The call was closed from here; or the waiting task was cancelled: then close the call.
            self._call.cancel()
            if is_cancelled():
                raise
            raise EtcdCallFailed(EtcdFailureCause.LOST, "the watch was closed") from None

    def _cancelled(self, reason: str) -> EtcdCallFailed:
        cause = classify(grpc.StatusCode.UNKNOWN, reason)
        if self._connection.options.username is not None:
            # etcd does not always give a reason; an expired token is the usual one.
            cause = EtcdFailureCause.TOKEN_STALE
        return EtcdCallFailed(cause, reason or "etcd cancelled the watch")

    def _check_order(self, entries: list[RevisionEvents]) -> None:
        expected = self._position
        for entry in entries:
            expected = Revision(expected + 1)
            if entry.revision != expected:
                # Revisions are missing, for whatever reason: handle it like a compaction.
                self.close()
                raise Compacted(entry.revision)


async def find_compacted(connection: EtcdConnection) -> Revision:
    """The compacted revision; 0 if nothing was compacted.

    etcd reports it only to a watch that starts at a compacted revision.
    """
    stream = EventStream(connection, after=REVISION_FIRST)
    try:
        await stream.start(key=_ALL_KEYS)
        async with connection.runtime.clock.timeout(_PROBE_SECONDS):
            while True:
                await stream.receive()
    except Compacted as compacted:
        return compacted.compacted
    except TimeoutError:
        return Revision(0)
    finally:
        stream.close()
