"""Generated requests: workloads and related kinds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from schemathesis import GenerationMode

from tests.fuzz.generated import MODES, WORKLOADS, World, opened, try_groups


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with opened() as made:
        yield made


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_generated_requests(world: World, mode: GenerationMode) -> None:
    """No operation of these groups replies with a 5xx or an undocumented code."""
    groups = [group for group in world.groups() if group.startswith(WORKLOADS)]
    try_groups(world, groups, mode)
