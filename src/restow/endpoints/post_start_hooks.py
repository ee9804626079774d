"""Post-start hooks: what a server does once it listens, and is not ready without.

Each is a health check `poststarthook/<name>`, as in Kubernetes. It fails until the work is done;
`/livez` waits for a grace period before it says so, because who asks there kills the server, and a
slow start is not cured by another start.
"""

from __future__ import annotations

from typing import Final

from restow.aio import Clock
from restow.endpoints.health import Check, HealthChecks

PREFIX: Final = "poststarthook/"
NOT_FINISHED: Final = "not finished"

STORAGE_VERSION_UPDATER: Final = "built-in-resources-storage-version-updater"
IDENTITY_LEASE_CONTROLLER: Final = "start-kube-apiserver-identity-lease-controller"
IDENTITY_LEASE_COLLECTOR: Final = "start-kube-apiserver-identity-lease-garbage-collector"


class PostStartHook:
    """One piece of work, and whether it is done. Nothing is run here: its owner tells."""

    __slots__ = ("_has_failed", "_reason", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._reason: str | None = NOT_FINISHED
        self._has_failed = False

    @property
    def check_name(self) -> str:
        return PREFIX + self.name

    @property
    def has_failed(self) -> bool:
        """Whether it was given up, rather than not finished yet."""
        return self._has_failed

    def finish(self) -> None:
        """The work is done."""
        self._reason, self._has_failed = None, False

    def fail(self, reason: str) -> None:
        """The work was given up: `/livez` says so at once, since only a new start can help.

        Not for a try that failed and will be made again: that is unfinished.
        """
        self._reason, self._has_failed = reason, True

    def check(self) -> str | None:
        """Why the work is not done; None when it is."""
        return self._reason


class PostStartHooks:
    """The hooks of one server, shown as health checks; its start is when this is made."""

    def __init__(self, health: HealthChecks, clock: Clock, *, livez_grace_seconds: float) -> None:
        self._health = health
        self._clock = clock
        self._livez_from = clock.monotonic() + livez_grace_seconds

    def add(self, name: str) -> PostStartHook:
        """A new hook, unfinished, in all three probes."""
        hook = PostStartHook(name)
        # KEP-2339 3.32: an unfinished hook fails the readiness check
        self._health.add(hook.check_name, hook.check, "healthz", "readyz")
        self._health.add(hook.check_name, self._patient(hook), "livez")
        return hook

    def _patient(self, hook: PostStartHook) -> Check:
        def check() -> str | None:
            if self._clock.monotonic() < self._livez_from and not hook.has_failed:
                return None
            return hook.check()

        return check
