"""A cluster with twelve objects in the old version."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.unit.migration.migrator.world import World


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = await World.begin(12)
    yield made
    await made.end()
