"""The output of `restow migrate` while it runs."""

from io import StringIO

import pytest
from rich.console import Console

from restow.cli.migrate_progress import ProgressDisplay
from restow.migration.manual import ManualOutcome, ManualResult

ESCAPE = "\x1b]0;mine\x07"


def test_messages_cannot_contain_terminal_sequences() -> None:
    """The message of a migration is written by any client that can write its status."""
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=120, markup=False)
    condition = {"type": "Running", "status": "True", "message": f"busy {ESCAPE}"}
    with ProgressDisplay(is_quiet=False, console=console) as board:
        board.follow("widgets")({"status": {"conditions": [condition]}})
    assert "busy ·]0;mine·" in out.getvalue()
    assert ESCAPE not in out.getvalue()


def test_keys_are_shown_as_they_are_called(capsys: pytest.CaptureFixture[str]) -> None:
    """Text between two colons is part of a key name, not an emoji."""
    message = "all objects are stored as v1, under the key aesgcm:new:6f1d0c3b9a52"
    with ProgressDisplay(is_quiet=False) as board:
        board.summary(
            [ManualResult(resource="secrets", verdict=ManualOutcome.SKIPPED, message=message)]
        )
    assert message in capsys.readouterr().out
