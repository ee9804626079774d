"""Whole migrations on real servers: complete, resumed, aborted, failed, paused, and concurrent."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.client import InProcessTransport
from restow.client.transport import ClientRequest
from restow.migration.migration_values import MigrationRecord
from restow.migration.migrator.agreement import BY_SERVER
from restow.migration.migrator.controller import find_migration_apis
from restow.migration.migrator.engine import Engine
from restow.migration.migrator.jobs import Job, RunEnd, RunListener
from restow.migration.names import (
    FAILED,
    PAUSED_ANNOTATION,
    POSITION_ANNOTATION,
    PROOF_ANNOTATION,
    REASON_AGREEMENT_LOST,
    REASON_FAILED,
    REASON_NOT_PROVEN,
    REASON_OBJECTS_FAILED,
    REASON_PAUSED,
    REASON_PROVEN,
    REASON_RUNNING,
    RUNNING,
    SUCCEEDED,
)
from restow.migration.records import annotations_of
from tests.unit.migration.migrator.definitions import (
    DEFINITIONS,
    Definitions,
    definition,
)
from tests.unit.migration.migrator.world import (
    QUICK,
    V1,
    V2,
    World,
    conditions,
    is_rewrite,
    nothing,
    run_until,
    until,
)

TARGET = storage_version_hash(GroupVersionKind.of(V2, "Widget"))
both_methods = pytest.mark.parametrize("is_patching", [False, True], ids=["rewrite", "patch"])


@both_methods
async def test_complete(world: World, is_patching: bool) -> None:
    """Every object is rewritten and verified, and the migration has the conditions and the
    record."""
    pages: list[int] = []
    listener = RunListener(page=lambda done, _progress: pages.append(done.rewritten))
    outcome = await world.run(await world.request(), listener=listener, is_patching=is_patching)
    assert (outcome.ending, outcome.reason) == (RunEnd.SUCCEEDED, REASON_PROVEN), outcome
    assert (outcome.objects, outcome.rewritten, outcome.failed) == (12, 12, 0)
    assert pages == [5, 5, 2, 0, 0, 0]
    assert await world.versions() == {V2: 12}
    request = await world.latest()
    assert conditions(request) == {
        RUNNING: ("False", REASON_PROVEN),
        SUCCEEDED: ("True", REASON_PROVEN),
    }
    marks = request["metadata"]["annotations"]
    proof = orjson.loads(marks[PROOF_ANNOTATION])
    assert (proof["target"], proof["by"], proof["objects"]) == (TARGET, "second pass", 12)
    assert proof["mark"].endswith("/epoch/1")
    assert POSITION_ANNOTATION not in marks
    assert not request["spec"].get("continueToken")
    again = await world.run(request)
    assert again.ending is RunEnd.NOTHING


@pytest.mark.parametrize(
    ("is_patching", "is_resumed", "pages"),
    [(False, False, [5, 5, 2]), (False, True, [5, 2, 5, 5, 2]), (True, False, [5, 5, 2] * 2)],
    ids=["rewrite", "resumed", "patch"],
)
async def test_one_clean_pass_is_enough_if_the_server_verifies_it(
    world: World, is_patching: bool, is_resumed: bool, pages: list[int]
) -> None:
    """Further migrations of one resource run one after the other; each takes one pass if there is
    nothing to rewrite (seed 900248 of the simulator at commit 04310b9). A pass that was resumed, or
    that no server verifies, is still followed by another."""
    assert (await world.run(await world.request("first"))).ending is RunEnd.SUCCEEDED
    request = await world.request("second")
    if is_resumed:
        await run_until(world, request, 6, is_done=False, is_patching=False)
        world.faults.before = nothing
        request = await world.latest("second")
        assert POSITION_ANNOTATION in request["metadata"]["annotations"]
    scanned: list[int] = []
    listener = RunListener(page=lambda done, _progress: scanned.append(done.scanned))
    outcome = await world.run(request, listener=listener, is_patching=is_patching)
    assert (outcome.ending, outcome.reason) == (RunEnd.SUCCEEDED, REASON_PROVEN), outcome
    assert (scanned, outcome.objects, outcome.rewritten) == (pages, 12, 0)
    marks = (await world.latest("second"))["metadata"]["annotations"]
    is_by_server = orjson.loads(marks[PROOF_ANNOTATION])["by"] == BY_SERVER
    assert is_by_server is (len(pages) == 3)


@pytest.mark.parametrize("group", ["storagemigration.k8s.io"])
async def test_the_other_api(world: World, group: str) -> None:
    """A migration of the in-tree API runs in the same way, with standard conditions."""
    [world.requests] = [
        each for each in await find_migration_apis(world.client) if each.group == group
    ]
    outcome = await world.run(await world.request())
    assert outcome.ending is RunEnd.SUCCEEDED
    request = await world.latest()
    assert conditions(request)[SUCCEEDED] == ("True", REASON_PROVEN)
    assert all(each["lastTransitionTime"] for each in request["status"]["conditions"])
    assert await world.versions() == {V2: 12}


@pytest.mark.parametrize("is_broken", [False, True])
async def test_stored_versions_are_trimmed_after_verification(
    world: World, is_broken: bool
) -> None:
    """The CRD's storedVersions are trimmed only after the migration is verified."""
    api = Definitions()
    path = f"{DEFINITIONS}/widgets.example.com"
    api.put(path, definition())
    world.faults.routes[DEFINITIONS] = InProcessTransport(api.handle)
    if is_broken:
        await world.plant_raw("broken", b"{")
    outcome = await world.run(await world.request())
    stored = api.objects[path]["status"]["storedVersions"]
    if is_broken:
        assert (outcome.ending, stored) == (RunEnd.FAILED, ["v1", "v2"])
    else:
        assert (outcome.ending, stored) == (RunEnd.SUCCEEDED, ["v2"])
        assert "storedVersions is v2" in outcome.message


