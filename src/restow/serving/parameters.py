"""Query parameters that many verbs share, checked in one place. Pure.

A parameter that makes no sense is refused before anything is done: 400 for what cannot be read,
422 for what can be read but is no option.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from restow.machinery import field_errors, status
from restow.machinery.names import GroupKind
from restow.serving.request_info import RequestInfo

FIELD_MANAGER_LENGTH_MAX: Final = 128
DURATION_LENGTH_MAX: Final = 64
REQUEST_SECONDS_MAX: Final = 60.0
"""How long any request but a watch may take."""

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


def seconds_of(info: RequestInfo) -> float:
    """How long a request may take: as long as it says, but not longer than all may.

    Zero or less is no wish. Watches take their own time. What is no duration counts as no wish
    here: `check_timeout` refuses it.
    """
    if info.verb == "watch":
        return math.inf
    seconds = 0.0
    text = info.parameter("timeout")
    if text and len(text) <= DURATION_LENGTH_MAX and not text.startswith("-"):
        parts = _DURATION_PART.findall(text)
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    return seconds if 0 < seconds < REQUEST_SECONDS_MAX else REQUEST_SECONDS_MAX


def check_timeout(info: RequestInfo) -> None:
    """`timeout` must be a duration as Go writes it."""
    if "timeout" not in info.query:
        return
    text = info.parameter("timeout")
    if text and (len(text) > DURATION_LENGTH_MAX or not _DURATION.fullmatch(text)):
        raise status.bad_request(
            f"invalid timeout specified in the request URL: {text[:DURATION_LENGTH_MAX]!r} is no"
            " duration"
        )


def check_field_manager(info: RequestInfo) -> None:
    """The name of a field manager is short and printable."""
    if "fieldManager" not in info.query:
        return
    name = info.parameter("fieldManager")
    if len(name) > FIELD_MANAGER_LENGTH_MAX:
        cause = field_errors.too_long("fieldManager", length_max=FIELD_MANAGER_LENGTH_MAX)
        raise invalid_options(info, [cause])
    if not name.isprintable():
        why = "should only contain printable characters"
        cause = field_errors.invalid("fieldManager", name, why)
        raise invalid_options(info, [cause])


def field_validation(info: RequestInfo) -> str:
    """What to do about unknown and repeated fields. Raises 422."""
    mode = info.parameter("fieldValidation") or "Warn"
    if mode not in _FIELD_VALIDATION:
        cause = field_errors.not_supported("fieldValidation", mode, _FIELD_VALIDATION)
        raise invalid_options(info, [cause])
    return mode


def is_dry_run(info: RequestInfo) -> bool:
    """Whether nothing shall be stored. Raises 422 for a wish that is not known."""
    wishes = info.query.get("dryRun")
    if not wishes:
        return False
    for wish in wishes:
        if wish != "All":
            cause = field_errors.not_supported("dryRun", wish, ["All"])
            raise invalid_options(info, [cause])
    return True


def invalid_options(info: RequestInfo, causes: list[Any]) -> status.StatusError:
    """The 422 for options of a request."""
    kind = _OPTIONS.get(info.verb, "ListOptions")
    return status.invalid(GroupKind("meta.k8s.io", kind), "", causes)
