"""The renew deadline of this server's lease: after it, the server writes no objects.

    renewal sent      renew deadline (80 % of the lease)      lease expired for the others
         |------ writes are committed ------|--- writes get 503 ---|--- may be collected ---

Other servers remove a server that has not renewed its lease. They measure the lease from the moment
at which they see a renewal, which is after its commit; this server measures from before it sent
the renewal. Its deadline is therefore earlier than their expiry, whatever the delays in between.
The time is read in the step that commits, so a process that was paused, or whose event loop was
blocked, refuses the writes that are queued in it until the renewal has run.

The fence in each transaction is what makes writes safe (`registration_planner`): it also rejects a
write that was sent before the deadline and arrives after it. This check is for the clients: they
get a 503 at once and go to another server, rather than to one that the others are about to remove.
Reads, the renewal and the registration do not pass through it.
"""

from __future__ import annotations

from typing import Final

from restow.aio import Clock
from restow.apimachinery import status
from restow.storageversion.membership import Membership

RENEW_DEADLINE: Final = 0.8
"""The part of the lease duration after which writes are refused."""


class WriteLease:
    """Whether this server renewed its lease in time to write."""

    def __init__(self, membership: Membership, clock: Clock) -> None:
        self._membership = membership
        self._monotonic = clock.monotonic
        self._lease_seconds = membership.options.lease_seconds
        self._deadline_seconds = membership.options.lease_seconds * RENEW_DEADLINE
        self.refused = 0
        """Number of writes refused."""

    def check(self) -> None:
        """Return if objects may be written now, else raise a 503."""
        # KEP-2339 3.16: another server may remove this one after the lease duration
        age_seconds = self._monotonic() - self._membership.renewed_at
        if age_seconds >= self._deadline_seconds:
            self.refused += 1
            raise status.unavailable(
                self._message(age_seconds), retry_after_seconds=status.RETRY_AFTER_SECONDS
            )

    def error(self) -> str | None:
        """Return why a member writes no objects now, for the health check; None if it does."""
        age_seconds = self._membership.age_seconds
        if not self._membership.is_member or age_seconds < self._deadline_seconds:
            return None
        return self._message(age_seconds)

    def _message(self, age_seconds: float) -> str:
        return (
            f"this server last renewed its identity lease {age_seconds:.1f} s ago, more than"
            f" {self._deadline_seconds:g} of {self._lease_seconds:g} s: other servers may soon"
            " count it as expired, so it refuses writes until it has renewed the lease; try again"
        )