async def test_stored_versions_of_another_target(world: World) -> None:
    """A CRD whose storage version is not the verified one is left unchanged."""
    api = Definitions()
    path = f"{DEFINITIONS}/widgets.example.com"
    api.put(path, definition(storage="v1"))
    world.faults.routes[DEFINITIONS] = InProcessTransport(api.handle)
    outcome = await world.run(await world.request())
    assert outcome.ending is RunEnd.SUCCEEDED
    assert api.objects[path]["status"]["storedVersions"] == ["v1", "v2"]


async def test_without_a_migration_object(world: World) -> None:
    """The command line migrates by patches if the server has no API of migrations."""
    outcome = await Engine(world.client, options=QUICK).run(Job(resource=world.widgets))
    assert (outcome.ending, outcome.rewritten) == (RunEnd.SUCCEEDED, 12)
    assert outcome.proof is not None
    assert await world.versions() == {V2: 12}


@both_methods
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
async def test_killed_at_every_write(world: World, is_patching: bool, is_done: bool) -> None:
    """If a run is killed before or after any write, of a page or of its position, another run
    resumes;
    no stale object remains, and the migration is not verified too early."""
    for point in range(1, 100, 3 if is_patching else 1):
        await world.plant(12)
        request = await world.request(f"m{point}")
        was_killed = await run_until(
            world, request, point, is_done=is_done, is_patching=is_patching
        )
        world.faults.before = nothing
        latest = await world.latest(f"m{point}")
        if SUCCEEDED in conditions(latest):
            assert await world.versions() == {V2: 12}
        outcome = await world.run(latest, is_patching=is_patching)
        assert outcome.ending in {RunEnd.SUCCEEDED, RunEnd.NOTHING}, outcome
        assert conditions(await world.latest(f"m{point}"))[SUCCEEDED] == ("True", REASON_PROVEN)
        assert await world.versions() == {V2: 12}
        if not was_killed:
            assert point > 12
            return
    raise AssertionError("it never came to its end")


