"""A CRD whose finalizers are patched away while its objects exist, and that is created again."""

from __future__ import annotations

import asyncio

from tests.conformance.custom.servers import Custom, until
from tests.crds.building import (
    CRDS,
    Family,
    Maker,
    definition,
    integer,
    struct,
    version,
)
from tests.support.api_client import ApiClient

STATES = "/apis/migration.k8s.io/v1alpha1/storagestates"
SCHEMA = struct({"spec": struct({"size": integer()})})
SEEN_SECONDS = 2.0
"""Within this time a server has processed a CRD."""


def family(group: str, *versions: str) -> Family:
    """Stored in the first version."""
    listed = [version(name, SCHEMA, storage=name == versions[0]) for name in versions]
    return Family(definition=definition(group, "Gadget", listed))


async def test_its_objects_are_found_when_it_is_created_again(
    group: str, custom: Custom, api: ApiClient
) -> None:
    """A CRD without the stored version is not served, so that no object is written beside
    objects that no server can read, and the StorageState contains Unknown. With that version it
    is served, and the objects exist."""
    first = await custom.use(family(group, "v1"))
    held = Maker(group, "v1", "Gadget").good("a", {"size": 1})
    held["metadata"]["finalizers"] = ["example.org/hold"]
    await custom.create(first, held)
    assert (await api.delete(f"{CRDS}/{first.name}")).status == 200
    await api.patch(f"{CRDS}/{first.name}", {"metadata": {"finalizers": []}})
    await custom.wait_until_deleted(f"{CRDS}/{first.name}")

    second = family(group, "v2")
    assert (await api.post(CRDS, second.definition)).status == 201
    await asyncio.sleep(SEEN_SECONDS)
    new = Maker(group, "v2", "Gadget").good("b", {"size": 2})
    assert (await api.post(second.path(), new)).status == 404
    state = (await api.get(f"{STATES}/{first.name}")).json
    assert "Unknown" in state["status"]["persistedStorageVersionHashes"]

    def add_stored(made: dict[str, object]) -> None:
        made["spec"] = family(group, "v2", "v1").definition["spec"]

    await custom.redefine(second.name, add_stored)
    found = await until(lambda: api.get(second.path("a")), lambda reply: reply.status == 200)
    assert found.json["spec"] == {"size": 1}
