"""When a migration removes versions from `storedVersions`, and when it does not."""

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
"""The request is carried out, and its reply lost."""


@pytest.fixture
def api(world: World) -> Definitions:
    """A fake API server with the CRD of the widgets, stored in v2."""
    made = Definitions()
    made.put(PATH, definition())
    world.faults.routes[DEFINITIONS] = InProcessTransport(made.handle)
    return made


def stored(api: Definitions) -> object:
    return api.objects[PATH]["status"]["storedVersions"]


@pytest.mark.parametrize("edits", [1, 2])
async def test_edited_during_a_pass(world: World, api: Definitions, edits: int) -> None:
    """A CRD that is edited during a pass, but keeps its storage version, costs another pass, which
    holds for the edited CRD."""
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
    """If the CRD is edited in every pass, it is left unchanged, and the migration is verified."""

    def page(_done: PageDone, _progress: Progress) -> None:
        generation = api.objects[PATH]["metadata"]["generation"]
        api.put(PATH, definition(generation=generation + 1))

    outcome = await world.run(await world.request(), listener=RunListener(page=page))
    assert (outcome.ending, stored(api)) == (RunEnd.SUCCEEDED, ["v1", "v2"])
    assert "has changed since" in outcome.message
    assert await world.versions() == {V2: 12}


async def test_another_storage_version_during_a_pass(world: World, api: Definitions) -> None:
    """A CRD whose storage version changes during a pass is not trimmed to the verified version."""

    def page(_done: PageDone, _progress: Progress) -> None:
        api.put(PATH, definition(generation=4, storage="v1"))

    outcome = await world.run(await world.request(), listener=RunListener(page=page))
    assert (outcome.ending, stored(api)) == (RunEnd.SUCCEEDED, ["v1", "v2"])
    assert "v1 is not the target" in outcome.message


@pytest.mark.parametrize("answer", [500, 503, LOST])
async def test_temporarily_not_writable(world: World, api: Definitions, answer: int) -> None:
    """If the CRD cannot be written temporarily, the migration is interrupted, and the CRD trimmed
    when
    it resumes: after a success it would never be trimmed."""
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


async def test_without_permission_to_write(world: World, api: Definitions) -> None:
    """If the migrator may not write CRDs, the message says so, and the migration succeeds."""

    async def before(sent: ClientRequest) -> int:
        return 403 if sent.method == "PUT" and sent.target.startswith(PATH) else 0

    world.faults.before = before
    outcome = await world.run(await world.request())
    assert (outcome.ending, stored(api)) == (RunEnd.SUCCEEDED, ["v1", "v2"])
    assert "storedVersions is left as it is" in outcome.message