async def test_saved_pages_are_not_repeated(world: World) -> None:
    """Another run starts after the last checkpointed page, in the same pass."""
    request = await world.request()
    await run_until(world, request, 6, is_done=False, is_patching=False)
    world.faults.before = nothing
    latest = await world.latest()
    saved = orjson.loads(latest["metadata"]["annotations"][POSITION_ANNOTATION])
    assert (saved["pass"], saved["scanned"], saved["rewritten"]) == (1, 5, 5)
    assert saved["token"] == latest["spec"]["continueToken"]
    scanned: list[int] = []
    failed_names: list[str] = []
    listener = RunListener(
        began=lambda: failed_names.append("began"),
        resumed=lambda: failed_names.append("resumed"),
        page=lambda done, _progress: scanned.append(done.scanned),
    )
    outcome = await world.run(latest, listener=listener)
    assert (failed_names, scanned) == (["resumed"], [5, 2, 5, 5, 2])
    assert (outcome.ending, outcome.rewritten) == (RunEnd.SUCCEEDED, 12)
    assert await world.versions() == {V2: 12}


async def test_a_deleted_migration_ends_the_run(world: World) -> None:
    """The page in flight is cancelled, and no further page is requested."""
    request = await world.request()
    requested: list[str] = []

    async def before(sent: ClientRequest) -> int:
        if is_rewrite(sent):
            requested.append(sent.target)
            if len(requested) == 2:
                await world.delete_request()
                await asyncio.Event().wait()  # a page that never completes
        return 0

    world.faults.before = before
    outcome = await world.run(request)
    assert outcome.ending is RunEnd.GONE
    assert len(requested) == 2
    assert await world.versions() == {V1: 7, V2: 5}


async def test_a_recreated_migration_is_another_one(world: World) -> None:
    """A migration of the same name does not inherit the state of the deleted one."""
    request = await world.request()
    await world.delete_request()
    await world.request()
    outcome = await world.run(request)
    assert outcome.ending is RunEnd.GONE
    assert "status" not in await world.latest() or not conditions(await world.latest())
    assert await world.versions() == {V1: 12}


@both_methods
async def test_a_lost_agreement_ends_the_run(world: World, is_patching: bool) -> None:
    """If a server of an older release joins, the page in flight is cancelled at once."""
    request = await world.request()
    begun = asyncio.Event()

    async def before(sent: ClientRequest) -> int:
        is_page = is_rewrite(sent) or (sent.method == "PATCH" and "/widgets/" in sent.target)
        if is_page and (await world.versions()).get(V2, 0) >= 5:
            begun.set()
            await asyncio.Event().wait()
        return 0

    world.faults.before = before
    task = asyncio.ensure_future(world.run(request, is_patching=is_patching))
    await begun.wait()
    await world.join("x+1")
    outcome = await task
    assert (outcome.ending, outcome.reason) == (RunEnd.LOST, REASON_AGREEMENT_LOST)
    assert conditions(await world.latest())[FAILED] == ("True", REASON_AGREEMENT_LOST)
    assert (await world.versions())[V2] < 12


async def test_nothing_begins_without_agreement(world: World) -> None:
    """While servers write different versions, a migration waits unchanged."""
    old = await world.join("x+1")
    outcome = await world.run(await world.request())
    assert outcome.ending is RunEnd.UNREADY
    assert conditions(await world.latest()) == {}
    assert await world.versions() == {V1: 12}
    await old.leave()
    assert (await world.run(await world.latest())).ending is RunEnd.SUCCEEDED


async def test_a_migration_for_another_target_is_aborted(world: World) -> None:
    """A migration of the trigger whose hash is not the common one rewrites nothing."""
    other = MigrationRecord(target="AAAAAAAAAAA=", state_uid="u", change="c")
    outcome = await world.run(await world.request(annotations=annotations_of(other)))
    assert outcome.ending is RunEnd.LOST
    assert await world.versions() == {V1: 12}
    moved = MigrationRecord(target=TARGET, state_uid="u", change="c", storage_version="uid/epoch/9")
    outcome = await world.run(await world.request("n", annotations=annotations_of(moved)))
    assert outcome.ending is RunEnd.LOST
    assert await world.versions() == {V1: 12}


