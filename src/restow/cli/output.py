"""What all commands print in one way: why they failed, and JSON."""

import sys
from typing import Any

import orjson


def fail(command: str, error: object, code: int) -> int:
    """Say on standard error why a command failed; the exit code."""
    print(f"restow {command}: {error}", file=sys.stderr)
    return code


def print_json(value: Any) -> None:
    """Print an answer as JSON that people can read too."""
    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
