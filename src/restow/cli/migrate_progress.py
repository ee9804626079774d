"""The progress display of `restow migrate`: a bar for each resource, or lines without a terminal.

Not here: any decision.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from restow.cli.untrusted_text import shown
from restow.client import Object
from restow.migration.manual import ManualOutcome, ManualResult
from restow.migration.migration_objects import condition, mapping, text
from restow.migration.migrator.jobs import RunListener
from restow.migration.migrator.passes import ObjectFailure, PageDone
from restow.migration.migrator.progress import Progress as ProgressSoFar

FAILURES_SHOWN_MAX: Final = 20
WIDTH_OF_FILES: Final = 160
_MARKS: Final = {
    ManualOutcome.SUCCEEDED: "done",
    ManualOutcome.SKIPPED: "skipped",
    ManualOutcome.FAILED: "FAILED",
    ManualOutcome.ABORTED: "ABORTED",
    ManualOutcome.NOT_AGREED: "NOT AGREED",
}


class ProgressDisplay:
    """A context manager that displays progress; one row for each resource that has started."""

    def __init__(self, *, is_quiet: bool, console: Console | None = None) -> None:
        is_terminal = sys.stderr.isatty()
        width = None if is_terminal else WIDTH_OF_FILES
        self._console = console or Console(
            file=sys.stderr if is_quiet else sys.stdout,
            width=width,
            highlight=False,
            markup=False,
            emoji=False,  # `aesgcm:new:…` is a key, not an emoji
        )
        self._is_quiet = is_quiet
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            console=self._console,
            disable=is_quiet or not self._console.is_terminal,
            transient=True,
        )
        self._rows: dict[str, TaskID] = {}
        self._failures: dict[str, list[ObjectFailure]] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def listener(self, name: str, on_failure: Callable[[ObjectFailure], None]) -> RunListener:
        """The listener for a migration that runs in this process."""

        def page(_done: PageDone, progress: ProgressSoFar) -> None:
            counts, remaining = progress.position.counts, progress.remaining
            total = None if remaining is None else counts.scanned + remaining
            self._show(name, progress.text(), done=counts.scanned, total=total)

        return RunListener(
            began=lambda: self._show(name, "started"),
            resumed=lambda: self._show(name, "resuming from the checkpoint"),
            page=page,
            failed=on_failure,
            paused=lambda: self._show(name, "paused"),
            released=lambda: self._show(name, "resumed"),
        )

    def follow(self, name: str) -> Callable[[Object], None]:
        """Return a function that shows a migration run by the controllers."""

        def show(request: Object) -> None:
            progress = mapping(mapping(request, "status"), "progress")
            done, left = _number(progress.get("scanned")), progress.get("remaining")
            said = text(condition(request, "Running") or {}, "message") or "pending"
            total = done + _number(left) if isinstance(left, int) else None
            self._show(name, said, done=done, total=total)

        return show

    def fail(self, name: str, failure: ObjectFailure) -> None:
        """Record an object that failed."""
        known = self._failures.setdefault(name, [])
        if len(known) < FAILURES_SHOWN_MAX:
            known.append(failure)

    def end(self, result: ManualResult) -> None:
        """Print the result of a resource."""
        row = self._rows.pop(result.resource, None)
        if row is not None:
            self._bars.remove_task(row)
        if self._is_quiet or result.verdict is ManualOutcome.SKIPPED:
            return
        self._print(f"{_MARKS[result.verdict]:>10}  {result.resource}: {result.message}")
        for failure in self._failures.get(result.resource, ()):
            place = f"{failure.namespace}/{failure.name}".lstrip("/")
            self._print(f"            {place}: {failure.reason}: {failure.message}")

    def summary(self, results: Sequence[ManualResult]) -> None:
        """Print the skipped resources, and one line of totals."""
        skipped = [each for each in results if each.verdict is ManualOutcome.SKIPPED]
        for each in sorted(skipped, key=lambda each: each.resource)[:FAILURES_SHOWN_MAX]:
            self._print(f"{_MARKS[each.verdict]:>10}  {each.resource}: {each.message}")
        if len(skipped) > FAILURES_SHOWN_MAX:
            self._print(f"            and {len(skipped) - FAILURES_SHOWN_MAX} more")
        parts = [
            f"{count} {verdict.value}"
            for verdict in ManualOutcome
            if (count := sum(each.verdict is verdict for each in results))
        ]
        rewritten = sum(each.rewritten for each in results)
        self._print(f"{', '.join(parts)}; {rewritten:,} objects rewritten")

    def _show(self, name: str, said: str, *, done: int = 0, total: int | None = None) -> None:
        said = shown(said)
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = self._bars.add_task(name, total=None, said=said)
        changes: dict[str, Any] = {"said": said, "completed": done}
        if total is not None:
            changes["total"] = max(total, 1)
        self._bars.update(row, **changes)

    def _print(self, line: str) -> None:
        self._console.print(shown(line), soft_wrap=True)


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
