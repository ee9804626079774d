"""Output that all commands share: errors and JSON."""

import sys
from typing import Any

import orjson


def fail(command: str, error: object, code: int) -> int:
    """Print on standard error why a command failed, and return the exit code."""
    print(f"restow {command}: {error}", file=sys.stderr)
    return code


def print_json(value: Any) -> None:
    """Print indented JSON."""
    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
