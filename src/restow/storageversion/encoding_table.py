"""The version in which this server writes each resource, which `registry` reads before each write.

A resource that is not in the table is not written. An entry carries the fence: the guards of the
write's own transaction. Not here: how a resource gets into the table (`registrar`).
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
"""Age at which a commit can no longer take effect: the store has processed or dropped it."""
NO_ERROR: Final = "<nil>"


class EncodingTable:
    """The encodings of all open resources. Implements `EncodingPolicy`."""

    def __init__(
        self,
        *,
        member_at: Callable[[], Revision | None] = lambda: None,
        on_stale: Callable[[Resource], Awaitable[None]] | None = None,
        check_lease: Callable[[], None] = lambda: None,
    ) -> None:
        """Build an empty table. `member_at` returns the newest revision at which this server was
        certainly a member; None: it may be none. `on_stale` is called when a fence has failed, to
        register the resource again; `check_lease` before each commit, to refuse it."""
        self.check_lease: Final = check_lease
        self._encodings: dict[str, Encoding] = {}
        self._errors: dict[str, str] = {}
        self._last: dict[str, str] = {}
        """By root, the version in which a resource was last written, even if it is closed now."""
        self._since: dict[str, Revision] = {}
        """By root, the revision at which an open resource was first reported."""
        self._member_at = member_at
        self._on_stale = on_stale
        self.switched: Final = EventChannel[[]]()
        """Emitted in the step in which the version of a resource changes or the resource is
        closed."""
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
        """Return the version in which a resource is or was last written; None: it was never
        open."""
        return self._last.get(resource.root)

    def still_written(self, _resource: Resource) -> set[str]:
        """Return the versions in which this server's writes may commit without a further check.
        Empty with a fence, which rejects each write that is not in the version of the entry."""
        return set()

    def settles_in_seconds(self, _resource: Resource) -> float:
        """Seconds until no write in an earlier version can commit; 0 with a fence."""
        return 0.0

    def readable(self, resource: Resource) -> ReadableRevisions:
        """Return the revisions at which this server can read every stored value: while it is a
        member and has reported its decodable versions and keys, no server stores values in
        others."""
        since, last = self._since.get(resource.root), self._member_at()
        if since is None or last is None:
            raise self._closed(resource)
        return ReadableRevisions(since, last)

    def note_report(self, resource: Resource, revision: Revision) -> None:
        """Record that at a revision an open resource was reported and every stored value was
        readable."""
        self._since.setdefault(resource.root, revision)

    def open(self, resource: Resource, encoding: Encoding) -> None:
        """Write a resource with this encoding from now on."""
        before = self._encodings.get(resource.root)
        self._encodings[resource.root] = encoding
        self._last[resource.root] = encoding.api_version
        # KEP-1201 0.23: a switch is signalled in the same step
        if before is None or before.api_version != encoding.api_version:
            self.notify_switch()
        self._errors.pop(resource.root, None)

    def close(self, resource: Resource, *, error: str = "") -> None:
        """Stop writing a resource; `error` is the reason, for the message of rejected writes."""
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
        """Signal that the version that discovery shows may have changed."""
        self.switched.emit()

    def pending(self, resource: Resource) -> str | None:
        """Return None when a resource may be written; otherwise the last error."""
        if resource.root in self._encodings:
            return None
        return self._errors.get(resource.root, NO_ERROR)

    def _closed(self, resource: Resource) -> status.StatusError:
        # KEP-2339 3.69: a write of a closed resource gets the same 503
        return status.unavailable(
            "wait for storage version registration to complete for resource:"
            f" {resource.kind.group_resource}, last seen error:"
            f" {self.pending(resource) or NO_ERROR}",
            retry_after_seconds=status.RETRY_AFTER_SECONDS,
        )


class LooseTable(EncodingTable):
    """A table without a fence; its encodings are valid only while it is confirmed to be up to
    date."""

    def __init__(
        self,
        clock: Clock,
        *,
        bound_seconds: float,
        member_at: Callable[[], Revision | None],
        on_stale: Callable[[Resource], Awaitable[None]],
        check_lease: Callable[[], None],
    ) -> None:
        super().__init__(member_at=member_at, on_stale=on_stale, check_lease=check_lease)
        self._clock = clock
        self._bound_seconds = bound_seconds
        self._fresh_at = clock.monotonic() - bound_seconds
        self._older: dict[tuple[str, str], dict[str, float]] = {}
        """By root and CRD uid: the times until which writes in earlier versions may commit."""

    def open(self, resource: Resource, encoding: Encoding) -> None:
        self._note_older(resource, encoding.api_version)
        super().open(resource, encoding)

    def close(self, resource: Resource, *, error: str = "") -> None:
        self._note_older(resource, "")
        super().close(resource, error=error)

    def still_written(self, resource: Resource) -> set[str]:
        """Return the current version, and those of writes that may still be in flight."""
        current = self.find(resource)
        found = set() if current is None else {current.api_version}
        return found | self._not_over(resource).keys()

    def settles_in_seconds(self, resource: Resource) -> float:
        current = self.find(resource)
        older = self._not_over(resource)
        ends = [end for v, end in older.items() if current is None or v != current.api_version]
        return max(ends) - self._clock.monotonic() if ends else 0.0

    def _note_older(self, resource: Resource, version: str) -> None:
        """Record the version of in-flight writes when a resource is closed or changes its
        version."""
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
        """Record that the table held every selected version at this monotonic time."""
        self._fresh_at = max(self._fresh_at, at)

    def encoding(self, resource: Resource) -> Encoding:
        age_seconds = self._clock.monotonic() - self._fresh_at
        # KEP-1201 0.21: write nothing without a confirmation within the bound
        if age_seconds >= self._bound_seconds:
            raise status.unavailable(
                f"the storage version of {resource.kind.group_resource} may have changed: this"
                f" server last confirmed it with the store {age_seconds:.0f} s ago",
                retry_after_seconds=status.RETRY_AFTER_SECONDS,
            )
        return super().encoding(resource)


def _place(resource: Resource) -> tuple[str, str]:
    """Return what distinguishes a resource from one of the same name whose CRD was recreated."""
    return resource.root, "" if resource.origin is None else resource.origin.uid
