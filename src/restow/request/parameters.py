"""Validates query parameters that many verbs share. Pure.

An invalid parameter is rejected before anything is done: 400 if it cannot be parsed, 422 if its
value is not supported.
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
"""Timeout of every request except watches."""
WRITE_SECONDS_MAX: Final = 34.0
"""Timeout of writes of one object: a blocked write blocks others."""
WATCH_SECONDS_MIN: Final = 1800.0
"""Minimum duration of a watch that requests none; twice that is the maximum."""

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
# Subresources that are the object or a part of it: others may take longer.
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
    """Validate the parameters that every resource request may have. Raises 400 or 422."""
    if info.query:
        check_timeout(info)
        check_field_manager(info)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Timeouts of requests that do not request a shorter one."""

    request_seconds: float = REQUEST_SECONDS_MAX
    write_seconds: float = WRITE_SECONDS_MAX
    watch_seconds: float = WATCH_SECONDS_MIN


DEADLINES: Final = Deadlines()


def seconds_of(info: RequestInfo, deadlines: Deadlines = DEADLINES) -> float:
    """Timeout of a request: the requested one, up to the server's maximum.

    Zero or less means that none was requested. Watches have durations of their own. An invalid
    duration is ignored here: `check_timeout` rejects it.
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
    """`timeout` must be a duration in Go's format."""
    if "timeout" not in info.query:
        return
    text = info.parameter("timeout")
    if text and (len(text) > DURATION_LENGTH_MAX or not _DURATION.fullmatch(text)):
        raise status.bad_request(
            "invalid timeout specified in the request URL - time: invalid duration"
            f' "{text[:DURATION_LENGTH_MAX]}"'
        )


def check_field_manager(info: RequestInfo) -> None:
    """The name of a field manager must be short and printable."""
    if "fieldManager" not in info.query:
        return
    if causes := name_problems(info.parameter("fieldManager"), "fieldManager"):
        raise invalid_options(info, causes)


def field_validation(info: RequestInfo) -> str:
    """Return how to treat unknown and duplicate fields. Raises 422."""
    mode = info.parameter("fieldValidation") or "Warn"
    if mode not in _FIELD_VALIDATION:
        cause = field_errors.not_supported("fieldValidation", mode, _FIELD_VALIDATION)
        raise invalid_options(info, [cause])
    return mode


def is_dry_run(info: RequestInfo) -> bool:
    """Whether the request is a dry run. Raises 422 for an unknown value."""
    values = info.query.get("dryRun")
    if not values:
        return False
    for value in values:
        if value != "All":
            cause = field_errors.not_supported("dryRun", value, ["All"])
            raise invalid_options(info, [cause])
    return True


def invalid_options(info: RequestInfo, causes: list[Any]) -> status.StatusError:
    """The 422 for invalid options of a request."""
    kind = _OPTIONS.get(info.verb, "ListOptions")
    return status.invalid(GroupKind("meta.k8s.io", kind), "", causes)
