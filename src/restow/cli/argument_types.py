"""Readers of single words that several commands take: ports, numbers with bounds, directories.

What cannot be is refused with a sentence that argparse puts behind the option's name.

Not here: what only one command takes.
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
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return number


def whole_number(smallest: int, largest: int, *, hint: str = "") -> Callable[[str], int]:
    """A reader of numbers within these bounds, both of them included."""

    def read(text: str) -> int:
        number = _digits(text)
        if number is None or not smallest <= number <= largest:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no number from {smallest:,} to {largest:,}{hint}"
            )
        return number

    return read


def duration(text: str) -> float:
    """A time above zero, in seconds or with its unit: 300, 5m or 1h."""
    unit = _UNIT_SECONDS.get(text[-1:], 0)
    try:
        seconds = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time, such as 300, 5m or 1h")
    return seconds


def directory(text: str) -> Path:
    """A directory that is there, or that can be made: neither it nor what it is in is a file."""
    path = Path(text)
    for place in (path, *path.parents):
        # Where one may not look, `Path` would raise; then whoever makes the directory tells why.
        if os.path.lexists(place) and not os.path.isdir(place):  # noqa: PTH112
            raise argparse.ArgumentTypeError(f"{place} is no directory")
    return path


def _digits(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else None
