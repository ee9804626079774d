"""Checks of long-running requests: when, how many at once, and how they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial

import orjson
import pytest
import pytest_asyncio

from restow.aio import SimulatedClock, Tasks
from restow.aio.events import EventChannel
from restow.apimachinery import status
from restow.authentication import Authentication
from restow.endpoints.access import AccessCheck
from restow.endpoints.revocation import (
    CHANGE_SECONDS,
    CHECK_SECONDS,
    CHECKS_PER_STEP,
    WAITS_AT_ONCE,
    WAITS_SECONDS_MAX,
    Revocation,
)
from restow.httpserver import HttpRequest, PushStream, StreamWriter, Tunnel, TunnelEnd
from restow.httpserver.request import Headers, Peer
from restow.registry.errors import DoAgain
from restow.request.context import Context, User
from restow.request.request_info import RequestInfo, parse_request

KEPT_SECONDS = 0.5
PODS = "/api/v1/namespaces/a/pods?watch=1"


class _Wait(DoAgain):
    """A check that lacks data, which arrives after some time; or never."""

    def __init__(self, clock: SimulatedClock, seconds: float, arrived: Callable[[], None]) -> None:
        super().__init__()
        self._clock, self._seconds, self._arrived = clock, seconds, arrived

    async def settle(self) -> None:
        await self._clock.sleep(self._seconds)
        self._arrived()


@dataclass(slots=True)
class Rights:
    """An authenticator and authorizer whose answers a test sets; it counts its calls."""

    clock: SimulatedClock
    users: dict[str, User] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    error: Exception | None = None
    waits_seconds: dict[str, float] = field(default_factory=dict)
    """By user, or for all others by an empty name: how long a check has to wait for data."""
    arrived: dict[str, float] = field(default_factory=dict)
    identified: int = 0
    changed: EventChannel[[]] = field(default_factory=EventChannel)
    asked: list[tuple[str, str]] = field(default_factory=list)
    groups: list[tuple[str, ...]] = field(default_factory=list)
    keeps_seconds: float = 0.0

    def authenticate(self, request: HttpRequest) -> User | None:
        self.identified += 1
        if self.error is not None:
            raise self.error
        name = request.headers.get("authorization") or ""
        seconds = self.waits_seconds.get(name, self.waits_seconds.get(""))
        if seconds is not None and self.clock.monotonic() >= self.arrived.get(name, 0.0):
            raise _Wait(self.clock, seconds, partial(self._arrived, name))
        user = self.users.get(name)
        if user is None:
            raise status.unauthorized()
        return user

    def _arrived(self, name: str) -> None:
        self.arrived[name] = self.clock.monotonic() + KEPT_SECONDS

    def allows(self, user: User, info: RequestInfo) -> bool:
        self.asked.append((user.name, info.path))
        self.groups.append(user.groups)
        return user.name not in self.forbidden

    def reason(self, user: User, info: RequestInfo) -> str:
        return ""


class Channel:
    """A connection that records how its stream ends."""

    def __init__(self) -> None:
        self.sent = b""
        self.ended = ""

    def stream_overfull(self) -> bool:
        return False

    def stream_done(self) -> None:
        self.ended = "done"

    def stream_abort(self) -> None:
        self.ended = "aborted"

    def tunnel_pause(self) -> None: ...

    def tunnel_resume(self) -> None: ...

    def tunnel_done(self) -> None:
        self.ended = "done"

    def stream_later(self, work: Callable[[], None]) -> None:
        work()

    def write(self, data: bytes) -> None:
        self.sent += data


@dataclass(slots=True)
class Rig:
    """The checks of a server without requests."""

    clock: SimulatedClock
    rights: Rights
    revocation: Revocation

    def watch(self, user: str = "jane", target: str = PODS) -> Channel:
        """A running watch of a user."""
        channel = Channel()
        writer = StreamWriter(channel, channel.write, chunked=False)

        def fail(status_json: bytes) -> None:
            writer.write(status_json)
            writer.close()

        stream = PushStream(200, lambda _: None, on_revoked=fail)
        self.register(stream, user, target)
        stream.start(writer)
        return channel

    def register(self, stream: PushStream | Tunnel, user: str = "jane", target: str = PODS) -> None:
        self.rights.users.setdefault(user, User(user))
        path, _, query = target.partition("?")
        headers = Headers([("authorization", user)])
        request = HttpRequest("GET", path, query, headers, b"", Peer(1), 0.0)
        context = Context(request, parse_request("GET", target))
        context.user = self.rights.users[user]
        self.revocation.requests.add(context, stream)

    @property
    def count(self) -> int:
        return len(self.revocation.requests)


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[Rig]:
    clock = SimulatedClock()
    rights = Rights(clock)
    access = AccessCheck(Authentication([rights]), rights, clock)
    made = Rig(clock, rights, Revocation(access, clock))
    async with Tasks("revocation") as tasks:
        task = tasks.spawn_loop("run", made.revocation.run())
        await clock.advance(0.1)
        yield made
        await task.stop()


# When.


async def test_a_lost_right_ends_a_request_by_the_timer(rig: Rig) -> None:
    """Without any notification, a request ends at the next check, with the 403 of a new request."""
    watch = rig.watch()
    await rig.clock.advance(CHECK_SECONDS)
    assert watch.ended == ""
    rig.rights.forbidden.add("jane")
    await rig.clock.advance(CHECK_SECONDS)
    assert watch.ended == "done"
    assert orjson.loads(watch.sent)["code"] == 403
    assert rig.count == 0
    assert rig.revocation.ended == {403: 1}


async def test_a_change_of_roles_is_followed_by_one_check(rig: Rig) -> None:
    """Many changes in a short time lead to one check, before the next periodic one."""
    watch = rig.watch()
    rig.rights.forbidden.add("ann")
    for _ in range(50):
        rig.rights.changed.emit()
        await rig.clock.advance(CHANGE_SECONDS / 100)
    assert rig.rights.asked == []
    await rig.clock.advance(CHANGE_SECONDS)
    assert len(rig.rights.asked) == 1
    rig.rights.forbidden.add("jane")
    rig.rights.changed.emit()
    await rig.clock.advance(CHANGE_SECONDS)
    assert watch.ended == "done"


async def test_an_invalid_credential_ends_all_requests_of_its_sender(rig: Rig) -> None:
    """A 401 ends every request with this credential, and no other."""
    ended = [rig.watch(target=f"/api/v1/namespaces/{name}/pods?watch=1") for name in "abc"]
    other = rig.watch("ann")
    del rig.rights.users["jane"]
    await rig.clock.advance(CHECK_SECONDS)
    assert [orjson.loads(each.sent)["code"] for each in ended] == [401] * 3
    assert other.ended == ""
    assert rig.count == 1


async def test_a_credential_of_another_user_is_a_401(rig: Rig) -> None:
    """A token that identifies another user than before does not continue the first user's
    requests."""
    watch = rig.watch()
    rig.rights.users["jane"] = User("ann")
    await rig.clock.advance(CHECK_SECONDS)
    assert orjson.loads(watch.sent)["code"] == 401


async def test_lost_groups_count(rig: Rig) -> None:
    """A request is checked with the groups that its user has now."""
    rig.rights.users["jane"] = User("jane", ("devs",))
    watch = rig.watch()
    rig.rights.users["jane"] = User("jane", ("ops",))
    await rig.clock.advance(CHECK_SECONDS)
    assert rig.rights.groups == [("ops", "system:authenticated")]
    assert watch.ended == ""


# What cannot be decided.


async def test_a_check_waits_for_data(rig: Rig) -> None:
    """A check that lacks data is repeated when the data is there."""
    watch = rig.watch()
    rig.rights.forbidden.add("jane")
    rig.rights.waits_seconds[""] = 1.0
    await rig.clock.advance(CHECK_SECONDS)
    assert watch.ended == ""
    await rig.clock.advance(1.0)
    assert orjson.loads(watch.sent)["code"] == 403


@pytest.mark.parametrize("error", [status.unavailable("no store"), ValueError("a defect"), None])
async def test_a_request_that_cannot_be_checked_ends_within_the_limit(
    rig: Rig, error: Exception | None
) -> None:
    """An outage shorter than the time between two checks ends nothing; a longer one ends the
    request, within 30 seconds after the last successful check, with an error that is not a
    refusal."""
    watch = rig.watch()

    def break_off() -> None:
        rig.rights.error = error
        rig.rights.waits_seconds = {"": 1e6} if error is None else {}

    for _ in range(3):
        break_off()
        await rig.clock.advance(CHECK_SECONDS - 1)
        rig.rights.error, rig.rights.waits_seconds = None, {}
        await rig.clock.advance(CHECK_SECONDS + WAITS_SECONDS_MAX)
    assert watch.ended == ""
    break_off()
    await rig.clock.advance(30.0)
    assert orjson.loads(watch.sent)["code"] in (500, 503)
    assert rig.count == 0


async def test_senders_that_wait_in_vain_do_not_hold_up_the_others(rig: Rig) -> None:
    """Many senders whose data never arrives end; others, whose data arrives in time, are checked
    each time and go on."""
    for number in range(10 * WAITS_AT_ONCE):
        rig.watch(f"stuck-{number}")
        rig.rights.waits_seconds[f"stuck-{number}"] = 1e6
    good = [rig.watch(f"user-{number}") for number in range(10)]
    rig.rights.waits_seconds[""] = 0.1
    for number in range(10):
        rig.rights.arrived[f"user-{number}"] = CHECK_SECONDS + 1  # they were checked before
    await rig.clock.advance(120.0)
    assert [each.ended for each in good] == [""] * 10
    assert rig.count == 10
    rig.rights.forbidden.add("user-9")
    await rig.clock.advance(CHECK_SECONDS + WAITS_SECONDS_MAX)
    assert good[9].ended == "done"


# How much.


async def test_equal_requests_are_checked_once(rig: Rig) -> None:
    """Requests with equal credentials are authenticated once, equal questions authorized once."""
    for version in range(50):
        for name in "ab":
            rig.watch(target=f"/api/v1/namespaces/{name}/pods?watch=1&resourceVersion={version}")
    await rig.clock.advance(CHECK_SECONDS)
    assert rig.rights.identified == 1
    assert len(rig.rights.asked) == 2


@pytest.mark.parametrize("is_revoked", [False, True])
async def test_the_event_loop_serves_others_between_the_steps(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, *, is_revoked: bool
) -> None:
    """Between two steps of the event loop there are at most CHECKS_PER_STEP checks or ended
    requests, of distinct senders and of one sender."""
    count = 10 * CHECKS_PER_STEP
    channels = [rig.watch(f"user-{number}") for number in range(count)]
    channels += [rig.watch("jane") for _ in range(count)]
    if is_revoked:
        rig.rights.users.clear()
    steps: list[int] = []

    def done() -> int:
        return rig.rights.identified + len(rig.rights.asked) + sum(bool(x.ended) for x in channels)

    sleep = rig.clock.sleep

    async def counted(seconds: float) -> None:
        if not seconds:
            steps.append(done())
        await sleep(seconds)

    monkeypatch.setattr(rig.clock, "sleep", counted)
    await rig.clock.advance(CHECK_SECONDS)
    sizes = [after - before for before, after in zip([0, *steps], steps, strict=False)]
    assert len(sizes) >= 2 * count // CHECKS_PER_STEP - 1
    assert max(sizes) <= CHECKS_PER_STEP
    assert rig.count == (0 if is_revoked else 2 * count)


# The registry.


class TestRegistry:
    """The registry is empty after every kind of stream and every kind of end."""

    @staticmethod
    def stream(rig: Rig, *, may_end: bool = True) -> tuple[PushStream, StreamWriter]:
        channel = Channel()
        writer = StreamWriter(channel, channel.write, chunked=False, may_end=may_end)
        made = PushStream(200, lambda _: None, may_end=may_end)
        rig.register(made)
        assert rig.count == 1
        return made, writer

    @staticmethod
    def tunnel(rig: Rig) -> tuple[Tunnel, TunnelEnd]:
        channel = Channel()
        made = Tunnel(lambda _: None, b"")
        rig.register(made)
        return made, TunnelEnd(channel, channel.write)

    @pytest.mark.parametrize("end", ["close", "abort", "cut", "drop"])
    async def test_ends_of_streams(self, rig: Rig, end: str) -> None:
        """Either side may end a stream, cleanly or not."""
        stream, writer = self.stream(rig)
        stream.start(writer)
        getattr(writer, end)()
        getattr(writer, end)()
        assert rig.count == 0

    @pytest.mark.parametrize("end", ["close", "abort", "cut", "drop"])
    async def test_ends_of_tunnels(self, rig: Rig, end: str) -> None:
        """Either side may end a tunnel, cleanly or not."""
        tunnel, writer = self.tunnel(rig)
        tunnel.start(writer)
        getattr(writer, end)()
        getattr(writer, end)()
        assert rig.count == 0

    async def test_answers_that_never_start(self, rig: Rig) -> None:
        """The client may disconnect before the answer starts."""
        stream, _ = self.stream(rig)
        stream.close()
        stream.close()
        tunnel, _ = self.tunnel(rig)
        tunnel.close()
        assert rig.count == 0

    async def test_answers_that_end_while_they_start(self, rig: Rig) -> None:
        """A stream may end, or raise an error, in its start."""
        stream, writer = self.stream(rig)
        writer.close()
        stream.start(writer)
        assert rig.count == 0

        def fail(_: StreamWriter) -> None:
            raise ValueError("a defect")

        broken = PushStream(200, fail)
        rig.register(broken)
        with pytest.raises(ValueError, match="a defect"):
            broken.start(writer)
        assert rig.count == 0

    async def test_a_producer_without_a_form_for_errors(self, rig: Rig) -> None:
        """A stream that may end is closed, another one is aborted; both producers are notified."""
        for may_end, ended in ((True, "done"), (False, "aborted")):
            stream, writer = self.stream(rig, may_end=may_end)
            stream.start(writer)
            left: list[bool] = []
            writer.on_close = lambda left=left: left.append(True)
            rig.rights.forbidden = {"jane"}
            await rig.revocation.check_all()
            channel = writer._channel
            assert isinstance(channel, Channel)
            assert (channel.ended, left, rig.count) == (ended, [True], 0)

    async def test_one_that_has_not_started_ends_later(self, rig: Rig) -> None:
        """A request that is refused between its answer and its start ends at the next check."""
        rig.rights.forbidden = {"jane"}
        stream, writer = self.stream(rig)
        await rig.revocation.check_all()
        assert rig.count == 1
        stream.start(writer)
        await rig.revocation.check_all()
        assert rig.count == 0

    async def test_a_defect_in_one_does_not_keep_the_others(
        self, rig: Rig, caplog: pytest.LogCaptureFixture
    ) -> None:
        """If one request cannot be ended, that is logged, and the others end."""

        def fail(_: bytes) -> None:
            raise ValueError("a defect")

        channel = Channel()
        broken = PushStream(200, lambda _: None, on_revoked=fail)
        rig.register(broken)
        broken.start(StreamWriter(channel, channel.write, chunked=False))
        watch = rig.watch()
        rig.rights.forbidden = {"jane"}
        await rig.revocation.check_all()
        assert watch.ended == "done"
        assert rig.count == 1
        assert "could not be ended" in caplog.text