async def test_an_undecodable_object_is_named(world: World) -> None:
    """All other objects are rewritten; the migration fails and names the object."""
    await world.plant_raw("broken", b"\x00k8s")
    failed_names: list[str] = []
    listener = RunListener(failed=lambda failure: failed_names.append(failure.name))
    outcome = await world.run(await world.request(), listener=listener)
    assert (outcome.ending, outcome.reason) == (RunEnd.FAILED, REASON_OBJECTS_FAILED)
    assert outcome.failed == 1
    assert "default/broken" in outcome.message
    assert failed_names == ["broken"]
    request = await world.latest()
    assert conditions(request) == {
        RUNNING: ("False", REASON_OBJECTS_FAILED),
        FAILED: ("True", REASON_OBJECTS_FAILED),
    }
    assert PROOF_ANNOTATION not in (request["metadata"].get("annotations") or {})
    assert (await world.versions())[V2] == 12


@pytest.mark.parametrize(
    ("code", "is_patching"),
    [(409, False), (429, False), (500, False), (503, False), (-1, False), (409, True), (500, True)],
)
async def test_storms(world: World, code: int, is_patching: bool) -> None:
    """Every second request is rejected, or its reply is lost: the migration still completes."""
    request = await world.request()
    count = 0

    async def before(sent: ClientRequest) -> int:
        nonlocal count
        if sent.method == "GET" or sent.is_stream:
            return 0
        count += 1
        return code if count % 2 else 0

    world.faults.before = before
    outcome = await world.run(request, is_patching=is_patching)
    assert outcome.ending is RunEnd.SUCCEEDED, outcome
    assert await world.versions() == {V2: 12}


async def test_an_expired_token(world: World) -> None:
    """The pass restarts at its first page."""
    request = await world.request()
    refused = 0

    async def before(sent: ClientRequest) -> int:
        nonlocal refused
        if is_rewrite(sent) and b'"continue"' in sent.body and not refused:
            refused += 1
            return 410
        return 0

    world.faults.before = before
    scanned: list[int] = []
    listener = RunListener(page=lambda done, _progress: scanned.append(done.scanned))
    outcome = await world.run(request, listener=listener)
    assert outcome.ending is RunEnd.SUCCEEDED
    assert scanned == [5, 5, 5, 2, 5, 5, 2]
    assert (outcome.rewritten, await world.versions()) == (12, {V2: 12})


async def test_a_position_of_another_target_is_not_used(world: World) -> None:
    """A token that was saved for another purpose would skip the first objects."""
    request = await world.request()
    text = orjson.dumps(
        {
            "uid": request["metadata"]["uid"],
            "resource": "widgets.example.com",
            "way": "rewrite",
            "target": "AAAAAAAAAAA=",
            "mark": "u/epoch/1",
            "pass": 2,
            "token": "e30",
        }
    ).decode()
    patch = {"metadata": {"annotations": {POSITION_ANNOTATION: text}}}
    request = await world.client.patch(world.requests.resource, "m", patch)
    begun: list[str] = []
    outcome = await world.run(request, listener=RunListener(began=lambda: begun.append("began")))
    assert (outcome.ending, begun) == (RunEnd.SUCCEEDED, ["began"])
    assert await world.versions() == {V2: 12}


