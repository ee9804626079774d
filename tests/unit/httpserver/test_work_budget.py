"""Work budgets: limited in each iteration, in order, fair, without starvation."""

from __future__ import annotations

import asyncio
import time

import pytest

from restow.aio import LoopSteps, StepSubject
from restow.aio.loop_steps import LONG_SECONDS
from restow.httpserver import Answer, HttpRequest, HttpResponse, TlsMaterial
from restow.httpserver.byte_budgets import Share
from restow.httpserver.tls_connection import RECORDS_AT_ONCE_MAX, TlsConnection
from restow.httpserver.work_budget import WorkBudget
from tests.support.certificates import CertificateFiles
from tests.unit.httpserver.conftest import (
    WAIT_SECONDS,
    Harness,
    client_context,
    promised,
    request_bytes,
    short,
    until,
)
from tests.unit.httpserver.test_scarce import asked, known
from tests.unit.httpserver.test_tls_connection import GET, speaker


class Costly:
    """Work that takes time on a simulated clock."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self.work = WorkBudget(self.monotonic, seconds)
        self.done: list[str] = []

    def monotonic(self) -> float:
        return self.now

    def take(self, name: str, seconds: float, *, key: str = "", is_new: bool = False) -> bool:
        def work() -> None:
            self.done.append(name)
            self.now += seconds

        return self.work.take(work, key=key, is_new=is_new)


async def test_the_budget_of_one_iteration() -> None:
    """Cheap work is executed at once; of costly work one item per iteration, in order."""
    costly = Costly(1.0)
    assert [costly.take(name, 0.4) for name in "abcd"] == [True, True, True, False]
    costly.take("e", 2)
    costly.take("f", 2)
    assert (costly.done, len(costly.work)) == (["a", "b", "c"], 3)
    for after in ("abcde", "abcdef", "abcdef"):
        await asyncio.sleep(0)
        assert "".join(costly.done) == after
    assert costly.take("g", 2)


async def test_work_is_executed_in_order() -> None:
    """Later work is queued after earlier work, even if time remains."""
    costly = Costly(1.0)
    costly.take("a", 1)
    costly.take("b", 0.1)
    await asyncio.sleep(0)
    assert costly.done == ["a", "b"]
    costly.take("c", 1)
    costly.take("d", 0.1)
    costly.take("e", 0.1)
    assert costly.done == ["a", "b", "c"]
    await asyncio.sleep(0)
    assert costly.done == ["a", "b", "c", "d", "e"]


async def test_the_queues_alternate() -> None:
    """The two queues alternate: however long one is, the other proceeds at the same rate."""
    costly = Costly(1.0)
    costly.take("a", 1)
    for name in "bcdef":
        costly.take(name, 1)
    for name in "NOP":
        costly.take(name, 1, is_new=True)
    for _ in range(8):
        await asyncio.sleep(0)
    assert "".join(costly.done) == "aNbOcPdef"


async def test_long_work_is_measured() -> None:
    """A work item that takes long counts as a step of its kind, a short one does not."""
    now = 0.0
    steps = LoopSteps(lambda: now)
    kind = steps.kind("unauthenticated", lambda _: StepSubject())
    work = WorkBudget(lambda: now, 1.0, measured=(steps, kind))

    def spend(seconds: float) -> None:
        nonlocal now
        now += seconds

    for seconds in (LONG_SECONDS / 2, 0.03, 0.004):
        assert work.run(spend, seconds)
    assert (sum(kind.buckets), round(kind.sum_seconds, 6)) == (2, 0.034)
    [(series, longest)] = steps.longest()
    assert (series, round(longest, 6)) == (("unauthenticated", "", ""), 0.03)


async def test_keys_take_turns() -> None:
    """However much work one address or user has queued, another one is next."""
    costly = Costly(1.0)
    costly.take("a", 1)
    for name in "bcdef":
        costly.take(name, 1, key="many")
    costly.take("X", 1, key="one")
    costly.take("Y", 1, key="other")
    for _ in range(8):
        await asyncio.sleep(0)
    assert "".join(costly.done) == "abXYcdef"


async def test_nested_work_is_not_queued_again() -> None:
    """Work that is started by other work is not queued again."""
    turns = WorkBudget(time.monotonic, 1e-9)
    done: list[str] = []

    def outer() -> None:
        assert turns.take(lambda: done.append("inner"), key="")
        done.append("outer")

    assert turns.take(lambda: None, key="")
    assert not turns.take(outer, key="")
    await asyncio.sleep(0)
    assert done == ["inner", "outer"]


async def test_failing_work_does_not_stop_the_queues() -> None:
    """Work that raises does not stop the queues."""
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    costly = Costly(1.0)

    def fail() -> None:
        costly.now += 1
        raise RuntimeError("as it should here")

    costly.take("a", 1)
    costly.work.take(fail, key="")
    costly.take("b", 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (costly.done, told) == (["a", "b"], ["as it should here"])


async def test_unauthenticated_clients_wait_only_for_each_other(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """With almost no time per iteration each unauthenticated client is served, after any number of
    iterations: accept, handshake, request, and a body longer than is held while it waits."""
    harness.app.paths["/known"] = known
    await harness.start(tls=tls, limits=short(unauthenticated_work_seconds=1e-9))
    context = client_context(certificates.ca_file)
    clients = await asyncio.gather(*(harness.connect(context=context) for _ in range(20)))
    for client in clients:
        client.send(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n" + b"x" * 500_000
        )
    for client in clients:
        assert len((await client.answer()).body) == 500_002
    assert await asyncio.gather(*(asked(client, "/known") for client in clients)) == [200] * 20
    assert await asyncio.gather(*(asked(client, "/") for client in clients)) == [200] * 20


async def test_a_client_that_closes_while_queued_is_answered(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A client that closes its half of the socket while its request is queued gets the response."""
    listener = await harness.start(
        tls=tls, limits=short(unauthenticated_work_seconds=1e-9, idle_seconds=1000)
    )
    clients = [await speaker(harness, certificates) for _ in range(20)]
    for client in clients:
        client.writer.write(await client.greet() + client.sealed(GET))
        client.writer.write_eof()
    for client in clients:
        assert (await client.answer()).endswith(b"/|")
        assert await client.answer() == b""
    await until(lambda: listener.counters.connections_open == 0)


