"""Rules of events, in their stored form. The newer of their groups demands more than the older.

Not here: how the two forms become one another (`restow.kinds.conversions.event`).
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
# Where events about what is in no namespace are: those of old clients, and the others.
_OLD_PLACES: Final = ("", _DEFAULT)
_NEW_PLACES: Final = (_DEFAULT, "kube-system")
_UNSET: Final = ("firstTimestamp", "lastTimestamp", "count")
# What stays of an event that is sent again; only its series goes on.
_KEPT: Final = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp"),
    *("count", "type", "eventTime", "action", "related"),
)


def validate_event(new: Object, old: Object | None) -> Causes:
    """Of the core group."""
    return _problems(new, old, reporter="reportingComponent")


def validate_new_event(new: Object, old: Object | None) -> Causes:
    """Of the group of events."""
    causes = _problems(new, old, reporter="reportingController")
    if old is None or new.get("series") != old.get("series"):
        _check_series(causes, new)
    if old is not None:
        keep(causes, new, old, field="", names=_KEPT)
        _keep_reporter(causes, new, old)
        return causes
    if not new.get("eventTime"):
        causes.append(errors.required("eventTime"))
    if new.get("type") not in ("Normal", "Warning"):
        why = f"has invalid value: {new.get('type') or ''}"
        causes.append(errors.invalid("type", "", why))
    source = part(new, "source")
    unset = [name for name in _UNSET if new.get(name)]
    if source.get("component") or source.get("host"):
        unset.append("source")
    causes += [errors.invalid(name, "", "needs to be unset") for name in unset]
    return causes


def _problems(new: Object, old: Object | None, *, reporter: str) -> Causes:
    causes: Causes = []
    namespace = part(new, "metadata").get("namespace") or ""
    about = part(new, "involvedObject").get("namespace") or ""
    is_new_form = bool(new.get("eventTime"))
    if about:
        is_right = is_new_form or about == namespace
    else:
        is_right = namespace in (_NEW_PLACES if is_new_form else _OLD_PLACES)
    if not is_right:
        why = "does not match event.namespace"
        causes.append(errors.invalid("involvedObject.namespace", about, why))
    if is_new_form and old is None:
        _check_new_form(causes, new, reporter)
    return causes


def _check_new_form(causes: Causes, new: Object, reporter: str) -> None:
    controller = new.get("reportingComponent") or ""
    if not controller:
        causes.append(errors.required(reporter))
    if problem := qualified_name_problem(controller):
        causes.append(errors.invalid(reporter, controller, problem))
    for name in ("reportingInstance", "action", "reason"):
        if not new.get(name):
            causes.append(errors.required(name))
        _check_length(causes, name, new.get(name), _TEXT_MAX)
    _check_length(causes, "message", new.get("message"), _NOTE_MAX)


def _check_length(causes: Causes, field: str, text: Any, length_max: int) -> None:
    if text and len(text.encode(errors="surrogatepass")) > length_max:
        why = f"can have at most {length_max} characters"
        causes.append(errors.invalid(field, "", why))


def _check_series(causes: Causes, new: Object) -> None:
    series = new.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < _SERIES_MIN:
        why = f"should be at least {_SERIES_MIN}"
        causes.append(errors.invalid("series.count", "", why))
    if not series.get("lastObservedTime"):
        causes.append(errors.required("series.lastObservedTime"))


def _keep_reporter(causes: Causes, new: Object, old: Object) -> None:
    for name, shown in (
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ):
        if (new.get(name) or "") != (old.get(name) or ""):
            causes.append(errors.immutable(shown, new.get(name)))
