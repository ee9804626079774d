"""Argument types that several commands use: ports, bounded integers, durations, directories.

An invalid value raises ArgumentTypeError; argparse prints its text after the option's name.

Not here: types that only one command uses.
"""

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path

PORT_MAX = 65_535
_DIGITS_MAX = 18
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}


def port(text: str) -> int:
    number = _digits(text)
    if number is None or number > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number (0 to {PORT_MAX})")
    return number


def whole_number(smallest: int, largest: int, *, hint: str = "") -> Callable[[str], int]:
    """Return a type that reads integers from `smallest` to `largest`, both included."""

    def read(text: str) -> int:
        number = _digits(text)
        if number is None or not smallest <= number <= largest:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a number from {smallest:,} to {largest:,}{hint}"
            )
        return number

    return read


def duration(text: str) -> float:
    """Read a positive duration, in seconds or with a unit: 300, 5m or 1h."""
    unit = _UNIT_SECONDS.get(text[-1:], 0)
    try:
        seconds = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 300, 5m or 1h")
    return seconds


def directory(text: str) -> Path:
    """Read a directory that exists or can be created: neither it nor a parent is a file."""
    path = Path(text)
    for place in (path, *path.parents):
        # `Path` would raise where access is denied; the later mkdir reports that error instead.
        if os.path.lexists(place) and not os.path.isdir(place):  # noqa: PTH112
            raise argparse.ArgumentTypeError(f"{place} is not a directory")
    return path


def _digits(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else None
