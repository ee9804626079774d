"""Health checks behind `/healthz`, `/livez` and `/readyz`.

A check is a function that returns the reason of its failure, or None. The checks are registered
where a server is assembled; those of its startup come from `post_start_hooks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from restow.httpserver.response import HttpResponse
from restow.request.context import Context
from restow.request.responses import respond_text

Check = Callable[[], str | None]
Probe = Literal["healthz", "livez", "readyz"]
Sample = tuple[tuple[str, ...], float]


@dataclass(slots=True)
class HealthChecks:
    """The checks of a server, by probe."""

    checks: dict[Probe, dict[str, Check]] = field(
        default_factory=lambda: {"healthz": {}, "livez": {}, "readyz": {}}
    )
    _asked: dict[tuple[str, Probe, str], int] = field(default_factory=dict)

    def add(self, name: str, check: Check, *probes: Probe) -> None:
        """Add a check to the given probes, or to all of them."""
        for probe in probes or ("healthz", "livez", "readyz"):
            self.checks[probe][name] = check

    def states(self) -> Iterator[Sample]:
        """Each check's name and probe, and 1 if it passes now, else 0."""
        for probe, checks in self.checks.items():
            for name, check in checks.items():
                # KEP-2339 3.58: the value of the metric
                yield (name, probe), float(check() is None)

    def counts(self) -> Iterator[Sample]:
        """Each check's name, probe and outcome, and how often a probe had that outcome."""
        yield from self._asked.items()

    def answer(self, context: Context, probe: Probe, name: str) -> HttpResponse:
        """The response to `/livez`, `/livez?verbose`, `/livez?exclude=x` or `/livez/x`."""
        if name:
            return self._detail(probe, name)
        excluded = set(context.info.query.get("exclude", []))
        lines, failed = [], False
        for each, check in self.checks[probe].items():
            if each in excluded:
                excluded.remove(each)
                lines.append(f"[+]{each} excluded: ok")
            elif self._passes(probe, each, check):
                lines.append(f"[+]{each} ok")
            else:
                failed = True
                lines.append(f"[-]{each} failed: reason withheld")
        if excluded:
            names = ", ".join(f'"{each}"' for each in sorted(excluded))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        if failed:
            lines.append(f"{probe} check failed")
            return respond_text(500, "\n".join(lines) + "\n")
        if "verbose" in context.info.query:
            lines.append(f"{probe} check passed")
            return respond_text(200, "\n".join(lines) + "\n")
        return respond_text(200, "ok")

    def _detail(self, probe: Probe, name: str) -> HttpResponse:
        """One check with the reason of its failure: this path requires more permissions than the
        probe."""
        check = self.checks[probe].get(name)
        if check is None:
            return respond_text(404, "404 page not found\n")
        reason = check()
        if reason is None:
            return respond_text(200, "ok")
        return respond_text(500, f"internal server error: {reason}\n")

    def _passes(self, probe: Probe, name: str, check: Check) -> bool:
        passes = check() is None
        asked = (name, probe, "success" if passes else "error")
        self._asked[asked] = self._asked.get(asked, 0) + 1
        return passes
