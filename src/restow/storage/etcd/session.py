"""The session: a guard that makes it possible to prove that a lost commit is never applied.

A commit whose reply was lost may still be in flight, in a paused member or a full buffer, and
sending it again could apply it twice: a create, a delete by another client, and the create again.
So every commit carries one more comparison: this handle's session key still has the revision that
the handle recorded (0 as long as the key does not exist, which is until a reply is lost). Writing
that key ends the session. After that no commit of the old session can be applied any more; its
effects, if any, are in the history up to that revision.

The key stays in the store. If it were removed, the oldest lost commits could be applied after all.
"""

from __future__ import annotations

import asyncio
from typing import Final

from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.messages import COMPARE_MOD, TXN, TxnRequest
from restow.storage.interface import Revision

SESSIONS_PREFIX: Final = "/restow/etcd-sessions/"


class Session:
    """This handle's session key and the revision it must have."""

    def __init__(self, connection: EtcdConnection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()
        self._guard = self._new_guard()

    @property
    def guard(self) -> tuple[bytes, int]:
        """The key, and the revision that every commit of this session compares it with."""
        return self._guard

    async def end(self, guard: tuple[bytes, int], *, timeout_seconds: float) -> Revision:
        """End that session, unless it has ended; return the last revision it may have written.

        Raises `EtcdCallFailed` or `StoreReplaced`. May be repeated: it writes only while that
        session is current.
        """
        async with self._lock:
            if self._guard != guard:
                return self._connection.newest
            key, revision = guard
            request = TxnRequest()
            request.compare.add(target=COMPARE_MOD, key=key, mod_revision=revision)
            request.success.add().request_put.key = key
            request.failure.add().request_range.key = key
            before = self._connection.newest
            response = await self._connection.call(
                TXN, request, timeout_seconds=timeout_seconds, repeatable=True
            )
            now = self._connection.note(response.header, before=before)
            if response.succeeded:
                self._guard = (key, now)
            elif kvs := response.responses[0].response_range.kvs:
                # An earlier attempt ended it, and its reply was lost.
                self._guard = (key, kvs[0].mod_revision)
            else:
                # Another client removed the key. Its old revision never comes back all the same.
                self._guard = self._new_guard()
            return now

    def renew(self, guard: tuple[bytes, int]) -> None:
        """Start a new session, as this one turned out to have ended.

        Either this handle ended it, and the next has begun; or its key was written by a lost
        attempt to end it, or by another client. Its revision never comes back in any case.
        """
        if self._guard == guard:
            self._guard = self._new_guard()

    def _new_guard(self) -> tuple[bytes, int]:
        return f"{SESSIONS_PREFIX}{self._connection.runtime.ids.nonce(8)}".encode(), 0
