"""Ends long-running requests that a new request of the same sender would not be allowed to start.

    every CHECK_SECONDS, and soon after a change of roles or sessions
      -> each sender is authenticated again       401: all its requests end
      -> each of its questions is authorized again     403: the requests with this question end

One task checks all requests of a server, in steps of CHECKS_PER_STEP between which the event loop
serves others. A check that needs data (the keys of an issuer, a fresh cache, a review by another
server) is repeated when the data is there. A sender that cannot be checked for UNKNOWN_SECONDS_MAX,
because the store or another server does not respond, gets the same 503 as a new request would.

Not here: which requests there are (`long_requests`), and the check itself (`access`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from restow.aio import Clock
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.authorization.authorizer import CacheableAuthorizer
from restow.endpoints.access import AccessCheck, RequestUsers
from restow.endpoints.long_requests import LongRequest, LongRequests, LongSender
from restow.endpoints.outcomes import as_status
from restow.registry.errors import DoAgain
from restow.registry.write_options import RETRIES_MAX

CHECK_SECONDS: Final = 10.0
"""Time between two checks of all requests."""
CHANGE_SECONDS: Final = 2.0
"""Delay after a change of roles or sessions, so that many changes cost one check."""
CHECKS_PER_STEP: Final = 32
"""Checks, or ended requests, in one step of the event loop."""
WAITS_AT_ONCE: Final = 20
"""Senders whose checks wait for data at the same time."""
WAIT_SECONDS_MAX: Final = 3.0
WAITS_SECONDS_MAX: Final = 5.0
"""Limit of all waits of one check together."""
UNKNOWN_SECONDS_MAX: Final = 10.0
"""With the time between two checks and of their waits, 30 seconds."""
REFUSALS: Final = frozenset({400, 401, 403})
"""The codes with which a check refuses; all others mean that it failed."""
UNCHECKED: Final = "whether this request is still allowed cannot be determined"

logger = logging.getLogger(__name__)


class Revocation:
    """Checks the long-running requests of one server. Run `run` in a task."""

    def __init__(self, access: AccessCheck, clock: Clock) -> None:
        self.requests: Final = LongRequests()
        self._access = access
        self._clock = clock
        self._changed = asyncio.Event()
        self._steps = 0
        self.ended: Final[Counter[int]] = Counter()
        """Requests that were ended, by the code of their Status."""
        if isinstance(access.authorizer, CacheableAuthorizer):
            access.authorizer.changed.subscribe(self.check_soon)

    def check_soon(self) -> None:
        """Check all requests soon: roles or sessions have changed."""
        self._changed.set()

    @property
    def running(self) -> int:
        """The number of running requests."""
        return len(self.requests)

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with self._clock.timeout(CHECK_SECONDS):
                    await self._changed.wait()
                    await self._clock.sleep(CHANGE_SECONDS)
            self._changed.clear()
            await self.check_all()

    async def check_all(self) -> None:
        """Check all running requests once."""
        lacking = [each for each in self.requests.senders() if await self._check(each)]
        if lacking:
            # Those that could be checked last time first: the others may not get their data.
            lacking.sort(key=lambda sender: sender.unknown_since_seconds is not None)
            await self._check_waiting(lacking)

    async def _check_waiting(self, senders: list[LongSender]) -> None:
        """Check senders whose check has to wait for data, some at the same time."""
        waiting, decided = deque(senders), set[LongSender]()

        async def work() -> None:
            while waiting:
                sender = waiting.popleft()
                if await self._decide(sender):
                    decided.add(sender)

        with suppress(TimeoutError):
            async with self._clock.timeout(WAITS_SECONDS_MAX), asyncio.TaskGroup() as group:
                for number in range(min(WAITS_AT_ONCE, len(senders))):
                    group.create_task(work(), name=f"revocation/wait-{number}")
        for sender in senders:
            if sender not in decided:
                await self._note_unknown(sender, status.unavailable(UNCHECKED))

    async def _decide(self, sender: LongSender) -> bool:
        """Check a sender until nothing lacks; return False if something does not arrive."""
        for _ in range(RETRIES_MAX):
            lacks = await self._check(sender)
            if not lacks:
                return True
            for lack in lacks:
                if not await self._settled(lack):
                    return False
        return False

    async def _check(self, sender: LongSender) -> list[DoAgain]:
        """Check the requests of one sender; return what the check has to wait for."""
        await self._pace()
        try:
            acting = self._access.authenticate_again(sender.request)
        except DoAgain as lack:
            return [lack]
        except Exception as error:  # noqa: BLE001 - the boundary, as for a new request
            await self._failed(sender, error, sender.requests())
            return []
        if not _is_same(acting, sender):
            await self._end(sender.requests(), status.unauthorized())
            return []
        lacks: list[DoAgain] = []
        is_known = True
        for question in list(sender.questions.values()):
            await self._pace()
            try:
                self._access.authorize(acting.user, question.info)
            except DoAgain as lack:
                lacks.append(lack)
            except Exception as error:  # noqa: BLE001 - as above
                is_known &= await self._failed(sender, error, question.requests)
        if is_known and not lacks:
            sender.note_known()
        return lacks

    async def _failed(
        self, sender: LongSender, error: Exception, requests: Iterable[LongRequest]
    ) -> bool:
        """End the requests if the error refuses them; return whether it does."""
        refusal = as_status(error)
        if refusal.code in REFUSALS:
            await self._end(requests, refusal)
            return True
        await self._note_unknown(sender, refusal)
        return False

    async def _note_unknown(self, sender: LongSender, error: StatusError) -> None:
        """Record that a sender could not be checked, and end its requests after some time."""
        if sender.note_unknown(self._clock.monotonic()) >= UNKNOWN_SECONDS_MAX:
            await self._end(sender.requests(), error)

    async def _end(self, requests: Iterable[LongRequest], error: StatusError) -> None:
        status_json = error.to_bytes()
        for request in list(requests):
            await self._pace()
            try:
                if request.end(status_json):
                    self.ended[error.code] += 1
            except Exception:  # a defect in one stream must not keep the others open
                logger.exception("a long-running request could not be ended")

    async def _settled(self, lack: DoAgain) -> bool:
        try:
            async with self._clock.timeout(WAIT_SECONDS_MAX):
                await lack.settle()
        except Exception as error:  # noqa: BLE001 - the check fails; a later one tries again
            logger.info("cannot check long-running requests now: %s", error)
            return False
        return True

    async def _pace(self) -> None:
        """Let the event loop serve others between two steps."""
        self._steps += 1
        if self._steps % CHECKS_PER_STEP == 0:
            await self._clock.sleep(0)


def _is_same(acting: RequestUsers, sender: LongSender) -> bool:
    """Whether a credential still identifies the users who started the requests."""
    found = [(each.name, each.uid) for each in (acting.user, acting.impersonator) if each]
    wanted = [(each.name, each.uid) for each in (sender.user, sender.impersonator) if each]
    return found == wanted
