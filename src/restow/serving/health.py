"""Health: named checks behind `/healthz`, `/livez` and `/readyz`.

A check is a function that returns why it fails, or None. Which checks there are is decided by the
one who puts a server together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from restow.serving.answers import respond_text
from restow.serving.context import Context
from restow.serving.listener.response import Response

Check = Callable[[], str | None]
Probe = Literal["healthz", "livez", "readyz"]


@dataclass(slots=True)
class Health:
    """The checks of a server, by the probe that asks for them."""

    checks: dict[Probe, dict[str, Check]] = field(
        default_factory=lambda: {"healthz": {}, "livez": {}, "readyz": {}}
    )

    def add(self, name: str, check: Check, *probes: Probe) -> None:
        """Add a check to some probes, or to all of them."""
        for probe in probes or ("healthz", "livez", "readyz"):
            self.checks[probe][name] = check

    def failures(self, probe: Probe) -> dict[str, str]:
        """The checks that fail, with their reasons."""
        found = {name: check() for name, check in self.checks[probe].items()}
        return {name: reason for name, reason in found.items() if reason is not None}

    def answer(self, context: Context, probe: Probe, name: str) -> Response:
        """The answer to `/livez`, `/livez?verbose`, `/livez?exclude=x` or `/livez/x`."""
        checks = self.checks[probe]
        if name:
            if name not in checks:
                return respond_text(404, "404 page not found\n")
            checks = {name: checks[name]}
        excluded = set(context.info.query.get("exclude", []))
        lines, failed = [], False
        for each, check in checks.items():
            if each in excluded:
                lines.append(f"[+]{each} excluded: ok")
            elif check() is None:
                lines.append(f"[+]{each} ok")
            else:
                failed = True
                lines.append(f"[-]{each} failed: reason withheld")
        if failed:
            lines.append(f"{probe} check failed")
            return respond_text(500, "\n".join(lines) + "\n")
        if "verbose" in context.info.query:
            lines.append(f"{probe} check passed")
            return respond_text(200, "\n".join(lines) + "\n")
        return respond_text(200, "ok")
