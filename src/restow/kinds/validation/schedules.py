"""Validation of schedules: five fields of a crontab, or a predefined schedule.

Not here: computing times.
"""

from __future__ import annotations

import re
from typing import Final

_LENGTH_MAX: Final = 1024
_NAMES: Final = frozenset(
    {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
)
_EVERY: Final = re.compile(r"@every (?:[0-9]+(?:\.[0-9]*)?(?:ns|us|ms|s|m|h))+")
_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
# The bounds of each field, and its names for numbers.
_FIELDS: Final[tuple[tuple[int, int, dict[str, int]], ...]] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    (0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(?:/[A-Za-z][A-Za-z0-9_+-]{0,31}){0,2}")
_ZONE_PREFIX: Final = ("TZ=", "CRON_TZ=")


def schedule_problem(text: str) -> str | None:
    """Return why a schedule is invalid; None if it is valid."""
    if len(text) > _LENGTH_MAX:
        return f"must be no more than {_LENGTH_MAX} characters"
    if text.startswith(_ZONE_PREFIX):
        return "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
    if text.startswith("@"):
        known = text in _NAMES or _EVERY.fullmatch(text)
        return None if known else f"unrecognized descriptor: {text}"
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: {fields}"
    for field, (low, high, words) in zip(fields, _FIELDS, strict=True):
        for each in field.split(","):
            if problem := _range_problem(each, low, high, words):
                return problem
    return None


def _range_problem(text: str, low: int, high: int, words: dict[str, int]) -> str | None:
    """Validate `*`, `5`, `1-5`, each with an optional step."""
    span, slash, step = text.partition("/")
    if slash and (not _NUMBER.fullmatch(step) or int(step) == 0):
        return f"step of range should be a positive number: {text}"
    if span in ("*", "?"):
        return None
    ends = span.split("-")
    if len(ends) > 2:
        return f"too many hyphens: {text}"
    numbers = []
    for end in ends:
        number = words.get(end.lower())
        if number is None and not _NUMBER.fullmatch(end):
            return f"failed to parse int from {end}"
        numbers.append(int(end) if number is None else number)
    if numbers[0] < low:
        return f"beginning of range ({numbers[0]}) below minimum ({low}): {text}"
    if numbers[-1] > high:
        return f"end of range ({numbers[-1]}) above maximum ({high}): {text}"
    if numbers[0] > numbers[-1]:
        return f"beginning of range ({numbers[0]}) beyond end of range ({numbers[-1]}): {text}"
    return None


def zone_problem(text: str) -> str | None:
    """Return why a time zone is invalid; None if it is valid.

    Only the format is checked: this server has no time zone database.
    """
    if not text:
        return "timeZone must be nil or non-empty string"
    if text.lower() == "local":
        return (
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
    return None if _ZONE.fullmatch(text) else f"unknown time zone {text[:64]}"
