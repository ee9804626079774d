"""Objects that must exist before the bad values are sent, and the requests of each case."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.conformance.api.bad_values.access import ACCESS
from tests.conformance.api.bad_values.control import CONTROL
from tests.conformance.api.bad_values.core import CORE
from tests.conformance.api.bad_values.custom import CUSTOM
from tests.conformance.api.bad_values.goods import (
    API_SERVICE,
    CONFIG_MAP,
    DEFINITION,
    GOODS,
    NAMESPACE,
    WIDGET,
    WIDGETS,
)
from tests.conformance.api.bad_values.matrix import Bad, Good, Raw, Request, Whole
from tests.conformance.api.bad_values.metadata import METADATA
from tests.conformance.api.bad_values.syntax import RAW, WHOLE
from tests.conformance.api.bad_values.workloads import WORKLOADS
from tests.support.api_client import ApiClient

_ATTEMPTS_MAX: Final = 500

CASES: Final[tuple[Bad | Raw | Whole, ...]] = (
    *METADATA,
    *CORE,
    *WORKLOADS,
    *ACCESS,
    *CONTROL,
    *CUSTOM,
    *RAW,
    *WHOLE,
)


def good_of(case: Bad | Raw | Whole) -> Good:
    return case.good if isinstance(case, Bad) else CONFIG_MAP


async def prepare(client: ApiClient) -> None:
    """Stores a valid object of each kind."""
    made = await client.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    assert made.status == 201, made.body
    made = await client.post(DEFINITION.collection, WIDGETS)
    assert made.status == 201, made.body
    for _ in range(_ATTEMPTS_MAX):
        if (await client.get(WIDGET.collection)).status == 200:
            break
        await asyncio.sleep(0.02)
    else:
        raise AssertionError("the widgets are not served")
    for good in GOODS:
        made = await client.post(good.collection, good.kept())
        assert made.status == 201, (good.kind, made.body)
    for good in (DEFINITION, API_SERVICE):
        await _settled(client, good)


async def _settled(client: ApiClient, good: Good) -> None:
    """Waits until the server's controllers have written the status, and no longer change the
    object."""
    for _ in range(_ATTEMPTS_MAX):
        status = (await client.get(good.target)).json.get("status", {})
        found = {each["type"]: each["status"] for each in status.get("conditions", ())}
        if found.get("Established") == "True" or "Available" in found:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"nobody has looked at the {good.kind}")


async def requests_of(client: ApiClient, case: Bad | Raw | Whole) -> list[Request]:
    """Returns the requests of a case, made from the stored object as it is now."""
    if not isinstance(case, Bad):
        return list(case.requests(CONFIG_MAP))
    current: dict[str, Any] = (await client.get(case.good.target)).json
    current["metadata"].pop("managedFields", None)
    return list(case.requests(current))
