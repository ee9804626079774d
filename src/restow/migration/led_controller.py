"""One controller of a process with leader election: acquire the lease, run, stop, try again.

    acquire the lease -> leading: run the controller -> lease lost: stop it, acquire it again
                                                     -> failed: log it, back off, acquire it again

The lease is released whenever the controller stops, so that another process does not wait until it
expires. Two leaders at once, which no lease can exclude, are harmless: all writes are conditional.

Not here: the controllers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from restow.aio import Backoff, Runtime
from restow.client import LeaderElector, LeadershipLost
from restow.migration.health import ControllerHealth
from restow.migration.metrics import ControllerMetrics

TRIGGER: Final = "trigger"
MIGRATOR: Final = "migrator"

RETRY_BACKOFF: Final = Backoff(initial_seconds=1, factor=2, max_seconds=60, jitter=0.5)
_SETTLED_SECONDS: Final = 120.0
"""A controller that ran for this long before it failed is not in a crash loop."""

logger = logging.getLogger(__name__)


class Runs(Protocol):
    """A controller: it runs until it is cancelled."""

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A controller, and how to run it."""

    name: str
    lease: str
    make: Callable[[Callable[[], bool]], Runs]
    """Creates the controller for each term. The argument returns whether this process leads."""
    silence_seconds_max: float
    """A healthy controller may be silent for this long."""
    problem_of: Callable[[Runs], str] | None = None
    """Returns the problem of a running controller, or "" if it has none. Called periodically."""
    is_always_on: bool = False
    """Whether it also runs without the lease, and checks itself whether it leads."""


class LedController:
    """Runs a part whenever this process holds its lease."""

    def __init__(
        self,
        part: Part,
        *,
        runtime: Runtime,
        health: ControllerHealth,
        metrics: ControllerMetrics,
        elector: LeaderElector | None,
    ) -> None:
        """Without an elector the part always runs."""
        self.part = part
        self._runtime = runtime
        self._health = health
        self._metrics = metrics
        self._elector = elector
        self._running: Runs | None = None
        metrics.set_leading(part.name, is_leading=False)

    @property
    def is_leading(self) -> bool:
        # KEP-2343 4.34: leader election by a Lease
        return self._elector is None or self._elector.is_leading

    @property
    def leader(self) -> str:
        """The last leader that was observed; empty if there was none."""
        return "" if self._elector is None else self._elector.holder

    def check_health(self) -> None:
        """Report the health of the controller, if it runs."""
        if self._running is None or self.part.problem_of is None:
            return
        if problem := self.part.problem_of(self._running):
            self._health.have_trouble(self.part.name, problem)
        else:
            self._health.succeed(self.part.name)

    async def run(self) -> None:
        """Acquire the lease and run the controller, until cancelled."""
        clock, failures = self._runtime.clock, 0
        while True:
            began = clock.monotonic()
            try:
                await self._term()
            except LeadershipLost as error:
                logger.warning("%s stops: %s", self.part.name, error)
                failures = 0
                continue
            except Exception:  # the edge of a task: the controller is restarted
                logger.exception("the %s failed; it restarts after a backoff", self.part.name)
            else:
                logger.error("the %s returned; it restarts after a backoff", self.part.name)
            if clock.monotonic() - began > _SETTLED_SECONDS:
                failures = 0
            self._metrics.restarted(self.part.name)
            await clock.sleep(RETRY_BACKOFF.delay_seconds(failures, self._runtime.randomness))
            failures += 1

    async def _term(self) -> None:
        if self._elector is None:
            await self._work()
        elif self.part.is_always_on:
            async with self._runtime.tasks(f"contend/{self.part.name}") as tasks:
                tasks.spawn("lease", self._hold_lease(self._elector))
                await self._work()
        else:
            async with self._elector.leading():
                await self._work()

    async def _hold_lease(self, elector: LeaderElector) -> None:
        """Hold the lease whenever it is free, for a part that runs without it too."""
        clock = self._runtime.clock
        while True:
            try:
                async with elector.leading():
                    self._metrics.set_leading(self.part.name, is_leading=True)
                    while True:
                        await clock.sleep(_SETTLED_SECONDS)
            except LeadershipLost as error:
                logger.warning("%s does not lead any more: %s", self.part.name, error)
            finally:
                self._metrics.set_leading(self.part.name, is_leading=False)

    async def _work(self) -> None:
        name, elector = self.part.name, self._elector
        self._health.begin(name, silence_seconds_max=self.part.silence_seconds_max)
        if not self.part.is_always_on or elector is None:
            self._metrics.set_leading(name, is_leading=True)
        logger.info("the %s starts", name)
        try:
            self._running = self.part.make(lambda: self.is_leading)
            await self._running.run()
        except asyncio.CancelledError:
            self._health.end(name)
            raise
        except Exception as error:
            self._health.have_trouble(name, f"it failed: {error}")
            raise
        else:
            self._health.have_trouble(name, "it returned unexpectedly")
        finally:
            self._running = None
            self._metrics.set_leading(name, is_leading=False)
            logger.info("the %s has stopped", name)
