"""Replays the log of a store, from its first revision to the current one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from restow.storage.interface import Event, Revision, Span, Storage


async def replay(storage: Storage, take: Callable[[Sequence[Event]], None]) -> None:
    """Passes all changes to `take`, those of one revision together."""
    until = await storage.revision()
    watch = storage.watch(Span.of_prefix("/"), after=Revision(0))
    watch.expect(until)
    try:
        async for batch in watch:
            by_revision: dict[int, list[Event]] = {}
            for event in batch.events:
                by_revision.setdefault(event.revision, []).append(event)
            for events in by_revision.values():
                take(events)
            if batch.revision >= until:
                return
    finally:
        await watch.close()
    raise AssertionError("a watch does not end by itself")
