"""`status.storedVersions` of a CRD: trimmed after verification, if the CRD has not changed."""

from __future__ import annotations

from typing import Any

import pytest

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource
from restow.client import ApiClient, ApiResource, InProcessTransport
from restow.migration.migrator.stored_versions import CrdSnapshot, note_definition, trim
from tests.unit.migration.migrator.definitions import DEFINITIONS, Definitions, definition

PATH = f"{DEFINITIONS}/things.example.com"
THINGS = ApiResource(
    group="example.com", version="v2", name="things", kind="Thing", is_namespaced=True
)


@pytest.fixture
def api() -> Definitions:
    made = Definitions()
    made.put(PATH, definition(acceptedNames={"kind": "Thing"}))
    return made


@pytest.fixture
def client(api: Definitions) -> ApiClient:
    return ApiClient(InProcessTransport(api.handle), runtime=Runtime.system())


async def noted(client: ApiClient) -> CrdSnapshot:
    found = await note_definition(client, THINGS)
    assert found is not None
    return found


async def test_trimmed(api: Definitions, client: ApiClient) -> None:
    """Only the storage version remains; the rest of the status is kept; a second trim is a
    no-op."""
    found = await noted(client)
    assert (found.storage_version, found.generation) == ("v2", 3)
    assert await trim(client, found) == ""
    assert api.objects[PATH]["status"] == {
        "storedVersions": ["v2"],
        "acceptedNames": {"kind": "Thing"},
    }
    version = api.version
    assert await trim(client, found) == ""
    assert api.version == version


@pytest.mark.parametrize(
    "changed",
    [
        definition(generation=4),
        {**definition(), "metadata": {"generation": 3, "uid": "other"}},
        definition(storage="v1"),
    ],
)
async def test_not_after_a_change(
    api: Definitions, client: ApiClient, changed: dict[str, Any]
) -> None:
    """A CRD that has changed since the start is left unchanged."""
    found = await noted(client)
    api.put(PATH, changed)
    assert "has changed" in await trim(client, found)
    assert api.objects[PATH]["status"]["storedVersions"] == ["v1", "v2"]
    api.remove(PATH)
    assert "was deleted" in await trim(client, found)


async def test_conflicts(api: Definitions, client: ApiClient) -> None:
    """An update that conflicts is repeated on the current CRD, a bounded number of times."""
    found = await noted(client)
    conflict = status.conflict(GroupResource("", ""), "things")

    original = api._answer
    left = 2

    def answer(sent: Any) -> Any:
        nonlocal left
        if sent.method == "PUT" and left:
            left -= 1
            raise conflict
        return original(sent)

    api._answer = answer  # type: ignore[method-assign]
    assert await trim(client, found) == ""
    assert api.objects[PATH]["status"]["storedVersions"] == ["v2"]
    api.put(PATH, definition())
    left = 99
    assert "was changed during 5 updates" in await trim(client, found)


async def test_no_definition(api: Definitions, client: ApiClient) -> None:
    """Built-in resources, and CRDs without one storage version, have nothing to trim."""
    core = ApiResource(group="", version="v1", name="pods", kind="Pod", is_namespaced=True)
    assert await note_definition(client, core) is None
    api.put(PATH, definition(storage="v9"))
    assert await note_definition(client, THINGS) is None
    api.remove(PATH)
    assert await note_definition(client, THINGS) is None
