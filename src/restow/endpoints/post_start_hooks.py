"""Post-start hooks: work that a server does once it listens, and that must finish before it is
ready.

Each is a health check `poststarthook/<name>`, as in Kubernetes. It fails until the work is done.
`/livez` ignores it for a grace period, because a failing liveness probe makes the kubelet kill the
server, and a restart does not help a slow start.
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
    """The state of one hook. It runs nothing: its owner calls `finish` or `fail`."""

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
        """Whether the hook failed permanently, as opposed to not having finished yet."""
        return self._has_failed

    def finish(self) -> None:
        """Mark the work as done."""
        self._reason, self._has_failed = None, False

    def fail(self, reason: str) -> None:
        """Mark the work as failed permanently: `/livez` fails at once, since only a restart helps.

        Do not call it for an attempt that is retried: then the hook is still unfinished.
        """
        self._reason, self._has_failed = reason, True

    def check(self) -> str | None:
        """Why the work is not done; None when it is."""
        return self._reason


class PostStartHooks:
    """The hooks of one server, as health checks. The grace period begins when this is created."""

    def __init__(self, health: HealthChecks, clock: Clock, *, livez_grace_seconds: float) -> None:
        self._health = health
        self._clock = clock
        self._livez_from = clock.monotonic() + livez_grace_seconds

    def add(self, name: str) -> PostStartHook:
        """Add a hook, unfinished, to all three probes."""
        hook = PostStartHook(name)
        # KEP-2339 3.32: an unfinished hook fails the readiness check
        self._health.add(hook.check_name, hook.check, "healthz", "readyz")
        self._health.add(hook.check_name, self._with_grace(hook), "livez")
        return hook

    def _with_grace(self, hook: PostStartHook) -> Check:
        def check() -> str | None:
            if self._clock.monotonic() < self._livez_from and not hook.has_failed:
                return None
            return hook.check()

        return check
