"""Each keyword, format and kind of validation rule that a schema may have, with test values."""

from __future__ import annotations

from typing import Final

import orjson
import pytest

from tests.conformance.custom.servers import Custom, causes
from tests.crds import rule_values, values
from tests.crds.building import (
    Family,
    Maker,
    definition,
    struct,
    version,
)
from tests.support.api_client import ApiClient

ROWS: Final = values.FIELDS | rule_values.RULES
FIELDS_MAX: Final = 14
"""In one CRD: all rules share its cost budget."""
NAMES: Final = list(ROWS)
PARTS: Final = [NAMES[at : at + FIELDS_MAX] for at in range(0, len(NAMES), FIELDS_MAX)]


@pytest.mark.parametrize("names", PARTS, ids=lambda names: f"{names[0]}...{names[-1]}")
async def test_values(names: list[str], group: str, custom: Custom, api: ApiClient) -> None:
    """Valid values are accepted; invalid ones are refused with field, reason and message."""
    fields = {name.replace("-", "_"): ROWS[name][0] for name in names}
    schema = struct({"spec": struct(fields)})
    family = Family(definition=definition(group, "Thing", [version("v1", schema)]))
    await custom.use(family)
    for name in names:
        field = name.replace("-", "_")
        for verdict in ROWS[name][1]:
            obj = Maker(group, "v1", "Thing").good("x", {field: verdict.value})
            reply = await api.post(f"{family.path()}?dryRun=All", orjson.dumps(obj))
            said = (name, verdict, reply.body)
            if not verdict.reason:
                assert reply.status == 201, said
                continue
            assert (reply.status, reply.reason) == (422, "Invalid"), said
            wanted = verdict.field.replace("spec.a", f"spec.{field}")
            assert any(
                (place, reason) == (wanted, verdict.reason)
                and verdict.message in message.replace(f"spec.{field}", "spec.a")
                for place, reason, message in causes(reply)
            ), said
