"""Batched conversion, by a webhook, of values to rewrite; each value has its own outcome.

A wrong response because of one object would fail the whole batch. So when a response is wrong, the
batch is halved until the failing objects are isolated. When there is no response, the whole batch
fails: a retry per object would only take longer.

Only the conversion changes an object: no defaults, no pruning.

Not here: how a value is committed (`rewrite_page`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from restow.apimachinery.errors import ConversionFailed, MachineryError
from restow.apimachinery.status_error import StatusError
from restow.registry.custom.conversion import ConversionRefused, remote_of
from restow.registry.resource import Object, Resource
from restow.registry.stored_bytes import encode
from restow.storage.errors import StorageError, StoreDamaged
from restow.storage.interface import Item

OBJECTS_AT_ONCE: Final = 256
"""Size of a batch, equal to the maximum of one read."""

Outcome = bytes | StorageError | MachineryError
"""The bytes to store, or the error."""


async def converted_forms(resource: Resource, items: Sequence[Item], target: str) -> list[Outcome]:
    """Return the stored bytes of values in version `target`, in order."""
    outcomes: list[Outcome] = []
    for first in range(0, len(items), OBJECTS_AT_ONCE):
        outcomes += await _convert(resource, items[first : first + OBJECTS_AT_ONCE], target)
    return outcomes


async def _convert(resource: Resource, items: Sequence[Item], target: str) -> list[Outcome]:
    outcomes: list[Outcome] = []
    objects: list[Object] = []
    places: list[int] = []
    for item in items:
        try:
            objects.append(orjson.loads(item.value))
            places.append(len(outcomes))
            outcomes.append(b"")
        except orjson.JSONDecodeError as error:
            outcomes.append(StoreDamaged(f"the value is not JSON: {error}"))
    for place, outcome in zip(places, await _request(resource, objects, target), strict=True):
        outcomes[place] = outcome
    return outcomes


async def _request(resource: Resource, objects: Sequence[Object], target: str) -> list[Outcome]:
    if not objects:
        return []
    try:
        converted = await remote_of(resource).convert(objects, target)
    except ConversionRefused as error:
        if len(objects) > 1:
            middle = len(objects) // 2
            return [
                *await _request(resource, objects[:middle], target),
                *await _request(resource, objects[middle:], target),
            ]
        return [ConversionFailed(error.message)]
    except StatusError as error:
        return [ConversionFailed(error.message) for _ in objects]
    return [encode(obj, target, resource.kind.kind) for obj in converted]
