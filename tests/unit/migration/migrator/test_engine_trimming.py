"""When a whole migration takes versions out of `storedVersions`, and when it does not."""

from __future__ import annotations

import pytest

from restow.client import InProcessTransport
from restow.client.transport import ClientRequest
from restow.migration.migrator.engine import Engine
from restow.migration.migrator.jobs import RunEnd, RunListener
from restow.migration.migrator.passes import PageDone
from restow.migration.migrator.progress import Progress
from tests.unit.migration.migrator.definitions import (
    DEFINITIONS,
    Definitions,
    definition,
)
from tests.unit.migration.migrator.world import QUICK, V2, World

PATH = f"{DEFINITIONS}/widgets.example.com"
LOST = -1
"""Carried out, and the answer lost."""


@pytest.fixture
def api(world: World) -> Definitions:
    """Definitions beside the world: that of its widgets, stored in v2."""
    made = Definitions()
    made.put(PATH, definition())
    world.faults.routes[DEFINITIONS] = InProcessTransport(made.handle)
    return made


def stored(api: Definitions) -> object:
    return api.objects[PATH]["status"]["storedVersions"]


@pytest.mark.parametrize("edits", [1, 2])
async def test_edited_meanwhile(world: World, api: Definitions, edits: int) -> None:
    """A definition that is edited during a pass, but still stores the target, costs another pass,
    which is true of it as it is now."""
    passes: set[int] = set()

    def page(_done: PageDone, progress: Progress) -> None:
        number = progress.position.pass_number
        if number not in passes and number <= edits:
            api.put(PATH, definition(generation=10 + number))
        passes.add(number)

    outcome = await world.run(await world.request(), listener=RunListener(page=page))
    assert (outcome.ending, stored(api)) == (RunEnd.SUCCEEDED, ["v2"]), outcome
    assert passes == {1, 2, 3}


async def test_edited_in_every_pass(world: World, api: Definitions) -> None:
    """One that never stands still is left as it is in the end, and the migration is proven."""

    def page(_done: PageDone, _progress: Progress) -> None:
        generation = api.objects[PATH]["metadata"]["generation"]
        api.put(PATH, definition(generation=generation + 1))

    outcome = await world.run(await world.request(), listener=RunListener(page=page))
    assert (outcome.ending, stored(api)) == (RunEnd.SUCCEEDED, ["v1", "v2"])
    assert "has changed since" in outcome.message
    assert await world.versions() == {V2: 12}


async def test_stores_something_else_meanwhile(world: World, api: Definitions) -> None:
    """One that begins to store another version during a pass is not trimmed to the proven one."""

    def page(_done: PageDone, _progress: Progress) -> None:
        api.put(PATH, definition(generation=4, storage="v1"))

    outcome = await world.run(await world.request(), listener=RunListener(page=page))
    assert (outcome.ending, stored(api)) == (RunEnd.SUCCEEDED, ["v1", "v2"])
    assert "v1 is not the target" in outcome.message


@pytest.mark.parametrize("answer", [500, 503, LOST])
async def test_not_written_for_a_moment(world: World, api: Definitions, answer: int) -> None:
    """When the definition cannot be written for a moment, the migration is gone on with, and it is
    trimmed then: a success that leaves it would be the last word."""
    refusals = 1

    async def before(sent: ClientRequest) -> int:
        nonlocal refusals
        if sent.method == "PUT" and sent.target.startswith(PATH) and refusals:
            refusals -= 1
            return answer
        return 0

    world.faults.before = before
    engine, request = Engine(world.client, options=QUICK), await world.request()
    outcome = await engine.run(world.job(request))
    assert outcome.ending is RunEnd.INTERRUPTED, outcome
    outcome = await engine.run(world.job(await world.latest()))
    assert (outcome.ending, stored(api)) == (RunEnd.SUCCEEDED, ["v2"]), outcome


async def test_may_not_be_written(world: World, api: Definitions) -> None:
    """Where the migrator may not write definitions, it says so, and succeeds."""

    async def before(sent: ClientRequest) -> int:
        return 403 if sent.method == "PUT" and sent.target.startswith(PATH) else 0

    world.faults.before = before
    outcome = await world.run(await world.request())
    assert (outcome.ending, stored(api)) == (RunEnd.SUCCEEDED, ["v1", "v2"])
    assert "storedVersions is left as it is" in outcome.message
