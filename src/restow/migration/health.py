"""Whether the parts of a process of controllers work: what `/healthz` and `/readyz` say.

A part is healthy while it has succeeded lately. Trouble is forgiven for a while, since servers are
restarted; then it counts until the next success.

Not here: the parts, and how their state is shown over HTTP (`probes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from restow.aio import Clock

TROUBLE_SECONDS_MAX: Final = 60.0
"""For so long a part may have trouble before it is unhealthy."""


@dataclass(slots=True)
class _Part:
    silence_seconds_max: float
    success_seconds: float
    trouble: str = ""


class ControllerHealth:
    """The parts, by name. A part that is not at work is none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parts: dict[str, _Part] = {}

    def begin(self, name: str, *, silence_seconds_max: float) -> None:
        """A part begins to work; for so long it may say nothing.

        One that begins again after trouble is given another chance, but its last success is not
        forgotten: a part that always fails is seen.
        """
        part = self._parts.get(name)
        if part is None:
            self._parts[name] = _Part(silence_seconds_max, self._clock.monotonic())
        else:
            part.trouble = ""

    def end(self, name: str) -> None:
        """A part has stopped in good order, and is not asked about any more."""
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
        """Why a part is not healthy; empty if it is."""
        part = self._parts[name]
        silent = self._clock.monotonic() - part.success_seconds
        if part.trouble and silent > TROUBLE_SECONDS_MAX:
            return f"no success for {silent:.0f} s: {part.trouble}"
        if silent > part.silence_seconds_max:
            return f"nothing was heard of it for {silent:.0f} s"
        return ""

    def states(self) -> dict[str, bool]:
        """Each part, and whether it is healthy."""
        return {name: not self.problem(name) for name in self._parts}

    def report(self) -> tuple[bool, str]:
        """Whether all is well, and a line for each part."""
        lines, is_well = [], True
        for name in sorted(self._parts):
            problem = self.problem(name)
            is_well = is_well and not problem
            lines.append(f"[-]{name} {problem}" if problem else f"[+]{name} ok")
        return is_well, "\n".join(lines) + "\n"
