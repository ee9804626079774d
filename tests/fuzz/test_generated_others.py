"""Generated requests: all groups that are in no other file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from schemathesis import GenerationMode

from tests.fuzz.generated import CORE, MODES, WORKLOADS, World, opened, try_groups


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with opened() as made:
        yield made


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_generated_requests(world: World, mode: GenerationMode) -> None:
    """No operation of these groups replies with a 5xx or an undocumented code."""
    groups = [
        group for group in world.groups() if group not in CORE and not group.startswith(WORKLOADS)
    ]
    try_groups(world, groups, mode)
