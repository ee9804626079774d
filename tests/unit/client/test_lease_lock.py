"""Leader election: one leader at a time, whatever is lost, and compatible with client-go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.aio import Runtime, SimulatedClock, TaskHandle, Tasks
from restow.apimachinery import status
from restow.client import (
    ApiClient,
    InProcessResponse,
    InProcessTransport,
    Leadership,
    LeadershipLost,
    LeaderTiming,
    lease_elector,
)
from restow.client.lease_lock import unique_identity
from restow.client.lease_record import LeaseRecord
from tests.sizes import SIZES
from tests.unit.client.fake_api import FakeApi

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/test"


class Candidate:
    """A candidate process, with a connection that can be cut."""

    def __init__(
        self,
        api: FakeApi,
        clock: SimulatedClock,
        name: str,
        timing: LeaderTiming | None = None,
    ) -> None:
        self.is_cut = False
        self.delay_seconds = 0.0
        """Delay of responses."""
        self._leads = False
        self.was_lost = 0
        runtime = Runtime.simulated(name, clock=clock)
        self._api = api
        client = ApiClient(InProcessTransport(self._handle), runtime=runtime)
        self.elector = lease_elector(
            client, namespace="kube-system", name="test", identity=name, timing=timing
        )

    async def _handle(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        if self.is_cut:
            await asyncio.Event().wait()
        answer = await self._api.handle(method, target, headers, body)
        if self.delay_seconds:
            await self.elector.runtime.clock.sleep(self.delay_seconds)
        return answer

    def is_at_work(self) -> bool:
        return self._leads

    async def run(self) -> None:
        while True:
            try:
                async with self.elector.leading() as term:
                    await self._lead(term)
            except LeadershipLost:
                self.was_lost += 1

    async def _lead(self, term: Leadership) -> None:
        assert term.is_held
        self._leads = True
        try:
            await asyncio.Event().wait()
        finally:
            self._leads = False


@asynccontextmanager
async def candidates(
    api: FakeApi, *names: str, timing: LeaderTiming | None = None
) -> AsyncIterator[tuple[SimulatedClock, list[Candidate], list[TaskHandle]]]:
    clock = SimulatedClock()
    found = [Candidate(api, clock, name, timing) for name in names]
    async with Tasks("test") as tasks:
        handles = [tasks.spawn(each.elector.identity, each.run()) for each in found]
        yield clock, found, handles


def spec(api: FakeApi) -> dict[str, object]:
    found = api.objects[PATH]["spec"]
    assert isinstance(found, dict)
    return found


async def test_the_first_leads() -> None:
    """The first candidate creates the lease, with the fields of client-go, and renews it."""
    api = FakeApi()
    async with candidates(api, "anna") as (clock, (anna,), _):
        await clock.advance(1)
        assert anna.is_at_work()
        first = spec(api)
        assert first["holderIdentity"] == anna.elector.identity
        assert (first["leaseDurationSeconds"], first["leaseTransitions"]) == (15, 0)
        assert first["acquireTime"] == first["renewTime"] == "2024-01-01T00:00:00.000000Z"
        await clock.advance(60)
        assert anna.is_at_work()
        assert spec(api)["acquireTime"] == first["acquireTime"]
        renewed = datetime.fromisoformat(str(spec(api)["renewTime"]))
        assert (clock.wall() - renewed).total_seconds() <= 2


async def test_a_stopped_leader_gives_the_lease_up() -> None:
    """A leader that stops releases the lease, and the next one leads within seconds."""
    api = FakeApi()
    async with candidates(api, "anna", "bert") as (clock, (anna, bert), handles):
        await clock.advance(10)
        assert (anna.is_at_work(), bert.is_at_work()) == (True, False)
        assert bert.elector.holder == anna.elector.identity
        await handles[0].stop()
        assert spec(api).get("holderIdentity") is None
        assert spec(api)["leaseDurationSeconds"] == 1
        await clock.advance(5)
        assert bert.is_at_work()
        assert spec(api)["leaseTransitions"] == 1


async def test_a_leader_stopped_in_the_middle_of_a_renewal() -> None:
    """A renewal that was executed without a response does not prevent the release."""
    api = FakeApi()
    async with candidates(api, "anna") as (clock, (anna,), handles):
        await clock.advance(1)
        anna.delay_seconds = 1
        await clock.advance(1.5)  # sent and executed, response pending
        renewed = spec(api)["renewTime"]
        assert renewed != spec(api)["acquireTime"]
        anna.delay_seconds = 0
        await handles[0].stop()
        assert "holderIdentity" not in spec(api)
    async with candidates(api, "bert") as (clock, (bert,), handles):
        await clock.advance(1)
        bert.delay_seconds = 1
        await clock.advance(1.5)
        api.put(PATH, {"spec": {"holderIdentity": "mallory"}})
        bert.delay_seconds = 0
        await handles[0].stop()
        assert spec(api)["holderIdentity"] == "mallory"


async def test_a_leader_that_is_cut_off() -> None:
    """It stops before another can lead, and the other leads after the lease expired."""
    api = FakeApi()
    async with candidates(api, "anna", "bert") as (clock, (anna, bert), _):
        await clock.advance(10)
        anna.is_cut = True
        await clock.advance(9.9)
        assert not bert.is_at_work()
        await clock.advance(2.2)
        assert (anna.is_at_work(), bert.is_at_work(), anna.was_lost) == (False, False, 1)
        assert not anna.elector.is_leading
        await clock.advance(10)
        assert bert.is_at_work()
        anna.is_cut = False
        await clock.advance(30)
        assert (anna.is_at_work(), bert.is_at_work()) == (False, True)


async def test_a_slow_answer_does_not_make_a_lease_longer() -> None:
    """A leader counts from before its request: others may observe the lease much earlier."""
    api = FakeApi()
    timing = LeaderTiming(retry_seconds=0.1)
    async with candidates(api, "anna", "bert", timing=timing) as (clock, (anna, bert), _):
        await clock.advance(1)
        assert anna.is_at_work()
        anna.delay_seconds = 9.5
        await clock.advance(0.2)  # a renewal was sent, response pending
        anna.is_cut = True
        await clock.advance(9.5)
        assert anna.is_at_work()
        for _ in range(60):
            await clock.advance(0.2)
            assert not (anna.is_at_work() and bert.is_at_work())
        assert bert.is_at_work()


async def test_wall_clocks_do_not_matter() -> None:
    """A candidate whose clock is hours ahead does not take a lease that is being renewed."""
    api = FakeApi()
    clock = SimulatedClock()
    anna, bert = Candidate(api, clock, "anna"), Candidate(api, clock.skewed(36_000), "bert")
    async with Tasks("test") as tasks:
        tasks.spawn("anna", anna.run())
        await clock.advance(1)
        tasks.spawn("bert", bert.run())
        await clock.advance(120)
        assert (anna.is_at_work(), bert.is_at_work()) == (True, False)


async def test_a_lease_of_client_go_is_respected() -> None:
    """A holder of another implementation keeps its lease duration; its other fields stay."""
    api = FakeApi()
    foreign = {
        "holderIdentity": "go_1",
        "leaseDurationSeconds": 40,
        "acquireTime": "2020-01-01T00:00:00.000000Z",
        "renewTime": "2020-01-01T00:00:00.000000Z",
        "leaseTransitions": 7,
        "strategy": "OldestEmulationVersion",
    }
    api.put(PATH, {"spec": foreign})
    async with candidates(api, "anna") as (clock, (anna,), _):
        await clock.advance(39)
        assert not anna.is_at_work()
        await clock.advance(6)
        assert anna.is_at_work()
        assert spec(api)["leaseTransitions"] == 8
        assert spec(api)["strategy"] == "OldestEmulationVersion"


async def test_another_took_the_lease() -> None:
    """A leader that finds another holder in the lease stops at once."""
    api = FakeApi()
    async with candidates(api, "anna") as (clock, (anna,), _):
        await clock.advance(1)
        api.put(PATH, {"spec": {"holderIdentity": "mallory", "leaseDurationSeconds": 15}})
        await clock.advance(4.5)
        assert (anna.is_at_work(), anna.was_lost) == (False, 1)


def test_two_processes_with_one_name_have_different_identities() -> None:
    """A process that is started again has another identity than before, under the same name."""
    ids = Runtime.simulated("seed", clock=SimulatedClock()).ids
    identities = [unique_identity("host_1", ids) for _ in range(3)]
    assert len(set(identities)) == 3
    assert all(each.startswith("host_1_") for each in identities)


async def test_a_deleted_lease_is_made_again() -> None:
    """A leader whose lease was deleted creates it again and continues."""
    api = FakeApi()
    async with candidates(api, "anna") as (clock, (anna,), _):
        await clock.advance(1)
        api.remove(PATH)
        await clock.advance(8)
        assert (anna.is_at_work(), anna.was_lost) == (True, 0)
        assert spec(api)["holderIdentity"] == anna.elector.identity


async def test_errors_of_the_body_come_out() -> None:
    """Errors of the leader's own work, timeouts included, are not taken for a lost lease."""
    api = FakeApi()
    clock = SimulatedClock()
    elector = Candidate(api, clock, "anna").elector
    for error in (TimeoutError("mine"), RuntimeError("mine")):

        async def work(error: Exception = error) -> None:
            async with elector.leading():
                raise error

        with pytest.raises(type(error), match="mine"):
            await clock.run_until_done(work())
        assert "holderIdentity" not in spec(api)


