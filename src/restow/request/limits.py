"""Limits of requests in flight and of watches, with fairness between users.

A request that is processed synchronously never holds a slot. Only a request that has to wait (for
the store, a webhook, another server) does: a slot for reads or writes until it is completed; a
watch or another long-running request holds a slot for streams until the stream ends. Without a free
slot the response is 429, before the body is parsed.

Fairness: while enough slots are free, every user gets as many as needed. Once they are scarce, a
user may hold at most a fair share: the number of slots divided by the number of users who hold some
plus one for a new user. So a flood of one user leaves slots for others, and a rejected user gets a
slot as soon as part of the flood is done. Slots are scarce when few are free, and for some seconds
after a user below the fair share was rejected.

Masters are exempt, and so are health checks and the leases of leader election, which must work
during a flood. Pure except for the clock, which is injected. Not here: connections, and how long a
request may take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.httpserver.long_answers import follow_answer
from restow.httpserver.response import Answer
from restow.httpserver.stream import PushStream
from restow.httpserver.tunnel import Tunnel
from restow.request.context import ANONYMOUS, Context
from restow.request.parameters import DEADLINES, Deadlines
from restow.request.request_info import RequestInfo
from restow.request.slots import Slot, SlotPool

READS_MAX_DEFAULT: Final = 400
WRITES_MAX_DEFAULT: Final = 200
STREAMS_MAX_DEFAULT: Final = 9_000
"""Below the limit of connections, so that other requests still get some."""
STREAMS_PER_USER_MAX_DEFAULT: Final = 1_000
UNAUTHENTICATED_MAX_DEFAULT: Final = 100

_READS: Final = frozenset({"get", "list", "head", "options"})
_HEALTH: Final = frozenset({"healthz", "livez", "readyz"})
_LEASES: Final = ("coordination.k8s.io", "leases", "kube-system")


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightOptions:
    """Limits of requests in flight. Zero means no limit."""

    reads_max: int = READS_MAX_DEFAULT
    writes_max: int = WRITES_MAX_DEFAULT
    streams_max: int = STREAMS_MAX_DEFAULT
    streams_per_user_max: int = STREAMS_PER_USER_MAX_DEFAULT
    unauthenticated_max: int = UNAUTHENTICATED_MAX_DEFAULT
    """Requests without a user, most of which wait for a remote authenticator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of concurrency and duration of requests."""

    in_flight: InFlightOptions = field(default_factory=InFlightOptions)
    deadlines: Deadlines = DEADLINES


class InFlight:
    """The slot pools of one server, and which requests need a slot of which pool."""

    def __init__(
        self, monotonic: Callable[[], float], options: InFlightOptions | None = None
    ) -> None:
        options = options or InFlightOptions()
        self.reads = SlotPool(options.reads_max, monotonic)
        self.writes = SlotPool(options.writes_max, monotonic)
        self.streams = SlotPool(
            options.streams_max,
            monotonic,
            per_user_max=options.streams_per_user_max,
            is_of_streams=True,
        )

        self.unauthenticated = SlotPool(options.unauthenticated_max, monotonic)
        """Not of a user, so that requests without one use up no slots of users. The addresses share
        it as users do other pools."""

    def check(self, context: Context) -> None:
        """Raise 429 for a request that would get no slot if it had to wait."""
        if context.user.is_master:
            if context.slot is not None:
                context.slot.leave()
            return
        pool = context.pool = self.pool_of(context)
        if context.slot is not None:
            # Taken before authentication: now it is one of the authenticated user.
            if not context.slot.move_to(pool, _holder(context)):
                raise status.too_many_requests()
        elif pool is not None and not pool.has_slot_for(_holder(context)):
            raise refusal(pool)

    def take(self, context: Context) -> Slot | None:
        """Take the slot of a request that was just checked and has to wait."""
        if context.slot is None and not context.user.is_master:
            pool = context.pool or self.pool_of(context)
            if pool is not None:
                context.slot = pool.take(_holder(context))
        return context.slot

    def pool_of(self, context: Context) -> SlotPool | None:
        """The pool of a request; None if it needs no slot."""
        pool = self._pool_of_user(context.info)
        if pool is not None and context.user is ANONYMOUS:
            return self.unauthenticated
        return pool

    def _pool_of_user(self, info: RequestInfo) -> SlotPool | None:
        if info.is_long:
            return self.streams
        if info.verb not in _READS:
            return None if _is_election(info) else self.writes
        if not info.is_resource and info.path.strip("/").partition("/")[0] in _HEALTH:
            return None
        return None if _is_election(info) else self.reads


def _holder(context: Context) -> str:
    """Who holds the slot of a request: its user, or its address while it has none."""
    if context.user is ANONYMOUS:
        return context.request.peer.address
    return context.user.name


def _is_election(info: RequestInfo) -> bool:
    """Whether the request is for a leader election lease of a cluster component."""
    if info.resource != _LEASES[1] or not info.name:
        return False  # nearly always
    return (info.group, info.resource, info.namespace) == _LEASES


def refusal(pool: SlotPool) -> StatusError:
    """The 429 of a request without a free slot."""
    if pool.is_of_streams:
        return status.too_many_requests(
            "too many watches are open, please try again later.",
        )
    return status.too_many_requests()


def hold_slot(answer: Answer, slot: Slot) -> Answer:
    """Return the response unchanged. A long-running stream or tunnel releases the slot when it
    ends, any other response releases it now."""
    if isinstance(answer, PushStream | Tunnel):
        follow_answer(answer, ended=slot.leave)
    else:
        slot.leave()
    return answer
