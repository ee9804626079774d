"""One controller in a process that may have to wait for its turn: lead, run, stop, contend again.

    contend for the lease -> lead: run the controller -> lost: stop it, contend again
                                                      -> it failed: say so, wait, contend again

The lease is given up whenever the controller stops, so that another process need not wait for it to
run out. Two leaders at once, which no lease can exclude, are harmless by what controllers write.

Not here: what a controller does.
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

AGAIN_BACKOFF: Final = Backoff(initial_seconds=1, factor=2, max_seconds=60, jitter=0.5)
_SETTLED_SECONDS: Final = 120.0
"""A controller that ran for so long before it failed is not in a loop of failures."""

logger = logging.getLogger(__name__)


class Runs(Protocol):
    """A controller: it works until it is cancelled."""

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A controller, and how it is run."""

    name: str
    lease: str
    make: Callable[[Callable[[], bool]], Runs]
    """Makes a new one for each time of leading. It is given a way to ask whether it leads."""
    silence_seconds_max: float
    """For so long it may do nothing and is healthy all the same."""
    problem_of: Callable[[Runs], str] | None = None
    """Says what a running controller cannot do; empty if it is well. Asked now and then."""
    is_always_on: bool = False
    """Whether it works when it does not lead too, and asks."""


class LedController:
    """Runs a part whenever it is this process' turn."""

    def __init__(
        self,
        part: Part,
        *,
        runtime: Runtime,
        health: ControllerHealth,
        metrics: ControllerMetrics,
        elector: LeaderElector | None,
    ) -> None:
        """Without an elector it is always its turn."""
        self.part = part
        self._runtime = runtime
        self._health = health
        self._metrics = metrics
        self._elector = elector
        self._running: Runs | None = None
        metrics.collects_first(part.name, is_leading=False)

    @property
    def is_leading(self) -> bool:
        return self._elector is None or self._elector.is_leading

    @property
    def leader(self) -> str:
        """Who was seen to lead last; empty for nobody."""
        return "" if self._elector is None else self._elector.holder

    def ask(self) -> None:
        """Ask the controller how it is, if it runs."""
        if self._running is None or self.part.problem_of is None:
            return
        if problem := self.part.problem_of(self._running):
            self._health.have_trouble(self.part.name, problem)
        else:
            self._health.succeed(self.part.name)

    async def run(self) -> None:
        """Contend and work until cancelled."""
        clock, failures = self._runtime.clock, 0
        while True:
            began = clock.monotonic()
            try:
                await self._term()
            except LeadershipLost as error:
                logger.warning("%s stops: %s", self.part.name, error)
                failures = 0
                continue
            except Exception:  # the edge of a task: a controller is started again
                logger.exception("the %s failed, and is started again", self.part.name)
            else:
                logger.error("the %s has ended by itself, and is started again", self.part.name)
            if clock.monotonic() - began > _SETTLED_SECONDS:
                failures = 0
            self._metrics.restarted(self.part.name)
            await clock.sleep(AGAIN_BACKOFF.delay_seconds(failures, self._runtime.randomness))
            failures += 1

    async def _term(self) -> None:
        if self._elector is None:
            await self._work()
        elif self.part.is_always_on:
            async with self._runtime.tasks(f"contend/{self.part.name}") as tasks:
                tasks.spawn("lease", self._hold(self._elector))
                await self._work()
        else:
            async with self._elector.leading():
                await self._work()

    async def _hold(self, elector: LeaderElector) -> None:
        """Keep the lease whenever it can be had, for a part that asks."""
        clock = self._runtime.clock
        while True:
            try:
                async with elector.leading():
                    self._metrics.collects_first(self.part.name, is_leading=True)
                    while True:
                        await clock.sleep(_SETTLED_SECONDS)
            except LeadershipLost as error:
                logger.warning("%s does not lead any more: %s", self.part.name, error)
            finally:
                self._metrics.collects_first(self.part.name, is_leading=False)

    async def _work(self) -> None:
        name, elector = self.part.name, self._elector
        self._health.begin(name, silence_seconds_max=self.part.silence_seconds_max)
        if not self.part.is_always_on or elector is None:
            self._metrics.collects_first(name, is_leading=True)
        logger.info("the %s begins", name)
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
            self._health.have_trouble(name, "it has ended by itself")
        finally:
            self._running = None
            self._metrics.collects_first(name, is_leading=False)
            logger.info("the %s has stopped", name)
