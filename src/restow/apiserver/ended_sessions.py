"""Records ended sessions for all servers of a cluster: one key in the store for each.

A session is a signed text that any server accepts, so its end must be known to all of them. Each
server mirrors the keys, so a check costs a lookup. A server that has not confirmed for
FRESH_SECONDS that its mirror is up to date asks the store first; if the store does not respond, the
request gets a 503, because an ended session must not be accepted.

    /restow/sessions/NONCE    EXPIRY USER_HASH

A key is deleted some time after its session has expired. Not here: sessions
(`restow.authentication.sessions`).
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from datetime import timedelta
from typing import Final

from restow.aio import Runtime, Tasks
from restow.aio.events import EventChannel
from restow.apimachinery import status
from restow.authentication.sessions import SessionPass
from restow.registry.errors import DoAgain
from restow.storage.errors import Unavailable
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Item,
    Key,
    Put,
    Revision,
    Storage,
    Transaction,
    Unknown,
)
from restow.storageversion.mirror import Mirror

PREFIX: Final = "/restow/sessions/"
FRESH_SECONDS: Final = 1.0
REACH_SECONDS_MAX: Final = 5.0
ENDED_MAX: Final = 20_000
ENDED_PER_USER_MAX: Final = 200
"""Otherwise one user could prevent others from ending their sessions."""
FORGOTTEN_MAX: Final = 50
"""Expired keys to delete when a session is ended."""
KEPT: Final = timedelta(hours=1)
"""Time after the expiry of a session, since the clocks of servers differ."""
_HASH_BYTES: Final = 8


class _Stale(DoAgain):
    """The mirror may be too old."""

    def __init__(self, sessions: EndedSessions) -> None:
        super().__init__()
        self._sessions = sessions

    async def settle(self) -> None:
        await self._sessions.freshen()


class EndedSessions:
    """The sessions that were ended before they expired. Call `start` before use."""

    def __init__(self, storage: Storage, runtime: Runtime) -> None:
        self._storage = storage
        self._clock = runtime.clock
        self._mirror = Mirror(storage, runtime, [PREFIX])
        self._mirror.changed.subscribe(self._note)
        self._fresh_until_seconds = 0.0
        self._known: dict[Key, tuple[float, str]] = {}
        """By key: the expiry of the session, and the hash of its user."""
        self._by_expiry: list[tuple[float, Key]] = []
        """A heap; it may contain keys that are not known any more."""
        self._by_user: Counter[str] = Counter()
        self.ended: Final = EventChannel[[]]()
        """Emitted after any server has ended a session."""

    async def start(self, tasks: Tasks) -> None:
        """Read the keys and follow them."""
        await self._mirror.start(tasks)

    def contains(self, nonce: str) -> bool:
        """Whether a session has ended. Raises `DoAgain` when the mirror may be too old."""
        if PREFIX + nonce in self._known:
            return True
        if self._clock.monotonic() >= self._fresh_until_seconds:
            raise _Stale(self)
        return False

    async def freshen(self) -> None:
        """Wait until the mirror contains everything that was acknowledged before. Raises
        `Unavailable`."""
        since = self._clock.monotonic()
        await self._reach(await self._storage.revision())
        self._fresh_until_seconds = max(self._fresh_until_seconds, since + FRESH_SECONDS)

    async def end(self, session: SessionPass) -> None:
        """End a session on all servers. Raises a 429, and `Unavailable` when the store does not
        respond."""
        key, owner = Key(PREFIX + session.nonce), _hash(session.user.name)
        if key in self._known:
            return
        if len(self._known) >= ENDED_MAX or self._by_user[owner] >= ENDED_PER_USER_MAX:
            raise status.too_many_requests("too many sessions were ended, please try again later.")
        value = f"{session.expires.timestamp()} {owner}".encode()
        deletes = tuple(Delete(each) for each in self._expired_keys())
        outcome = await self._storage.commit(
            Transaction((Absent(key),), (Put(key, value), *deletes))
        )
        if isinstance(outcome, Unknown):
            raise Unavailable("cannot determine from the store whether the session has ended")
        if isinstance(outcome, Done):
            await self._reach(outcome.revision)

    async def _reach(self, revision: Revision) -> None:
        if not await self._mirror.reach(revision, seconds=REACH_SECONDS_MAX):
            raise Unavailable("the list of ended sessions is not up to date")

    def _note(self, key: Key, item: Item | None) -> None:
        before = self._known.pop(key, None)
        if before is not None:
            self._by_user[before[1]] -= 1
            if not self._by_user[before[1]]:
                del self._by_user[before[1]]
        if item is None:
            return
        expires, owner = _read(item)
        self._known[key] = expires, owner
        self._by_user[owner] += 1
        heapq.heappush(self._by_expiry, (expires, key))
        self.ended.emit()

    def _expired_keys(self) -> list[Key]:
        """Some keys whose sessions expired some time ago. They are known until they are deleted."""
        before = (self._clock.wall() - KEPT).timestamp()
        found: list[tuple[float, Key]] = []
        while self._by_expiry and self._by_expiry[0][0] < before and len(found) < FORGOTTEN_MAX:
            expired = heapq.heappop(self._by_expiry)
            if expired[1] in self._known:
                found.append(expired)
        for expired in found:
            heapq.heappush(self._by_expiry, expired)
        return [key for _, key in found]


def _hash(user_name: str) -> str:
    return hashlib.sha256(user_name.encode("utf-8", "surrogatepass")).digest()[:_HASH_BYTES].hex()


def _read(item: Item) -> tuple[float, str]:
    expires, _, owner = item.value.decode("utf-8", "replace").partition(" ")
    try:
        return float(expires), owner
    except ValueError:
        return 0.0, owner
