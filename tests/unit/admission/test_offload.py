"""Expressions that take long: they wait for their turn, and nobody waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from restow.admission.offload import COST_ON_LOOP_MAX, OffloadedEvaluations, called_on_loop
from restow.admission.review import Attributes
from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.structural.cel.admission import Scope
from restow.apimachinery.structural.cel.budget import CALL_COST_MAX
from restow.apimachinery.structural.cel.library_authorizer import AuthorizerValue
from restow.apimachinery.structural.cel.run import Trial
from restow.apimachinery.structural.cel.values import TrialOver
from restow.httpserver import Headers, HttpRequest
from restow.httpserver.request import Peer
from restow.registry.catalog import builtin_catalog
from restow.request.context import Context, User
from restow.request.request_info import RequestInfo

WAIT_SECONDS = 10.0


@pytest_asyncio.fixture
async def dear() -> AsyncIterator[OffloadedEvaluations]:
    made = OffloadedEvaluations(Runtime.system())
    yield made
    made.close()


def write_of(name: str, *groups: str) -> Attributes:
    request = HttpRequest("POST", "/", "", Headers([]), b"", Peer(1), 0.0)
    resource = builtin_catalog().of_kind("", "ConfigMap")
    assert resource is not None
    return Attributes(
        operation="CREATE",
        resource=resource,
        version="v1",
        subresource="",
        namespace="default",
        name="a",
        obj={},
        old=None,
        user=User(name, groups),
        dry_run=False,
        context=Context(request, RequestInfo("POST", "/", "create")),
    )


ALICE, BOB, CAROL = map(write_of, ("alice", "bob", "carol"))
ROOT = write_of("root", "system:masters")


class Work:
    """Some work in a thread that is done when it is told to be."""

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


async def test_turns(dear: OffloadedEvaluations) -> None:
    """Two at once, one of each user; masters first, then who has waited longest. A turn lasts until
    the work is done, also when nobody waits for it any more."""
    log: list[str] = []
    names = ["alice", "alice-2", "bob", "carol", "root"]
    works = {name: Work(log, name) for name in names}
    writes = dict(zip(names, (ALICE, ALICE, BOB, CAROL, ROOT), strict=True))
    tasks = {}
    for name in names:
        tasks[name] = asyncio.ensure_future(dear.run(works[name], writes[name]))
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


async def test_time_is_over(dear: OffloadedEvaluations) -> None:
    """Whoever waits longer than his request may last is told so, and so is who is served late; when
    the server stops nothing is begun."""
    log: list[str] = []
    held, monotonic = Work(log, "held"), Runtime.system().clock.monotonic
    late = write_of("alice")
    by = late.context.request.answer_by_seconds = monotonic() + 0.05
    first = asyncio.ensure_future(dear.run(held, late))
    await until(lambda: bool(log))
    with pytest.raises(status.Timeout):
        await dear.run(lambda: "never", late)
    await until(lambda: monotonic() > by)
    held.end()
    with pytest.raises(status.Timeout):
        await first
    dear.close()
    with pytest.raises(status.ServiceUnavailable):
        await dear.run(lambda: "never", BOB)


async def test_questions_are_answered_on_the_loop(dear: OffloadedEvaluations) -> None:
    """Whoever is asked from a thread answers on the loop; what it raises, the thread raises."""
    here = threading.get_ident()

    def ask(question: str) -> int:
        if not question:
            raise ValueError("no question")
        return threading.get_ident()

    asked = called_on_loop(ask)
    assert asked("a") == here
    assert await dear.run(lambda: asked("a"), BOB) == here
    with pytest.raises(ValueError, match="no question"):
        await dear.run(lambda: asked(""), BOB)


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
    """What is tried, and perhaps begun anew, has the same outcome and cost as if it were not; to
    ask for rights, which is dear by decree alone, ends no trial."""
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