async def test_paused_and_resumed(world: World) -> None:
    """The migration pauses between two pages, reports it in a condition, and resumes."""
    request = await world.request()
    calls: list[str] = []

    async def before(sent: ClientRequest) -> int:
        if is_rewrite(sent):
            calls.append("page")
            if len(calls) == 1:
                await pause(world, "true")
        return 0

    world.faults.before = before
    listener = RunListener(
        paused=lambda: calls.append("paused"), released=lambda: calls.append("released")
    )
    task = asyncio.ensure_future(world.run(request, listener=listener))

    async def is_held() -> bool:
        return conditions(await world.latest()).get(RUNNING) == ("True", REASON_PAUSED)

    await until(is_held)
    assert calls == ["page", "paused"]
    assert await world.versions() == {V1: 7, V2: 5}
    await pause(world, None)
    assert (await task).ending is RunEnd.SUCCEEDED
    assert calls[2] == "released"
    assert await world.versions() == {V2: 12}


async def pause(world: World, value: str | None) -> None:
    patch = {"metadata": {"annotations": {PAUSED_ANNOTATION: value}}}
    await world.client.patch(world.requests.resource, "m", patch)


@both_methods
async def test_two_at_once(world: World, is_patching: bool) -> None:
    """Two engines on one migration cause no errors."""
    request = await world.request()
    outcomes = await asyncio.gather(
        world.run(request, is_patching=is_patching), world.run(request, is_patching=is_patching)
    )
    assert {each.ending for each in outcomes} <= {RunEnd.SUCCEEDED, RunEnd.NOTHING}
    assert conditions(await world.latest())[SUCCEEDED] == ("True", REASON_PROVEN)
    assert await world.versions() == {V2: 12}


async def test_a_run_that_ends_after_the_verification_is_recorded(world: World) -> None:
    """If a run is killed between the verification and the success, the next run verifies once
    more."""
    request = await world.request()
    dies = asyncio.Event()

    async def before(sent: ClientRequest) -> int:
        if b'"Succeeded"' in sent.body:
            dies.set()
            await asyncio.Event().wait()
        return 0

    world.faults.before = before
    task = asyncio.ensure_future(world.run(request))
    await dies.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    latest = await world.latest()
    assert PROOF_ANNOTATION in latest["metadata"]["annotations"]
    assert SUCCEEDED not in conditions(latest)
    world.faults.before = nothing
    pages: list[int] = []
    listener = RunListener(page=lambda done, _progress: pages.append(done.scanned))
    assert (await world.run(latest, listener=listener)).ending is RunEnd.SUCCEEDED
    assert pages == [5, 5, 2]


async def test_an_earlier_verification_is_removed(world: World) -> None:
    """A verification of another agreement is ignored and removed."""
    request = await world.request(annotations={PROOF_ANNOTATION: '{"target": "x", "mark": "y"}'})
    marks: list[Any] = []

    async def before(sent: ClientRequest) -> int:
        if is_rewrite(sent) and not marks:
            marks.append("asked")
            marks.append((await world.latest())["metadata"]["annotations"])
        return 0

    world.faults.before = before
    assert (await world.run(request)).ending is RunEnd.SUCCEEDED
    assert PROOF_ANNOTATION not in marks[1]
    assert await world.versions() == {V2: 12}


async def test_a_success_of_another_migrator_is_verified(world: World) -> None:
    """A migration of the trigger that another migrator set to Succeeded is verified."""
    record = MigrationRecord(target=TARGET, state_uid="u", change="c")
    request = await world.request(annotations=annotations_of(record))
    status = {"conditions": [{"type": SUCCEEDED, "status": "True", "reason": "Other"}]}
    request = await world.client.patch(
        world.requests.resource, "m", {"status": status}, subresource="status"
    )
    assert (await world.run(request)).ending is RunEnd.SUCCEEDED
    latest = await world.latest()
    assert PROOF_ANNOTATION in latest["metadata"]["annotations"]
    assert conditions(latest) == {SUCCEEDED: ("True", "Other")}
    assert await world.versions() == {V2: 12}


