"""Long work runs in threads, with a fair queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.structural.cel.admission import Scope
from restow.apimachinery.structural.cel.budget import CALL_COST_MAX
from restow.apimachinery.structural.cel.library_authorizer import AuthorizerValue
from restow.apimachinery.structural.cel.run import COST_ON_LOOP_MAX, Trial
from restow.apimachinery.structural.cel.values import TrialOver
from restow.httpserver import Headers, HttpRequest
from restow.httpserver.request import Peer
from restow.request.context import Context, User
from restow.request.offload import Offload, called_on_loop
from restow.request.request_info import RequestInfo

WAIT_SECONDS = 10.0


@pytest_asyncio.fixture
async def offloaded() -> AsyncIterator[Offload]:
    made = Offload(Runtime.system())
    yield made
    made.close()


def write_of(name: str, *groups: str) -> Context:
    request = HttpRequest("POST", "/", "", Headers([]), b"", Peer(1), 0.0)
    context = Context(request, RequestInfo("POST", "/", "create"))
    context.user = User(name, groups)
    return context


ALICE, BOB, CAROL = map(write_of, ("alice", "bob", "carol"))
ROOT = write_of("root", "system:masters")


class Work:
    """Work in a thread that blocks until `end` is called."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log = log
        self._name = name
        self._go = threading.Event()

    def __call__(self) -> str:
        self._log.append(self._name)
        assert self._go.wait(WAIT_SECONDS)
        return self._name

    def end(self) -> None:
        self._go.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110  (there is no event)
            await asyncio.sleep(0.002)


async def test_slots_are_shared_fairly(offloaded: Offload) -> None:
    """Two works run at once, one per user; `system:masters` come first, then the longest
    waiting. A slot is held until the work is done, even if the request is cancelled."""
    log: list[str] = []
    names = ["alice", "alice-2", "bob", "carol", "root"]
    works = {name: Work(log, name) for name in names}
    writes = dict(zip(names, (ALICE, ALICE, BOB, CAROL, ROOT), strict=True))
    tasks = {}
    for name in names:
        tasks[name] = asyncio.ensure_future(offloaded.run(writes[name], works[name]))
        await asyncio.sleep(0)
    await until(lambda: len(log) == 2)
    assert log == ["alice", "bob"]
    tasks["bob"].cancel()
    await asyncio.sleep(0)
    assert log == ["alice", "bob"]
    for name in ("bob", "alice", "root", "carol", "alice-2"):
        begun = len(log)
        works[name].end()
        await until(lambda begun=begun: len(log) > begun or len(log) == len(names))  # type: ignore[misc]
    assert log[2] == "root"
    assert set(log[3:]) == {"carol", "alice-2"}
    for name in ("alice", "alice-2", "carol", "root"):
        assert await tasks[name] == name


async def test_evaluations_end_at_the_deadline(offloaded: Offload) -> None:
    """A request past its deadline gets a timeout, also if the evaluation has succeeded; nothing
    starts after `close`."""
    log: list[str] = []
    held, monotonic = Work(log, "held"), Runtime.system().clock.monotonic
    late = write_of("alice")
    by = late.request.answer_by_seconds = monotonic() + 0.05
    first = asyncio.ensure_future(offloaded.run(late, held))
    await until(lambda: bool(log))
    with pytest.raises(status.Timeout):
        await offloaded.run(late, lambda: "never")
    await until(lambda: monotonic() > by)
    held.end()
    with pytest.raises(status.Timeout):
        await first
    offloaded.close()
    with pytest.raises(status.ServiceUnavailable):
        await offloaded.run(BOB, lambda: "never")


async def test_calls_from_a_thread_run_on_the_loop(offloaded: Offload) -> None:
    """A function called from a thread runs on the event loop, and its exception is raised in the
    thread."""
    here = threading.get_ident()

    def thread_of(question: str) -> int:
        if not question:
            raise ValueError("no question")
        return threading.get_ident()

    call = called_on_loop(thread_of)
    assert call("a") == here
    assert await offloaded.run(BOB, lambda: call("a")) == here
    with pytest.raises(ValueError, match="no question"):
        await offloaded.run(BOB, lambda: call(""))


@pytest.mark.parametrize(
    ("source", "is_cheap"),
    [
        ("object.all(a, a >= 0)", True),
        ("object.all(a, object.all(b, a + b >= 0))", False),
        ("object.all(a, object.all(b, object.all(c, a + b + c >= 0)))", False),
        ("authorizer.path('/x').check('get').allowed()", True),
        ("[1, 2, 3].all(x, authorizer.path('/x').check('get').allowed())", True),
        ("object.exists(object, object == 99)", True),
    ],
)
def test_a_trial_changes_nothing(source: str, *, is_cheap: bool) -> None:
    """A trial on the loop changes neither outcome nor cost; authorization checks, whose cost is
    only nominal, do not end a trial."""
    expression = Scope().compile(source)
    values = {"object": list(range(60)), "authorizer": AuthorizerValue(lambda _question: True)}
    cost_max = CALL_COST_MAX if "check" in source else 100_000
    wanted = expression.run(dict(values), cost_max=cost_max)
    try:
        trial = Trial(COST_ON_LOOP_MAX)
        tried = expression.run(dict(values), cost_max=cost_max, trial=trial)
    except TrialOver:
        assert not is_cheap
        tried = expression.run(dict(values), cost_max=cost_max)
    else:
        assert is_cheap
    outcome = (wanted.value, wanted.cost, wanted.error)
    assert (tried.value, tried.cost, tried.error) == outcome
