"""What `restow migrate` shows while it runs."""

from io import StringIO

from rich.console import Console

from restow.cli.migrate_board import Board

ESCAPE = "\x1b]0;mine\x07"


def test_what_servers_say_cannot_steer_the_terminal() -> None:
    """The message of a request is written by whoever may write its status."""
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=120, markup=False)
    condition = {"type": "Running", "status": "True", "message": f"busy {ESCAPE}"}
    with Board(is_quiet=False, console=console) as board:
        board.follow("widgets")({"status": {"conditions": [condition]}})
    assert "busy ·]0;mine·" in out.getvalue()
    assert ESCAPE not in out.getvalue()