async def test_permanent_errors(world: World) -> None:
    """A permanent error fails the migration; a temporary one only interrupts it."""
    request = await world.request()
    code = 503

    async def before(sent: ClientRequest) -> int:
        return code if is_rewrite(sent) else 0

    world.faults.before = before
    assert (await world.run(request)).ending is RunEnd.INTERRUPTED
    assert conditions(await world.latest()) == {RUNNING: ("True", REASON_RUNNING)}
    code = 403
    assert (await world.run(await world.latest())).ending is RunEnd.FAILED
    assert conditions(await world.latest())[FAILED] == ("True", REASON_FAILED)
    assert await world.versions() == {V1: 12}


async def test_never_unchanged(world: World) -> None:
    """If every pass rewrites an object, the migration is not verified, and fails."""
    request = await world.request()
    pages = 0

    async def before(sent: ClientRequest) -> int:
        nonlocal pages
        if is_rewrite(sent):
            pages += 1
            await world.plant(1)
        return 0

    world.faults.before = before
    outcome = await world.run(request)
    assert (outcome.ending, outcome.reason) == (RunEnd.FAILED, REASON_NOT_PROVEN)
    assert pages == 3 * (1 + QUICK.proof_passes_max)


async def test_objects_added_during_the_first_pass(world: World) -> None:
    """A stale object added behind the position of the first pass is found by the second pass."""
    request = await world.request()
    passes: list[int] = []

    async def before(sent: ClientRequest) -> int:
        if is_rewrite(sent):
            passes.append(1)
            if len(passes) == 4:
                await world.plant(1, prefix="a")
        return 0

    world.faults.before = before
    outcome = await world.run(request)
    assert outcome.ending is RunEnd.SUCCEEDED
    assert (outcome.objects, outcome.rewritten) == (13, 13)
    assert await world.versions() == {V2: 13}


async def test_the_agreement_is_read_again_at_the_end(world: World) -> None:
    """A server of an older release that joins unobserved after the last patch is found by a fresh
    read."""
    request = await world.request()
    patches = 0

    async def before(sent: ClientRequest) -> int:
        nonlocal patches
        if sent.is_stream and "storageversions?" in sent.target:
            await asyncio.Event().wait()  # a watch without events
        if sent.method == "PATCH" and "/widgets/" in sent.target:
            patches += 1
            if patches == 24:
                await world.join("x+1")
        return 0

    world.faults.before = before
    outcome = await world.run(request, is_patching=True)
    assert outcome.ending is RunEnd.LOST
    assert PROOF_ANNOTATION not in (await world.latest())["metadata"]["annotations"]


async def test_failures_of_an_interrupted_run_are_named(world: World) -> None:
    """Only the number of failures is checkpointed: the resumed run finds their names again."""
    await world.plant_raw("a-broken", b"{")
    await run_until(world, await world.request(), 6, is_done=False, is_patching=False)
    world.faults.before = nothing
    outcome = await world.run(await world.latest())
    assert (outcome.ending, outcome.failed) == (RunEnd.FAILED, 1)
    assert "default/a-broken" in outcome.message


async def test_changes_of_others_to_the_status_are_kept(world: World) -> None:
    """A condition added by another client is kept, and a failure is not overwritten."""
    request = await world.request()
    foreign = [
        {"type": "Other", "status": "True", "reason": "Foreign"},
        {"type": FAILED, "status": "True", "reason": "Foreign"},
    ]
    pages = 0

    async def before(sent: ClientRequest) -> int:
        nonlocal pages
        pages += is_rewrite(sent)
        if sent.target.endswith("/m/status") and foreign and pages == 3 - len(foreign):
            added = foreign.pop(0)
            await add_condition(world, added)
        return 0

    world.faults.before = before
    await world.run(request)
    found = conditions(await world.latest())
    assert found["Other"] == ("True", "Foreign")
    assert found[FAILED] == ("True", "Foreign")
    assert SUCCEEDED not in found


async def add_condition(world: World, added: dict[str, str]) -> None:
    status = (await world.latest()).get("status") or {}
    patch = {"status": {"conditions": [*(status.get("conditions") or []), added]}}
    await world.client.patch(world.requests.resource, "m", patch, subresource="status")
