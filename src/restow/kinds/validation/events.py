"""Validation of events, in their stored form. `events.k8s.io` has stricter rules than `v1`.

Not here: conversion between the two (`restow.kinds.conversions.event`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import field_errors as errors
from restow.apimachinery.name_formats import qualified_name_problem
from restow.kinds.validation.fields import Causes, Object, keep, part

_TEXT_MAX: Final = 128
_NOTE_MAX: Final = 1024
_SERIES_MIN: Final = 2
_DEFAULT: Final = "default"
# The namespaces of events about cluster-scoped objects: of old clients, and of new ones.
_OLD_PLACES: Final = ("", _DEFAULT)
_NEW_PLACES: Final = (_DEFAULT, "kube-system")
_UNSET: Final = ("firstTimestamp", "lastTimestamp", "count")
# Immutable fields of an event; an update may change only its series.
_KEPT: Final = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp"),
    *("count", "type", "eventTime", "action", "related"),
)


def validate_event(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate an event of the core group."""
    _problems(causes, new, old, reporter="reportingComponent")


def validate_new_event(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate an event of `events.k8s.io`."""
    _problems(causes, new, old, reporter="reportingController")
    if old is None or new.get("series") != old.get("series"):
        _check_series(causes, new)
    if old is not None:
        keep(causes, new, old, field="", names=_KEPT)
        _keep_reporter(causes, new, old)
        return
    if not new.get("eventTime"):
        causes.required("eventTime")
    if new.get("type") not in ("Normal", "Warning"):
        causes.invalid("type", "", f"has invalid value: {new.get('type') or ''}")
    source = part(new, "source")
    unset = [name for name in _UNSET if new.get(name)]
    if source.get("component") or source.get("host"):
        unset.append("source")
    causes += [errors.invalid(name, "", "needs to be unset") for name in unset]


def _problems(causes: Causes, new: Object, old: Object | None, *, reporter: str) -> None:
    namespace = part(new, "metadata").get("namespace") or ""
    about = part(new, "involvedObject").get("namespace") or ""
    is_new_form = bool(new.get("eventTime"))
    if about:
        is_right = is_new_form or about == namespace
    else:
        is_right = namespace in (_NEW_PLACES if is_new_form else _OLD_PLACES)
    if not is_right:
        causes.invalid("involvedObject.namespace", about, "does not match event.namespace")
    if is_new_form and old is None:
        _check_new_form(causes, new, reporter)


def _check_new_form(causes: Causes, new: Object, reporter: str) -> None:
    controller = new.get("reportingComponent") or ""
    if not controller:
        causes.required(reporter)
    if problem := qualified_name_problem(controller):
        causes.invalid(reporter, controller, problem)
    for name in ("reportingInstance", "action", "reason"):
        if not new.get(name):
            causes.required(name)
        _check_length(causes, name, new.get(name), _TEXT_MAX)
    _check_length(causes, "message", new.get("message"), _NOTE_MAX)


def _check_length(causes: Causes, field: str, text: Any, length_max: int) -> None:
    if text and len(text.encode(errors="surrogatepass")) > length_max:
        causes.invalid(field, "", f"can have at most {length_max} characters")


def _check_series(causes: Causes, new: Object) -> None:
    series = new.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < _SERIES_MIN:
        causes.invalid("series.count", "", f"should be at least {_SERIES_MIN}")
    if not series.get("lastObservedTime"):
        causes.required("series.lastObservedTime")


def _keep_reporter(causes: Causes, new: Object, old: Object) -> None:
    for name, shown in (
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ):
        if (new.get(name) or "") != (old.get(name) or ""):
            causes.immutable(shown, new.get(name))
