"""Conversion of custom resources by webhooks: the cache by revision, and batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from restow.aio import SimulatedClock
from restow.apimachinery import status
from restow.registry.custom.conversion import (
    ENTRY_BYTES,
    KEPT_SECONDS,
    OBJECTS_AT_ONCE,
    ConversionNeeded,
    Conversions,
)
from restow.registry.declared import declare_kind
from restow.registry.resource import Object, Resource
from restow.registry.watch_cache import Entry

V1, V2 = "example.com/v1", "example.com/v2"
CLOCK = SimulatedClock()


class Remote:
    """Converts, and counts its calls."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.error: status.StatusError | None = None

    async def convert(self, objects: Sequence[Object], target: str) -> list[Object]:
        self.asked.append(len(objects))
        if self.error is not None:
            raise self.error
        return [{**obj, "apiVersion": target, "by": "remote"} for obj in objects]


def gears(remote: Remote) -> Resource:
    declared = declare_kind(
        group="example.com", kind="Gear", plural="gears", versions={"v1": None, "v2": None}
    )
    return replace(declared, remote=remote)


def entry(revision: int, *, version: str = V1, size: int = 0) -> Entry:
    body: dict[str, Any] = {
        "kind": "Gear",
        "apiVersion": version,
        "metadata": {"resourceVersion": str(revision), "name": f"g-{revision}"},
        "data": "x" * size,
    }
    return revision, version, orjson.dumps(body)


async def test_in_version() -> None:
    """Objects are returned in order; those in the target version are not converted."""
    remote, conversions = Remote(), Conversions(CLOCK)
    resource = gears(remote)
    entries = [entry(1), entry(2, version=V2), entry(3)]
    found = await conversions.in_version(resource, entries, V2)
    assert [each[:2] for each in found] == [(1, V2), (2, V2), (3, V2)]
    assert found[1] is entries[1]
    assert found[0][2].startswith(
        b'{"kind":"Gear","apiVersion":"example.com/v2","metadata":{"resourceVersion":"1",'
    )
    assert orjson.loads(found[2][2])["by"] == "remote"
    assert remote.asked == [2]
    assert await conversions.in_version(resource, entries, V2) == found
    assert remote.asked == [2]


async def test_large_lists_are_split() -> None:
    """Each webhook call has a bounded number of objects."""
    remote, conversions = Remote(), Conversions(CLOCK)
    many = [entry(revision) for revision in range(1, OBJECTS_AT_ONCE + 11)]
    found = await conversions.in_version(gears(remote), many, V2)
    assert [each[0] for each in found] == [each[0] for each in many]
    assert remote.asked == [OBJECTS_AT_ONCE, 10]


async def test_needed_and_settled() -> None:
    """A synchronous reader gets ConversionNeeded; after settle(), the object is in the cache."""
    remote, conversions = Remote(), Conversions(CLOCK)
    resource = gears(remote)
    with pytest.raises(ConversionNeeded) as raised:
        conversions.seen(resource, entry(1), V2)
    await raised.value.settle()
    assert conversions.seen(resource, entry(1), V2)[1] == V2
    assert remote.asked == [1]
    remote.error = status.internal("no")
    with pytest.raises(ConversionNeeded) as raised:
        conversions.seen(resource, entry(2), V2)
    with pytest.raises(status.InternalError):
        await raised.value.settle()


async def test_bounded() -> None:
    """The cache has a limit of bytes and drops the least recently used objects."""
    remote = Remote()
    conversions = Conversions(CLOCK, bytes_max=10 * (1200 + ENTRY_BYTES))
    resource = gears(remote)
    entries = [entry(revision, size=1000) for revision in range(1, 51)]
    for each in entries:
        await conversions.in_version(resource, [entries[0], each], V2)
    assert 0 < conversions.kept_bytes <= 10 * (1200 + ENTRY_BYTES)
    assert conversions.known(resource, entries[0], V2) is not None
    assert conversions.known(resource, entries[1], V2) is None
    assert conversions.known(resource, entries[-1], V2) is not None


async def test_another_resource() -> None:
    """Cached objects of a replaced resource are not used for its successor."""
    remote, conversions = Remote(), Conversions(CLOCK)
    resource = gears(remote)
    await conversions.in_version(resource, [entry(1)], V2)
    assert conversions.known(gears(remote), entry(1), V2) is None
    assert conversions.known(resource, entry(1), V2) is not None
    conversions.forget(resource)
    assert conversions.known(resource, entry(1), V2) is None
    assert conversions.kept_bytes == 0


async def test_the_conversion_cache_expires_and_is_not_used_for_writes() -> None:
    """The cache expires after seconds, and is never used for writes."""
    clock, remote = SimulatedClock(), Remote()
    resource, conversions = gears(remote), Conversions(clock)
    await conversions.in_version(resource, [entry(1)], V2)
    await conversions.in_version(resource, [entry(1)], V2)
    assert remote.asked == [1]
    await conversions.in_version(resource, [entry(1)], V2, is_for_writing=True)
    assert remote.asked == [1, 1]
    await clock.advance(KEPT_SECONDS + 1)
    assert conversions.known(resource, entry(1), V2) is None
    assert conversions.kept_bytes == 0
