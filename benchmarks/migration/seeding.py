"""Puts objects in the old version into the store, below the API, as an older release would."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from restow.registry.stored_bytes import encode
from restow.storage.interface import Done, Key, Put, Storage, Transaction
from tests.support.storageversion_audit import stored_versions

GROUP, KIND, PLURAL = "example.com", "Widget", "widgets"
OLD, NEW = f"{GROUP}/v1", f"{GROUP}/v2"
NAMESPACE = "default"
ROOT = f"/registry/{GROUP}/{PLURAL}/"
WRITERS = 64
DATA = {f"field-{number}": "x" * 30 for number in range(16)}  # 1.1 KB with the metadata


def widget(number: int) -> dict[str, Any]:
    name = f"item-{number:06d}"
    owned: dict[str, Any] = {"f:spec": {f"f:{field}": {} for field in list(DATA)[:4]}}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 1,
            "managedFields": [
                {"manager": "bench", "operation": "Update", "apiVersion": OLD, "fieldsV1": owned}
            ],
        },
        "spec": DATA,
    }


async def seed(storage: Storage, items: int) -> None:
    """Store all objects in the old version, whether or not they exist."""
    numbers = iter(range(items))

    async def write(some: Iterator[int]) -> None:
        for number in some:
            key = Key(f"{ROOT}{NAMESPACE}/item-{number:06d}")
            put = Put(key, encode(widget(number), OLD, KIND))
            outcome = await storage.commit(Transaction(writes=(put,)))
            assert isinstance(outcome, Done), outcome

    await asyncio.gather(*(write(numbers) for _ in range(WRITERS)))


async def check(storage: Storage, items: int) -> None:
    """Check that everything is in the new version."""
    found = await stored_versions(storage, ROOT)
    if found != {NEW: items}:
        raise SystemExit(f"not everything was rewritten: {dict(found)}")
