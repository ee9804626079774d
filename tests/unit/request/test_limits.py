"""In-flight slots of waiting requests: how many, for which users, and that all are released."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.status_error import StatusError
from restow.httpserver import Headers, HttpRequest, Peer, PushStream, Tunnel
from restow.httpserver.stream import StreamWriter
from restow.httpserver.tunnel import TunnelEnd
from restow.request.context import ANONYMOUS, Context, User
from restow.request.limits import InFlight, InFlightOptions, hold_slot
from restow.request.request_info import parse_request
from restow.request.slots import SCARCE_SECONDS, Slot, SlotPool

ALICE, BOB = User("alice"), User("bob")
MASTER = User("root", ("system:masters",))


class Time:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def context_of(user: User, method: str, target: str) -> Context:
    path, _, query = target.partition("?")
    request = HttpRequest(method, path, query, Headers([]), b"", Peer(1), 0.0)
    context = Context(request, parse_request(method, target))
    context.user = user
    return context


def fill(pool: SlotPool, user: str, count: int) -> list[Slot]:
    """Take so many slots, or as many as are available."""
    return [pool.take(user) for _ in range(count) if pool.has_slot_for(user)]


@pytest.mark.parametrize("slots", [1, 2, 7])
def test_one_user_may_have_all_of_few_slots(slots: int) -> None:
    """A single user gets all slots, but not one more; after a release all again."""
    pool = SlotPool(slots, Time())
    held = fill(pool, "alice", slots + 1)
    assert len(held) == slots
    for slot in held:
        slot.leave()
        slot.leave()
    assert (pool.taken, pool.held) == (0, {})
    assert len(fill(pool, "alice", slots + 1)) == slots


def test_zero_is_no_limit() -> None:
    """Without a limit no request is rejected."""
    pool = SlotPool(0, Time())
    assert len(fill(pool, "alice", 5_000)) == 5_000


def test_a_flood_leaves_slots_for_others() -> None:
    """One user takes most of many slots, and a hundred others still get one each, at once."""
    pool = SlotPool(400, Time())
    assert len(fill(pool, "flood", 1_000)) == 350
    assert all(len(fill(pool, f"user-{number}", 1)) == 1 for number in range(50))
    assert pool.taken == 400


def test_a_rejected_user_is_next() -> None:
    """After a rejection the flood gets only its share, until none was rejected for some time."""
    time = Time()
    pool = SlotPool(4, time)
    flood = fill(pool, "flood", 4)
    assert not pool.has_slot_for("alice")
    flood.pop().leave()
    assert not pool.has_slot_for("flood")
    alice = fill(pool, "alice", 1)
    assert len(alice) == 1
    flood.pop().leave()
    assert not pool.has_slot_for("flood")
    time.now += SCARCE_SECONDS
    assert pool.has_slot_for("flood")


@given(
    slots=st.integers(1, 40),
    steps=st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.integers(0, 5)), max_size=200
    ),
)
def test_pool_invariants(slots: int, steps: list[tuple[str, bool, int]]) -> None:
    """Never more slots than there are; a user without a slot is rejected only if all are taken; at
    the end all are released."""
    time = Time()
    pool = SlotPool(slots, time)
    held: dict[str, list[Slot]] = {}
    for user, comes, seconds in steps:
        time.now += seconds
        if not comes and held.get(user):
            held[user].pop().leave()
        elif comes:
            has_slot = pool.has_slot_for(user)
            if not held.get(user):
                assert has_slot or pool.taken == slots
            if has_slot:
                held.setdefault(user, []).append(pool.take(user))
        counts = {name: len(each) for name, each in held.items() if each}
        assert pool.held == counts
        assert pool.taken == sum(counts.values()) <= slots
    for each in held.values():
        for slot in each:
            slot.leave()
    assert (pool.taken, pool.held) == (0, {})


@pytest.mark.parametrize(
    ("method", "target", "pool"),
    [
        ("GET", "/api/v1/pods", "reads"),
        ("GET", "/apis", "reads"),
        ("GET", "/metrics", "reads"),
        ("POST", "/api/v1/namespaces", "writes"),
        ("DELETE", "/api/v1/namespaces/a/pods", "writes"),
        ("PATCH", "/api/v1/namespaces/a/pods/b/status", "writes"),
        ("GET", "/api/v1/pods?watch=1", "streams"),
        ("GET", "/api/v1/watch/pods", "streams"),
        ("GET", "/apis/a.b/v1/namespaces/a/things/b/log", "streams"),
        ("POST", "/apis/a.b/v1/namespaces/a/things/b/exec", "streams"),
        ("GET", "/healthz", None),
        ("GET", "/livez/ping", None),
        ("GET", "/readyz/", None),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a", None),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a", None),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", "reads"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/a", "writes"),
    ],
)
def test_pool_of_requests(method: str, target: str, pool: str | None) -> None:
    """Reads, writes and streams have separate slots; health checks and leader election need
    none."""
    flights = InFlight(Time())
    expected = None if pool is None else getattr(flights, pool)
    assert flights.pool_of(context_of(ALICE, method, target)) is expected


def test_masters_are_exempt() -> None:
    """A master is accepted when all slots are taken, and holds none."""
    flights = InFlight(Time(), InFlightOptions(reads_max=1))
    first = context_of(ALICE, "GET", "/api/v1/pods")
    flights.check(first)
    assert flights.take(first) is not None
    master = context_of(MASTER, "GET", "/api/v1/pods")
    flights.check(master)
    assert flights.take(master) is None
    with pytest.raises(StatusError) as refused:
        flights.check(context_of(BOB, "GET", "/api/v1/pods"))
    assert (refused.value.code, refused.value.reason) == (429, "TooManyRequests")
    assert refused.value.message == "Too many requests, please try again later."
    assert refused.value.retry_after_seconds == 1


def test_a_slot_taken_before_authentication() -> None:
    """A request that waits for authentication holds a slot of the unauthenticated pool, which is
    then exchanged for one of its user."""
    flights = InFlight(Time(), InFlightOptions(reads_max=2))
    for user, holders in ((ALICE, {"alice": 1}), (MASTER, {})):
        context = context_of(ANONYMOUS, "GET", "/api/v1/pods")
        flights.check(context)
        slot = flights.take(context)
        assert slot is not None
        assert (flights.unauthenticated.taken, flights.reads.taken) == (1, 0)
        context.user = user
        flights.check(context)
        assert flights.take(context) is slot or user is MASTER
        assert (flights.unauthenticated.taken, flights.reads.held) == (0, holders)
        slot.leave()
    assert flights.reads.taken == 0


@pytest.mark.parametrize("target", ["/api/v1/pods", "/api/v1/pods?watch=1"])
def test_unauthenticated_requests_use_no_slots_of_users(target: str) -> None:
    """They have a pool of their own, shared by address: when it is used up, users still have all
    their slots."""
    limits = InFlightOptions(reads_max=1, streams_max=1, unauthenticated_max=2)
    flights = InFlight(Time(), limits)
    for _ in range(2):
        context = context_of(ANONYMOUS, "GET", target)
        flights.check(context)
        assert flights.take(context) is not None
    with pytest.raises(StatusError) as refused:
        flights.check(context_of(ANONYMOUS, "GET", target))
    assert refused.value.code == 429
    flights.check(context_of(ALICE, "GET", target))
    assert flights.unauthenticated.held == {"": 2}


class Channel:
    """A connection that accepts all data."""

    def stream_overfull(self) -> bool:
        return False

    def stream_done(self) -> None: ...

    def stream_abort(self) -> None: ...

    def tunnel_pause(self) -> None: ...

    def tunnel_resume(self) -> None: ...

    def tunnel_done(self) -> None: ...

    def stream_later(self, work: Callable[[], None]) -> None: ...


@pytest.mark.parametrize("end", ["close", "abort", "cut"])
def test_a_stream_holds_its_slot_until_its_end(end: str) -> None:
    """However a watch or a tunnel ends, its slot is held until then, and released once."""
    pool = SlotPool(8, Time(), is_of_streams=True)
    closed: list[str] = []
    stream = hold_slot(PushStream(200, lambda _: None), pool.take("alice"))
    assert isinstance(stream, PushStream)
    writer = StreamWriter(Channel(), lambda _: None, chunked=True)
    writer.on_close = lambda: closed.append("stream")
    stream.start(writer)
    tunnel = hold_slot(Tunnel(lambda _: None, b""), pool.take("alice"))
    assert isinstance(tunnel, Tunnel)
    tunnel_end = TunnelEnd(Channel(), lambda _: None)
    tunnel_end.on_close = lambda: closed.append("tunnel")
    tunnel.start(tunnel_end)
    assert pool.taken == 2
    for each in (writer, tunnel_end):
        getattr(each, end)()
        getattr(each, end)()
    assert pool.taken == 0
    assert closed == (["stream", "tunnel"] if end == "cut" else [])


def test_a_dropped_stream() -> None:
    """Its producer is notified, and the slot is released."""
    pool = SlotPool(8, Time(), is_of_streams=True)
    dropped: list[str] = []
    stream = PushStream(200, lambda _: None, on_dropped=lambda: dropped.append("stream"))
    answer = hold_slot(stream, pool.take("alice"))
    assert isinstance(answer, PushStream)
    answer.close()
    assert (pool.taken, dropped) == (0, ["stream"])


def test_watches_of_one_user() -> None:
    """A user has a limit of watches; others are not affected by it."""
    flights = InFlight(Time(), InFlightOptions(streams_per_user_max=2))
    watch = "/api/v1/pods?watch=1"
    for _ in range(2):
        context = context_of(ALICE, "GET", watch)
        flights.check(context)
        flights.take(context)
    with pytest.raises(StatusError) as refused:
        flights.check(context_of(ALICE, "GET", watch))
    assert refused.value.code == 429
    flights.check(context_of(BOB, "GET", watch))
    assert flights.streams.refused == 1
