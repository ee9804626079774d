"""Output of the demo: steps, commands, tables, results of checks, explanations.

On a terminal a table is updated during a wait, with colors. Otherwise, and with `--plain`, the
output is plain lines, each kind with its own prefix, so that a program can check it:

    [3/8] title      a step
      $ command      the equivalent command
      ...            the state, as a table
      agreed on: ... ; may be stored as: ... ; migration: ...
      ok: ...        a check that passed
      why: ...       an explanation

Not here: the texts themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from restow.cli.demo_view import DemoState
from restow.cli.status_tables import PHASE_STYLES, progress_of
from restow.cli.untrusted_text import shown

WIDTH_OF_FILES: Final = 1_000
"""Wide enough that no line is wrapped: programs read these lines."""
INDENT: Final = 2
NOTHING: Final = "nothing"
VERSION_STYLES: Final = {"v1": "yellow", "v2": "green"}

Look = Callable[[], DemoState]


class Narrator:
    """Prints the output of the demo, except for errors."""

    def __init__(self, *, is_plain: bool, console: Console | None = None) -> None:
        is_plain = is_plain or not (console.is_terminal if console else sys.stdout.isatty())
        self._console = console or Console(
            highlight=False,
            markup=False,
            no_color=is_plain or None,
            width=WIDTH_OF_FILES if is_plain else None,
        )
        self._is_plain = is_plain
        self._live: Live | None = None

    def title(self, text: str) -> None:
        self._print(Text(text, style="bold"), indent=0)

    def gap(self) -> None:
        self._console.print()

    def step(self, number: int, total: int, title: str) -> None:
        self.gap()
        self._print(Text(f"[{number}/{total}] {title}", style="bold cyan"), indent=0)

    def command(self, words: str) -> None:
        """Print the equivalent command."""
        self._print(Text(f"$ {words}", style="bold"))

    def say(self, text: str) -> None:
        self._print(Text(text))

    def link(self, name: str, address: str) -> None:
        """Print an address without wrapping, so that it can be clicked and copied."""
        self._console.print(f"{' ' * INDENT}{name}: {address}", soft_wrap=True)

    def check(self, text: str) -> None:
        self._print(Text.assemble(("ok", "green"), f": {text}"))

    def why(self, text: str) -> None:
        self._print(Text(f"why: {text}", style="italic"))

    def board(self, board: DemoState) -> None:
        self._console.print(_servers(board))
        self._console.print(_indented(summary_of(board)))

    def census(self, counts: Mapping[str, int]) -> None:
        """Print how many objects are stored in each version."""
        parts = [f"{count:,} as {version}" for version, count in sorted(counts.items())]
        self._print(Text(f"census: {', '.join(parts) or 'no objects'}"))

    @contextmanager
    def watching(self, look: Look) -> Iterator[None]:
        """Update the table on a terminal while the body runs; the last state remains visible."""
        if self._is_plain:
            yield
        else:
            self._live = Live(
                console=self._console,
                get_renderable=lambda: Group(
                    _servers(board := look()), _indented(summary_of(board))
                ),
                auto_refresh=False,  # each change is shown as it happens, without a thread
                transient=True,
            )
            self._live.start(refresh=True)
            try:
                yield
            finally:
                live, self._live = self._live, None
                live.stop()
        self.board(look())

    def refresh(self) -> None:
        """Redraw the table after a change."""
        if self._live is not None:
            self._live.refresh()

    def _print(self, text: Text, *, indent: int = INDENT) -> None:
        self._console.print(_indented(text, indent))


def _indented(what: RenderableType, indent: int = INDENT) -> Padding:
    return Padding(what, (0, 0, 0, indent), expand=False)


def _servers(board: DemoState) -> Padding:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("SERVER", "STATE", "RELEASE", "WRITES"):
        table.add_column(heading)
    for each in board.servers:
        writes = Text(each.writes or "–", style=VERSION_STYLES.get(each.writes, ""))
        table.add_row(str(each.number), each.state, each.release, writes)
    return _indented(table)


def summary_of(board: DemoState) -> Text:
    """One line: agreed version, versions in which objects may be stored, running migration."""
    agreed = Text(board.agreed or NOTHING, style=VERSION_STYLES.get(board.agreed, "bold red"))
    stored = ", ".join(board.persisted) or "?"
    return Text.assemble(
        "agreed on: ", agreed, f"; may be stored as: {stored}; migration: ", _migration(board)
    )


def _migration(board: DemoState) -> Text:
    migration = board.migration
    if migration is None:
        return Text("none")
    style = PHASE_STYLES.get(migration.phase, "")
    return Text.assemble((migration.phase, style), f" ({shown(progress_of(migration))})")
