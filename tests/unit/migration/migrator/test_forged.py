"""Forged annotations, which any writer of migrations can set, never make a migration succeed."""

from __future__ import annotations

import orjson
import pytest

from restow.migration.migrator.jobs import RunEnd
from restow.migration.names import POSITION_ANNOTATION, PROOF_ANNOTATION
from tests.unit.migration.migrator.world import V2, World, nothing, run_until


async def test_a_forged_proof(world: World) -> None:
    """A migration with the copied verification of another one runs like any other."""
    assert (await world.run(await world.request("honest"))).ending is RunEnd.SUCCEEDED
    proof = (await world.latest("honest"))["metadata"]["annotations"][PROOF_ANNOTATION]
    await world.plant(12)
    outcome = await world.run(await world.request(annotations={PROOF_ANNOTATION: proof}))
    assert outcome.ending is RunEnd.SUCCEEDED, outcome
    assert await world.versions() == {V2: 12}


@pytest.mark.parametrize("is_patching", [False, True], ids=["rewrite", "patch"])
async def test_a_forged_position(world: World, is_patching: bool) -> None:
    """A forged position inside the second pass does not skip unverified objects."""
    request = await world.request()
    point = 18 if is_patching else 9  # the last object, or page, of the first pass
    await run_until(world, request, point, is_done=True, is_patching=is_patching)
    world.faults.before = nothing
    saved = orjson.loads((await world.latest())["metadata"]["annotations"][POSITION_ANNOTATION])
    assert saved["token"]
    saved.update({"pass": 2, "rewritten": 0})
    marks = {POSITION_ANNOTATION: orjson.dumps(saved).decode()}
    forged = await world.client.patch(
        world.requests.resource, "m", {"metadata": {"annotations": marks}}
    )
    await world.plant(10)  # all but the last page
    outcome = await world.run(forged, is_patching=is_patching)
    assert outcome.ending is RunEnd.SUCCEEDED, outcome
    assert await world.versions() == {V2: 12}
