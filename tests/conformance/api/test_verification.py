"""Verification of a migration: servers record it, and clients cannot record it instead."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.names import (
    EPOCH_ANNOTATION,
    VERIFIED_ANNOTATION,
    VERIFIED_BY_MIGRATOR,
    VERIFIER_ANNOTATION,
)
from restow.storage.identity import accept
from restow.storage.interface import Delete, Key, Transaction
from tests.conformance.api.test_rewrite import (
    MIGRATIONS,
    ROOT,
    V1,
    V2,
    JoinCluster,
    Member,
    both_drivers,
    fill,
    good,
    join,
    migrate,
    versions,
    whole,
)

__all__ = ["join"]

STATES = "/apis/migration.k8s.io/v1alpha1/storagestates"
STATE = f"{STATES}/widgets.example.com"
HASH_1, HASH_2 = (
    storage_version_hash(GroupVersionKind("example.com", version, "Widget"))
    for version in ("v1", "v2")
)
REFUSED = "hashes and keys are removed by the API servers alone"


async def persisted(member: Member) -> list[str]:
    state = good(await member.api.get(STATE))
    return list(state["status"]["persistedStorageVersionHashes"])


async def marks(member: Member) -> dict[str, str]:
    return dict(good(await member.api.get(STATE))["metadata"]["annotations"])


async def narrow(member: Member, **status: Any) -> Any:
    """As a client would: a merge patch of the status."""
    status = {"persistedStorageVersionHashes": [HASH_2], **status}
    return await member.api.patch(f"{STATE}/status", {"status": status})


@both_drivers
async def test_the_server_records_a_verified_pass(join: JoinCluster) -> None:
    """A pass that rewrites objects verifies nothing; the next one does, on whichever server its
    last page runs, and the record names its subject."""
    one, two = await join(), await join()
    await fill(one, 12)
    path = await migrate(one.api)
    uid = good(await one.api.get(f"{MIGRATIONS}/m"))["metadata"]["uid"]
    first = await whole(one.api, path, limit=5)
    assert [page["verified"] for page in first] == [False, False, False]
    assert await persisted(one) == ["Unknown", HASH_2]
    page = good(await one.api.post(path, {"limit": 5}))
    pages = await whole(two.api, path, **{"limit": 5, "continue": page["continue"]})
    assert [each["verified"] for each in (page, *pages)] == [False, False, True]
    assert await persisted(two) == [HASH_2]
    record = orjson.loads((await marks(two))[VERIFIED_ANNOTATION])
    assert record.pop("revision") >= 1
    assert record == {
        "version": V2,
        "hash": HASH_2,
        "key": "identity",
        "epoch": 1,
        "migration": uid,
    }
    assert await versions(one) == {V2: 12}


async def test_a_pass_that_rewrote_anything_is_not_clean(join: JoinCluster) -> None:
    """Even if that was on the first page, and all other objects were in the target version."""
    member = await join()
    await fill(member, 3)
    path = await migrate(member.api)
    token = good(await member.api.post(path, {"limit": 3}))["continue"]
    assert not token
    await fill(member, 2)
    pages = await whole(member.api, path, limit=1)
    assert [page["rewritten"] for page in pages] == [1, 1, 0]
    assert not any(page["verified"] for page in pages)
    assert await persisted(member) == ["Unknown", HASH_2]
    assert (await whole(member.api, path))[-1]["verified"] is True


async def test_the_encoding_version_must_not_change_during_a_pass(join: JoinCluster) -> None:
    """Pages from before another server wrote in another version verify nothing."""
    member = await join()
    await fill(member, 4, V2)
    path = await migrate(member.api)
    page = good(await member.api.post(path, {"limit": 2}))
    old = await join("x+1")
    await old.leave()
    reply = await member.api.post(path, {"continue": page["continue"]})
    assert reply.status == 409
    assert set(await persisted(member)) == {"Unknown", HASH_1, HASH_2}


@both_drivers
async def test_a_pass_over_two_states_of_a_store_is_not_clean(join: JoinCluster) -> None:
    """Between two pages the store was restored from a backup, and an operator accepted it: the
    first page's result may no longer hold, although the servers agree on the same version in the
    same epoch."""
    member = await join()
    await fill(member, 4, V2)
    path = await migrate(member.api)
    token = good(await member.api.post(path, {"limit": 2}))["continue"]
    await fill(member, 1, V1)
    await accept(member.server.storage, Runtime.system().ids)
    pages = await whole(member.api, path, **{"continue": token})
    assert not any(page["verified"] for page in pages)
    assert "Unknown" in await persisted(member)
    assert (await whole(member.api, path))[-1]["verified"] is False
    assert (await whole(member.api, path))[-1]["verified"] is True


async def test_a_forged_success_is_no_evidence(join: JoinCluster) -> None:
    """With Succeeded, a proof and every annotation of the trigger on the migration, a client
    still cannot narrow the state, by any request."""
    old = await join("x+1")
    for name in ("a", "b", "c"):
        path = "/apis/example.com/v1/namespaces/default/widgets"
        good(await old.api.post(path, {"metadata": {"name": name}}), 201)
    await old.leave()
    member = await join()
    await migrate(member.api, annotations={"migrator.restow.dev/proof": "done by hand"})
    done = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    good(await member.api.patch(f"{MIGRATIONS}/m/status", done))
    before = await persisted(member)
    assert set(before) >= {HASH_1, HASH_2}
    for reply in (
        await narrow(member),
        await narrow(member, persistedStorageVersionHashes=[]),
        await narrow(member, persistedStorageVersionHashes=None),
        await member.api.put(
            f"{STATE}/status",
            good(await member.api.get(STATE))
            | {"status": {"persistedStorageVersionHashes": [HASH_2]}},
        ),
    ):
        assert (reply.status, reply.reason) == (422, "Invalid")
        assert REFUSED in reply.message
    assert await persisted(member) == before
    assert await versions(member) == {V1: 3}


async def test_owned_annotations_cannot_be_forged(join: JoinCluster) -> None:
    """A client can claim neither that it may verify, nor that servers have verified."""
    member = await join()
    record = orjson.dumps({"epoch": 1, "hash": HASH_2}).decode()
    for name, value in (
        (VERIFIER_ANNOTATION, VERIFIED_BY_MIGRATOR),
        (VERIFIED_ANNOTATION, record),
        (EPOCH_ANNOTATION, "7"),
        (VERIFIER_ANNOTATION, None),
    ):
        reply = await member.api.patch(STATE, {"metadata": {"annotations": {name: value}}})
        assert (reply.status, reply.reason) == (403, "Forbidden"), name
    spec = {"resource": {"group": "example.com", "resource": "widgets"}}
    good(await member.api.delete(STATE))
    forged = {VERIFIER_ANNOTATION: VERIFIED_BY_MIGRATOR}
    metadata = {"name": "widgets.example.com", "annotations": forged}
    reply = await member.api.post(STATES, {"metadata": metadata, "spec": spec})
    assert (reply.status, reply.reason) == (403, "Forbidden")


async def test_a_state_that_a_client_has_created(join: JoinCluster) -> None:
    """It has no verifier. Servers have reported the resource, so only they narrow it."""
    member = await join()
    await fill(member, 2)
    good(await member.api.delete(STATE))
    spec = {"resource": {"group": "example.com", "resource": "widgets"}}
    new = {"metadata": {"name": "widgets.example.com"}, "spec": spec}
    good(await member.api.post(STATES, new), 201)
    reply = await narrow(member)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert REFUSED in reply.message
    good(await narrow(member, persistedStorageVersionHashes=["Unknown"]))
    assert (await narrow(member)).status == 422
    path = await migrate(member.api)
    await whole(member.api, path)
    assert (await whole(member.api, path))[-1]["verified"] is True
    assert await persisted(member) == [HASH_2]


async def test_clients_may_widen_the_state(join: JoinCluster) -> None:
    """A client may add a hash, or replace all by "Unknown"; only servers remove it again."""
    member = await join()
    path = await migrate(member.api)
    assert (await whole(member.api, path))[-1]["verified"] is True
    good(await narrow(member, persistedStorageVersionHashes=[HASH_2, "other"]))
    assert (await narrow(member)).status == 422
    good(await narrow(member, persistedStorageVersionHashes=["Unknown"]))
    assert (await narrow(member)).status == 422
    good(await narrow(member, persistedStorageVersionHashes=["Unknown", HASH_2]))
    keys = {"persistedStorageVersionHashes": ["Unknown"], "persistedEncryptionKeys": ["k"]}
    assert (await narrow(member, **keys)).status == 422  # plain is no longer one of the keys
    assert (await whole(member.api, path))[-1]["verified"] is True
    assert await persisted(member) == [HASH_2]


async def test_a_resource_that_no_server_has_ever_reported(join: JoinCluster) -> None:
    """As on Kubernetes, the migrator's own second pass is the evidence: a client narrows the
    state."""
    member = await join()
    spec = {"resource": {"group": "elsewhere.io", "resource": "things"}}
    new = {"metadata": {"name": "things.elsewhere.io"}, "spec": spec}
    good(await member.api.post(STATES, new), 201)
    path = f"{STATES}/things.elsewhere.io/status"
    for hashes in (["Unknown", "h"], ["h"]):
        status = {"status": {"persistedStorageVersionHashes": hashes}}
        found = good(await member.api.patch(path, status))
        assert found["status"]["persistedStorageVersionHashes"] == hashes


async def test_objects_that_fail_make_the_state_unknown(join: JoinCluster) -> None:
    """An unreadable value was stored past the servers: an earlier verification no longer holds."""
    member = await join()
    await fill(member, 2, V2)
    path = await migrate(member.api)
    assert (await whole(member.api, path))[-1]["verified"] is True
    await member.server.put_raw(f"{ROOT}default/bad", b'{"apiVersion":"example.com/v9"}')
    for _ in range(2):
        [page] = await whole(member.api, path)
        assert (page["failedCount"], page["verified"]) == (1, False)
        assert await persisted(member) == ["Unknown", HASH_2]
    gone = Transaction(writes=(Delete(Key(f"{ROOT}default/bad")),))
    await member.server.storage.commit(gone)
    assert (await whole(member.api, path))[-1]["verified"] is True
    assert await persisted(member) == [HASH_2]


@pytest.mark.parametrize("mode", ["strict", "loose"])
async def test_votes(join: JoinCluster, mode: str) -> None:
    """With the strict guarantee writes are fenced, and a pass verifies. With the loose one a
    server may still write in the old version: nothing is recorded, and a client may narrow after
    a census."""
    member = await join(mode=mode)
    path = await migrate(member.api)
    is_strict = mode == "strict"
    assert (await whole(member.api, path))[-1]["verified"] is is_strict
    assert await persisted(member) == ([HASH_2] if is_strict else ["Unknown", HASH_2])
    assert (await narrow(member)).status == 200
