"""Server-side apply under load: many at once on one object, and objects with very many fields."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.conformance.api.servers import CONFIG_MAPS, TOKEN, RunningServer, config_map
from tests.support.api_client import APPLY_PATCH, MERGE_PATCH, ApiClient

CONFIG_MAP = f"{CONFIG_MAPS}/a"
WRITERS = 20
WRITES = 3


async def test_concurrent_applies_to_one_object(server: RunningServer) -> None:
    """All concurrent applies succeed; none is refused because of another one."""
    api = server.client
    await api.post(CONFIG_MAPS, config_map("a"))

    async def write(number: int) -> list[int]:
        path, codes = f"{CONFIG_MAP}?fieldManager=m{number}", []
        own = ApiClient(server.port, token=TOKEN)
        for each in range(WRITES):
            applied = config_map("a", {f"k{number}": str(each)})
            codes.append((await own.patch(path, applied, APPLY_PATCH)).status)
            patch = {"data": {f"p{number}": str(each)}}
            codes.append((await own.patch(CONFIG_MAP, patch, MERGE_PATCH)).status)
        await own.close()
        return codes

    done = await asyncio.gather(*map(write, range(WRITERS)))
    assert {code for codes in done for code in codes} == {200}
    found = (await api.get(CONFIG_MAP)).json
    last = str(WRITES - 1)
    names = [f"{letter}{number}" for letter in "kp" for number in range(WRITERS)]
    assert found["data"] == dict.fromkeys(names, last)
    mine = {
        entry["manager"]: entry["fieldsV1"]
        for entry in found["metadata"]["managedFields"]
        if entry["operation"] == "Apply"
    }
    wanted: dict[str, Any] = {f"m{each}": {"f:data": {f"f:k{each}": {}}} for each in range(WRITERS)}
    assert mine == wanted


async def test_very_many_fields(api: ApiClient) -> None:
    """An apply that runs in a thread, as it takes long, has the same result as one that does
    not."""
    data = {f"k{number:04}": "v" * 100 for number in range(2_000)}
    made = await api.patch(f"{CONFIG_MAP}?fieldManager=app", config_map("a", data), APPLY_PATCH)
    assert (made.status, made.json["data"]) == (201, data)
    same = await api.patch(f"{CONFIG_MAP}?fieldManager=app", config_map("a", data), APPLY_PATCH)
    assert (same.status, same.json) == (200, made.json)
    small: Any = config_map("a", {"k0000": "other"})
    refused = await api.patch(f"{CONFIG_MAP}?fieldManager=other", small, APPLY_PATCH)
    assert (refused.status, refused.message) == (
        409,
        'Apply failed with 1 conflict: conflict with "app": .data.k0000',
    )
    less = dict(list(data.items())[:5])
    done = await api.patch(f"{CONFIG_MAP}?fieldManager=app", config_map("a", less), APPLY_PATCH)
    assert (done.status, done.json["data"]) == (200, less)


async def test_no_entries_and_no_version(api: ApiClient) -> None:
    """An empty managedFields list removes all entries; a resourceVersion of zero is ignored."""
    path = f"{CONFIG_MAP}?fieldManager=app"
    await api.patch(path, config_map("a", {"a": "1"}), APPLY_PATCH)
    gone = await api.patch(CONFIG_MAP, {"metadata": {"managedFields": []}}, MERGE_PATCH)
    assert (gone.status, gone.json["metadata"].get("managedFields")) == (200, None)
    put = await api.put(CONFIG_MAP, config_map("a", {"a": "2"}, resourceVersion="0"))
    assert (put.status, put.json["data"]) == (200, {"a": "2"})
    applied = await api.patch(path, config_map("a", {"b": "1"}, resourceVersion="0"), APPLY_PATCH)
    assert (applied.status, applied.json["data"]) == (200, {"a": "2", "b": "1"})