async def test_a_term_can_be_checked() -> None:
    """Work can check whether it still leads, and gets an error if not."""
    api = FakeApi()
    clock = SimulatedClock()
    candidate = Candidate(api, clock, "anna")

    async def work() -> Leadership:
        async with candidate.elector.leading() as term:
            term.check()
            return term

    term = await clock.run_until_done(work())
    with pytest.raises(LeadershipLost, match="no longer holds the lease kube-system/test"):
        term.check()


def test_times_that_make_no_sense() -> None:
    """The lease duration must exceed the renew deadline."""
    with pytest.raises(ValueError, match="is required"):
        LeaderTiming(lease_seconds=10, renew_seconds=10)
    with pytest.raises(ValueError, match="is required"):
        LeaderTiming(retry_seconds=9)


@given(
    st.dictionaries(
        st.sampled_from(["holderIdentity", "leaseDurationSeconds"]),
        st.none() | st.text() | st.integers(),
    )
)
def test_any_lease_can_be_read(found: dict[str, object]) -> None:
    """Types in a lease are not trusted."""
    assert LeaseRecord.read({"spec": found}).lease_seconds >= 0
    assert LeaseRecord.read({"spec": None}) == LeaseRecord()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "heal", "refuse", "lose", "delay"]),
        st.integers(0, 2),
        st.floats(0.1, 20),
    ),
    max_size=25,
)


@settings(max_examples=max(SIZES.hypothesis_examples // 5, 20))
@given(STEPS)
async def test_never_two(steps: list[tuple[str, int, float]]) -> None:
    """Whatever is cut, refused or lost, there are never two leaders; finally there is one."""
    api = FakeApi()
    async with candidates(api, "anna", "bert", "carl") as (clock, everyone, _):

        async def pass_time(seconds: float) -> None:
            end = clock.monotonic() + seconds
            while clock.monotonic() < end:
                await clock.advance(0.5)
                assert sum(each.is_at_work() for each in everyone) <= 1

        for step, which, seconds in steps:
            match step:
                case "cut":
                    everyone[which].is_cut = True
                case "heal":
                    everyone[which].is_cut = False
                case "refuse":
                    api.refuse.append(status.internal("?"))
                case "lose":
                    api.lost_answers += 1
                case _:
                    everyone[which].delay_seconds = seconds
            await pass_time(seconds)
        for each in everyone:
            each.is_cut, each.delay_seconds = False, 0
        api.refuse.clear()
        api.lost_answers = 0
        await pass_time(60)
        assert sum(each.is_at_work() for each in everyone) == 1
