"""Health of the parts of a controller process, as `/healthz` and `/readyz` report it.

A part is healthy while its last success is recent. Errors are tolerated for a while, since servers
restart; then they count until the next success.

Not here: the parts, and how their state is served over HTTP (`probes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from restow.aio import Clock

TROUBLE_SECONDS_MAX: Final = 60.0
"""A part with errors becomes unhealthy after this time without a success."""


@dataclass(slots=True)
class _Part:
    silence_seconds_max: float
    success_seconds: float
    trouble: str = ""


class ControllerHealth:
    """Health of the parts, by name. A part that does not run is not listed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parts: dict[str, _Part] = {}

    def begin(self, name: str, *, silence_seconds_max: float) -> None:
        """Register a part that starts; it is unhealthy after `silence_seconds_max` of silence.

        A part that restarts after an error gets a new chance, but its last success stays: a part
        that fails at every start becomes unhealthy.
        """
        part = self._parts.get(name)
        if part is None:
            self._parts[name] = _Part(silence_seconds_max, self._clock.monotonic())
        else:
            part.trouble = ""

    def end(self, name: str) -> None:
        """Remove a part that has stopped as intended."""
        self._parts.pop(name, None)

    def succeed(self, name: str) -> None:
        part = self._parts.get(name)
        if part is not None:
            part.success_seconds, part.trouble = self._clock.monotonic(), ""

    def have_trouble(self, name: str, why: str = "it fails") -> None:
        part = self._parts.get(name)
        if part is not None:
            part.trouble = why

    def problem(self, name: str) -> str:
        """The reason why a part is not healthy; empty if it is."""
        part = self._parts[name]
        silent = self._clock.monotonic() - part.success_seconds
        if part.trouble and silent > TROUBLE_SECONDS_MAX:
            return f"no success for {silent:.0f} s: {part.trouble}"
        if silent > part.silence_seconds_max:
            return f"no activity for {silent:.0f} s"
        return ""

    def states(self) -> dict[str, bool]:
        """Return each part, and whether it is healthy."""
        return {name: not self.problem(name) for name in self._parts}

    def report(self) -> tuple[bool, str]:
        """Return whether all parts are healthy, and one line for each part."""
        lines, is_well = [], True
        for name in sorted(self._parts):
            problem = self.problem(name)
            is_well = is_well and not problem
            lines.append(f"[-]{name} {problem}" if problem else f"[+]{name} ok")
        return is_well, "\n".join(lines) + "\n"
