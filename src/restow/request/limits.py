"""Requests in flight and watches: how many at once, and how they are shared between users.

Who answers at once never holds a seat. Only a request that has to wait does (for the store, a
webhook, another server): one of the seats for reading or for writing, until its answer is there;
a watch, or whatever else takes its own time, one of those for streams, until the stream is over.
Without a seat it is a 429, before its body is looked at.

Fair between users: as long as there are plenty of seats, everybody takes what he needs. Once they
are scarce, a user may hold his share and no more: the seats by the number of users who hold some,
and one more who may come next. So a flood of one user leaves room for the others, and whoever is
sent away finds a seat as soon as some of the flood is over. Seats are scarce when few are left, and
for some seconds after somebody below his share was sent away.

Masters are exempt, as are questions about health and the leases by which components of the cluster
choose their leader: those must go on in a flood. Pure but for the clock, which is handed in. Not
here: connections, and how long a request may take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.httpserver.response import Answer
from restow.httpserver.stream import PushStream, StreamWriter
from restow.httpserver.tunnel import Tunnel, TunnelEnd
from restow.request.context import Context, User
from restow.request.parameters import DEADLINES, Deadlines
from restow.request.request_info import RequestInfo
from restow.request.slots import Slot, SlotPool

READS_MAX_DEFAULT: Final = 400
WRITES_MAX_DEFAULT: Final = 200
STREAMS_MAX_DEFAULT: Final = 9_000
"""Of the connections that there may be, some are left for all else."""
STREAMS_PER_USER_MAX_DEFAULT: Final = 1_000

_READS: Final = frozenset({"get", "list", "head", "options"})
_HEALTH: Final = frozenset({"healthz", "livez", "readyz"})
_LEASES: Final = ("coordination.k8s.io", "leases", "kube-system")


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightOptions:
    """How many requests may wait at once. Zero is no limit."""

    reads_max: int = READS_MAX_DEFAULT
    writes_max: int = WRITES_MAX_DEFAULT
    streams_max: int = STREAMS_MAX_DEFAULT
    streams_per_user_max: int = STREAMS_PER_USER_MAX_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """How many requests at once, and how long each may take."""

    in_flight: InFlightOptions = field(default_factory=InFlightOptions)
    deadlines: Deadlines = DEADLINES


class InFlight:
    """The rooms of one server, and who needs a seat in which."""

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

    def check(self, context: Context) -> None:
        """Raises 429 for a request that would have no seat if it had to wait."""
        user = context.user
        slot = context.slot
        if slot is not None:
            self._check_moved(slot, user)
        elif not user.is_master:
            pool = context.pool = self.pool_of(context.info)
            if pool is not None and not pool.has_slot_for(user.name):
                raise refusal(pool)

    def take(self, context: Context) -> Slot | None:
        """The seat of a request that has been checked in this moment and has to wait."""
        if context.slot is None and not context.user.is_master:
            pool = context.pool or self.pool_of(context.info)
            if pool is not None:
                context.slot = pool.take(context.user.name)
        return context.slot

    def _check_moved(self, slot: Slot, user: User) -> None:
        """It has waited before it was known who asks: hold the seat as that user."""
        if user.is_master:
            slot.leave()
        elif not slot.move_to(user.name):
            raise status.too_many_requests()

    def pool_of(self, info: RequestInfo) -> SlotPool | None:
        """Where a request takes its seat; None: it needs none."""
        if info.is_long:
            return self.streams
        if info.verb not in _READS:
            return None if _is_election(info) else self.writes
        if not info.is_resource and info.path.strip("/").partition("/")[0] in _HEALTH:
            return None
        return None if _is_election(info) else self.reads


def _is_election(info: RequestInfo) -> bool:
    """Whether components of the cluster choose their leader by it."""
    if info.resource != _LEASES[1] or not info.name:
        return False  # as nearly always
    return (info.group, info.resource, info.namespace) == _LEASES


def refusal(pool: SlotPool) -> StatusError:
    """The 429 of a request that finds no seat."""
    if pool.is_of_streams:
        return status.too_many_requests(
            "too many watches are open, please try again later.",
        )
    return status.too_many_requests()


def hold_slot(answer: Answer, slot: Slot) -> Answer:
    """The same answer; a stream or tunnel of a long-running request leaves its slot when it is
    over, any other answer now."""
    if slot.is_of_stream and isinstance(answer, PushStream):
        return _held_stream(answer, slot)
    if slot.is_of_stream and isinstance(answer, Tunnel):
        return _held_tunnel(answer, slot)
    slot.leave()
    return answer


def _held_stream(stream: PushStream, slot: Slot) -> PushStream:
    """The same stream; the seat is left when it is over, or nobody takes it."""
    start = stream.start

    def begin(writer: StreamWriter) -> None:
        writer.on_end = slot.leave
        start(writer)

    stream.start = begin
    stream.on_dropped = _both(stream.on_dropped, slot.leave)
    return stream


def _held_tunnel(tunnel: Tunnel, slot: Slot) -> Tunnel:
    start = tunnel.start

    def begin(end: TunnelEnd) -> None:
        end.on_end = slot.leave
        start(end)

    tunnel.start = begin
    tunnel.on_dropped = _both(tunnel.on_dropped, slot.leave)
    return tunnel


def _both(first: Callable[[], None] | None, second: Callable[[], None]) -> Callable[[], None]:
    def do() -> None:
        try:
            if first is not None:
                first()
        finally:
            second()

    return do