@pytest.mark.parametrize("is_tls", [False, True])
async def test_a_disconnect_after_a_queued_request(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial, *, is_tls: bool
) -> None:
    """A request that was queued is cancelled when its client disconnects, like any other."""
    listener = await harness.start(
        tls=tls if is_tls else None, limits=short(unauthenticated_work_seconds=1e-9)
    )
    answers: list[asyncio.Future[Answer]] = []

    def wait(_: HttpRequest) -> asyncio.Future[Answer]:
        answers.append(promised())
        return answers[-1]

    harness.app.paths["/"] = wait
    context = client_context(certificates.ca_file) if is_tls else None
    clients = [await harness.connect(context=context) for _ in range(10)]
    for client in clients:
        client.send(request_bytes("POST", "/", body=b"{}"))
    await until(lambda: listener.counters.answers_pending == 10)
    for client in clients:
        await client.close()
    await until(lambda: listener.counters.answers_pending == 0)
    await until(lambda: all(answer.cancelled() for answer in answers))


async def test_a_stop_waits_for_queued_work(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A request that arrived before the stop gets its response, even if it is still queued."""
    listener = await harness.start(tls=tls, limits=short(unauthenticated_work_seconds=1e-9))
    clients = [await speaker(harness, certificates) for _ in range(20)]
    for client in clients:
        client.writer.write(await client.greet())
    await until(lambda: listener.counters.connections_open == 20)
    for client in clients:
        client.writer.write(client.sealed(GET))
    async with asyncio.timeout(WAIT_SECONDS):
        while len(listener._shared.work.unauthenticated) <= 5:  # noqa: ASYNC110 - it changes in each iteration
            await asyncio.sleep(0)
    stopping = asyncio.create_task(listener.stop(grace_seconds=WAIT_SECONDS))
    for client in clients:
        assert (await client.answer()).endswith(b"/|")
    await stopping


@pytest.mark.parametrize("is_tls", [False, True])
async def test_users_take_turns(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial, *, is_tls: bool
) -> None:
    """With almost no time per iteration, a request of one user is among the first to be handled
    when another user has sent many on many connections; one of a privileged user is the first."""

    def user(request: HttpRequest) -> HttpResponse:
        name = request.headers.get("user") or ""
        request.peer.admit(name, is_privileged=name == "master")
        return HttpResponse(200, name.encode())

    harness.app.paths["/"] = user
    await harness.start(
        tls=tls if is_tls else None,
        limits=short(authenticated_work_seconds=1e-9, pipelined_seconds=1e-9),
    )
    context = client_context(certificates.ca_file) if is_tls else None
    names = ["many"] * 20 + ["one", "master"]
    clients = [await harness.connect(context=context) for _ in names]
    for client, name in zip(clients, names, strict=True):
        client.get("/", f"User: {name}")
        assert (await client.answer()).status == 200
    harness.app.seen.clear()
    for client, name in zip(clients, names, strict=True):
        client.send(request_bytes("GET", "/", f"User: {name}") * 10)
    for client in clients:
        for _ in range(10):
            assert (await client.answer()).status == 200
    order = [request.headers.get("user") for request in harness.app.seen]
    assert len(order) == 220
    assert order[:60].count("one") == 10
    assert order[:30].count("master") == 10


@pytest.mark.parametrize("is_tls", [False, True])
async def test_a_queued_request_and_what_follows_it(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial, *, is_tls: bool
) -> None:
    """While the request of an authenticated client is queued, more of it arrives: nothing is lost,
    also when the client closes its half then."""
    harness.app.paths["/known"] = known
    await harness.start(tls=tls if is_tls else None, limits=short(authenticated_work_seconds=1e-9))
    context = client_context(certificates.ca_file) if is_tls else None
    clients = [await harness.connect(context=context) for _ in range(20)]
    for client in clients:
        assert await asked(client, "/known") == 200
    bodies = [b"x" * nbytes for nbytes in (10, 100_000, 300_000)]
    for client in clients:
        for body in bodies:
            whole = request_bytes("POST", "/", body=body)
            client.send(whole[:50])
            await asyncio.sleep(0)
            client.send(whole[50:])
    for client in clients:
        assert [len((await client.answer()).body) for _ in bodies] == [12, 100_002, 300_002]
    for client in clients:
        client.get("/known")
        if client.writer.can_write_eof():
            client.writer.write_eof()
    for client in clients:
        assert (await client.answer()).body == b"known"


async def test_clients_are_served_when_the_byte_budget_is_used_up(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """When the byte budget is used up, clients that send little are still served."""
    listener = await harness.start(tls=tls, limits=short(unauthenticated_work_seconds=1e-9))
    budget = listener._shared.budgets.unauthenticated
    holders = [Share(budget, key) for key in ("one place", "another")]
    for holder in holders:
        assert holder.take(budget.share_bytes_max)
    assert budget.bytes_held == budget.bytes_max
    clients = [await speaker(harness, certificates) for _ in range(10)]
    for client in clients:
        client.writer.write(await client.greet() + client.sealed(GET))
    for client in clients:
        assert (await client.answer()).endswith(b"/|")
    for holder in holders:
        holder.release()


async def test_short_records(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """Of a request in records of one byte only some are decrypted per iteration, and none is
    lost."""
    listener = await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet())
    await until(lambda: listener.counters.connections_open == 1)
    secured = harness.connection._transport
    assert isinstance(secured, TlsConnection)
    sizes: list[int] = []
    deliver = secured._deliver

    def watched(data: bytes) -> None:
        sizes.append(len(data))
        deliver(data)

    secured._deliver = watched
    request = request_bytes("GET", "/" + "x" * 500)
    client.writer.write(b"".join(client.sealed(bytes([byte])) for byte in request))
    assert (await client.answer()).endswith(b"x|")
    assert sum(sizes) == len(request)
    assert max(sizes) <= RECORDS_AT_ONCE_MAX
