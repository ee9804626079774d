"""How this server writes each resource now: the policy that `registry` asks before every write.

A resource that is not in the table is not written. What is in it carries the fence: the guards that
go into the write's own transaction. Not here: how a resource gets into the table (`registrar`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from restow.aio import Clock
from restow.aio.events import EventChannel
from restow.apimachinery import status
from restow.registry.encoding import Encoding, ReadableRevisions
from restow.registry.resource import Resource
from restow.storage.interface import Revision

OLDER_WRITES_SECONDS: Final = 30.0
"""By then every commit that was sent before a switch has been answered, one way or the other."""
NO_ERROR: Final = "<nil>"


class EncodingTable:
    """Satisfies `EncodingPolicy`."""

    def __init__(
        self,
        *,
        member_at: Callable[[], Revision | None] = lambda: None,
        on_stale: Callable[[Resource], Awaitable[None]] | None = None,
    ) -> None:
        """`member_at` gives the newest revision at which this server was a member for sure; None:
        it may be none. `on_stale` is called when a fence has failed, to find out what is true."""
        self._encodings: dict[str, Encoding] = {}
        self._errors: dict[str, str] = {}
        self._last: dict[str, str] = {}
        """By root, the version in which a resource was written last, be it closed now."""
        self._since: dict[str, Revision] = {}
        """By root, when an open resource was reported first."""
        self._member_at = member_at
        self._on_stale = on_stale
        self.switched: Final = EventChannel[[]]()
        """Emitted in the step in which a resource is written in another version, or no more."""
        self.fence_failures = 0

    def encoding(self, resource: Resource) -> Encoding:
        try:
            return self._encodings[resource.root]
        except KeyError:
            raise self._closed(resource) from None

    async def refresh(self, resource: Resource) -> None:
        self.fence_failures += 1
        if self._on_stale is not None:
            await self._on_stale(resource)

    def find(self, resource: Resource) -> Encoding | None:
        return self._encodings.get(resource.root)

    def last(self, resource: Resource) -> str | None:
        """The version in which it is written, or was before it was closed; None: it never was."""
        return self._last.get(resource.root)

    def still_written(self, _resource: Resource) -> set[str]:
        """Versions in which writes of this server may land now without any further check. None:
        the fence refuses each that is not in the version of the entry."""
        return set()

    def settles_in_seconds(self, _resource: Resource) -> float:
        """After so long, no write in an earlier version can land. With a fence: at once."""
        return 0.0

    def readable(self, resource: Resource) -> ReadableRevisions:
        """As long as this server is a member and has reported what it can read, nobody stores
        anything else."""
        since, last = self._since.get(resource.root), self._member_at()
        if since is None or last is None:
            raise self._closed(resource)
        return ReadableRevisions(since, last)

    def note_report(self, resource: Resource, revision: Revision) -> None:
        """At a revision an open resource was reported, and all that was stored could be read."""
        self._since.setdefault(resource.root, revision)

    def open(self, resource: Resource, encoding: Encoding) -> None:
        """Write a resource so from now on."""
        before = self._encodings.get(resource.root)
        self._encodings[resource.root] = encoding
        self._last[resource.root] = encoding.api_version
        if before is None or before.api_version != encoding.api_version:
            self.notify_switch()
        self._errors.pop(resource.root, None)

    def close(self, resource: Resource, *, error: str = "") -> None:
        """Write it no more; `error` says why."""
        before = self._encodings.pop(resource.root, None)
        self._since.pop(resource.root, None)
        if error:
            self._errors[resource.root] = error
        if before is not None:
            self.notify_switch()

    def close_all(self) -> None:
        self._encodings.clear()
        self._since.clear()
        self.notify_switch()

    def notify_switch(self) -> None:
        """The version that discovery shows of a resource may be another one now."""
        self.switched.emit()

    def pending(self, resource: Resource) -> str | None:
        """None when it may be written; otherwise the last error seen."""
        if resource.root in self._encodings:
            return None
        return self._errors.get(resource.root, NO_ERROR)

    def _closed(self, resource: Resource) -> status.StatusError:
        return status.unavailable(
            "wait for storage version registration to complete for resource:"
            f" {resource.kind.group_resource}, last seen error:"
            f" {self.pending(resource) or NO_ERROR}",
            retry_after_seconds=status.RETRY_AFTER_SECONDS,
        )


class LooseTable(EncodingTable):
    """A table without a fence, which is only good while it is known to be up to date."""

    def __init__(
        self,
        clock: Clock,
        *,
        bound_seconds: float,
        member_at: Callable[[], Revision | None],
        on_stale: Callable[[Resource], Awaitable[None]],
    ) -> None:
        super().__init__(member_at=member_at, on_stale=on_stale)
        self._clock = clock
        self._bound_seconds = bound_seconds
        self._fresh_at = clock.monotonic() - bound_seconds
        self._older: dict[tuple[str, str], dict[str, float]] = {}
        """By root and CRD uid: until when writes in an earlier version may land."""

    def open(self, resource: Resource, encoding: Encoding) -> None:
        self._note_older(resource, encoding.api_version)
        super().open(resource, encoding)

    def close(self, resource: Resource, *, error: str = "") -> None:
        self._note_older(resource, "")
        super().close(resource, error=error)

    def still_written(self, resource: Resource) -> set[str]:
        """The version that is written now, and those of writes that may still be on their way."""
        current = self.find(resource)
        found = set() if current is None else {current.api_version}
        return found | self._not_over(resource).keys()

    def settles_in_seconds(self, resource: Resource) -> float:
        current = self.find(resource)
        older = self._not_over(resource)
        ends = [end for v, end in older.items() if current is None or v != current.api_version]
        return max(ends) - self._clock.monotonic() if ends else 0.0

    def _note_older(self, resource: Resource, version: str) -> None:
        """A resource is written in another version from now on, or not at all."""
        before = self.find(resource)
        if before is not None and before.api_version != version:
            ends = self._clock.monotonic() + OLDER_WRITES_SECONDS
            self._older.setdefault(_place(resource), {})[before.api_version] = ends

    def _not_over(self, resource: Resource) -> dict[str, float]:
        place, now = _place(resource), self._clock.monotonic()
        found = {v: end for v, end in self._older.pop(place, {}).items() if end > now}
        if found:
            self._older[place] = found
        return found

    def confirm(self, at: float) -> None:
        """All that was selected up to this monotonic moment is in the table."""
        self._fresh_at = max(self._fresh_at, at)

    def encoding(self, resource: Resource) -> Encoding:
        age_seconds = self._clock.monotonic() - self._fresh_at
        if age_seconds >= self._bound_seconds:
            raise status.unavailable(
                f"this server does not know whether {resource.kind.group_resource} is still written"
                f" in the same version: its last word from the store is {age_seconds:.0f} s old",
                retry_after_seconds=status.RETRY_AFTER_SECONDS,
            )
        return super().encoding(resource)


def _place(resource: Resource) -> tuple[str, str]:
    """What distinguishes a resource from one of the same name whose CRD was recreated."""
    return resource.root, "" if resource.origin is None else resource.origin.uid
