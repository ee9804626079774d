"""Query parameters that many verbs share, checked in one place. Pure.

A parameter that makes no sense is refused before anything is done: 400 for what cannot be read,
422 for what can be read but is no option.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from restow.apimachinery import field_errors, status
from restow.apimachinery.apply.entries import name_problems
from restow.apimachinery.names import GroupKind
from restow.request.request_info import RequestInfo

DURATION_LENGTH_MAX: Final = 64
REQUEST_SECONDS_MAX: Final = 60.0
"""How long any request but a watch may take."""
WRITE_SECONDS_MAX: Final = 34.0
"""How long a write of one object may take: a write that is held up holds up others."""
WATCH_SECONDS_MIN: Final = 1800.0
"""How long a watch lasts that does not say it: so long at least, and twice that at most."""

_DURATION: Final = re.compile(r"[-+]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_WRITES: Final = frozenset({"create", "update", "patch", "delete"})
# Subresources that are the object, or a part of it: others do what takes longer.
_PARTS: Final = frozenset({"", "status", "scale", "finalize"})
_FIELD_VALIDATION: Final = ("Ignore", "Warn", "Strict")
_OPTIONS: Final = {
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
    "deletecollection": "DeleteOptions",
}


def check_parameters(info: RequestInfo) -> None:
    """Check what every request to a resource may carry. Raises 400 or 422."""
    if info.query:
        check_timeout(info)
        check_field_manager(info)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long requests may take that do not want it shorter."""

    request_seconds: float = REQUEST_SECONDS_MAX
    write_seconds: float = WRITE_SECONDS_MAX
    watch_seconds: float = WATCH_SECONDS_MIN


DEADLINES: Final = Deadlines()


def seconds_of(info: RequestInfo, deadlines: Deadlines = DEADLINES) -> float:
    """How long a request may take: as long as it says, but not longer than all may.

    Zero or less is no wish. Watches take their own time. What is no duration counts as no wish
    here: `check_timeout` refuses it.
    """
    if info.verb == "watch":
        return math.inf
    longest = deadlines.request_seconds
    if info.is_resource and info.verb in _WRITES and info.subresource in _PARTS:
        longest = min(longest, deadlines.write_seconds)
    seconds = 0.0
    text = info.parameter("timeout")
    if text and len(text) <= DURATION_LENGTH_MAX and not text.startswith("-"):
        parts = _DURATION_PART.findall(text)
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    return seconds if 0 < seconds < longest else longest


def check_timeout(info: RequestInfo) -> None:
    """`timeout` must be a duration as Go writes it."""
    if "timeout" not in info.query:
        return
    text = info.parameter("timeout")
    if text and (len(text) > DURATION_LENGTH_MAX or not _DURATION.fullmatch(text)):
        raise status.bad_request(
            "invalid timeout specified in the request URL - time: invalid duration"
            f' "{text[:DURATION_LENGTH_MAX]}"'
        )


def check_field_manager(info: RequestInfo) -> None:
    """The name of a field manager is short and printable."""
    if "fieldManager" not in info.query:
        return
    if causes := name_problems(info.parameter("fieldManager"), "fieldManager"):
        raise invalid_options(info, causes)


def field_validation(info: RequestInfo) -> str:
    """What to do about unknown and repeated fields. Raises 422."""
    mode = info.parameter("fieldValidation") or "Warn"
    if mode not in _FIELD_VALIDATION:
        cause = field_errors.not_supported("fieldValidation", mode, _FIELD_VALIDATION)
        raise invalid_options(info, [cause])
    return mode


def is_dry_run(info: RequestInfo) -> bool:
    """Whether nothing shall be stored. Raises 422 for a wish that is not known."""
    values = info.query.get("dryRun")
    if not values:
        return False
    for value in values:
        if value != "All":
            cause = field_errors.not_supported("dryRun", value, ["All"])
            raise invalid_options(info, [cause])
    return True


def invalid_options(info: RequestInfo, causes: list[Any]) -> status.StatusError:
    """The 422 for options of a request."""
    kind = _OPTIONS.get(info.verb, "ListOptions")
    return status.invalid(GroupKind("meta.k8s.io", kind), "", causes)
