"""Validation of limit ranges: min, default request, default and max must be in this order.

Not here: their effect on pods and claims, which is admission.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from restow.apimachinery import quantity
from restow.kinds.validation.container_rules import check_amount, is_whole
from restow.kinds.validation.fields import Causes, Object, listed, part

_LISTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_USUAL: Final = ("default", "defaultRequest")
_OF_CONTAINERS: Final = ("Pod", "Container")
# Pairs of values in this order, the message otherwise, and the fields that it names.
_ORDER: Final = (
    ("min", "max", "min value {} is greater than max value {}", "min", "min"),
    (
        *("min", "defaultRequest", "min value {} is greater than default request value {}"),
        *("defaultRequest", "defaultRequest"),
    ),
    (
        *("defaultRequest", "max", "default request value {} is greater than max value {}"),
        *("defaultRequest", "defaultRequest"),
    ),
    (
        *("defaultRequest", "default"),
        "default request value {} is greater than default limit value {}",
        *("defaultRequest", "defaultRequest"),
    ),
    ("min", "default", "min value {} is greater than default value {}", "default", "min"),
    ("default", "max", "default value {} is greater than max value {}", "default", "max"),
)


def validate_limit_range(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate a limit range; on an update only if its spec has changed."""
    spec = part(new, "spec")
    if old is not None and spec == part(old, "spec"):
        return
    kinds: set[Any] = set()
    for field, limit in listed(spec, "limits", "spec.limits"):
        kind = limit.get("type")
        causes.once(f"{field}.type", kind, kinds)
        _check_limit(causes, limit, field)


def _check_limit(causes: Causes, limit: Object, field: str) -> None:
    kind = limit.get("type")
    if kind == "Pod":
        for name in _USUAL:
            if limit.get(name):
                causes.forbidden(f"{field}.{name}", "may not be specified when `type` is 'Pod'")
    if kind == "PersistentVolumeClaim" and not any(
        "storage" in part(limit, name) for name in ("min", "max")
    ):
        why = "either minimum or maximum storage value is required, but neither was provided"
        causes.required(f"{field}.limits", why)
    names: set[str] = set()
    for each in _LISTS:
        amounts = part(limit, each)
        names |= amounts.keys()
        for name in amounts if kind in _OF_CONTAINERS else ():
            # Only the name is checked here: the quantity does not matter.
            check_amount(causes, f"{field}.{each}[{name}]", name, "0")
    for name in sorted(names):
        _check_order(causes, limit, field, name)


def _check_order(causes: Causes, limit: Object, field: str, name: str) -> None:
    texts = {each: part(limit, each)[name] for each in _LISTS if name in part(limit, each)}
    values: dict[str, Fraction] = {each: quantity.parse(str(text)) for each, text in texts.items()}
    for less, more, words, place, shown in _ORDER:
        if less in values and more in values and values[less] > values[more]:
            why = words.format(texts[less], texts[more])
            causes.invalid(f"{field}.{place}[{name}]", texts[shown], why)
    _check_ratio(causes, f"{field}.maxLimitRequestRatio[{name}]", texts, values)
    if is_whole(name) and values.get("default", 0) != values.get("defaultRequest", 0):
        if not values.keys() >= set(_USUAL):
            return
        why = (
            f"default value {texts['default']} must equal to defaultRequest value "
            f"{texts['defaultRequest']} in {name}"
        )
        where = f"{field}.defaultRequest[{name}]"
        causes.invalid(where, texts["defaultRequest"], why)


def _check_ratio(
    causes: Causes, field: str, texts: dict[str, Any], values: dict[str, Fraction]
) -> None:
    ratio = values.get("maxLimitRequestRatio")
    if ratio is None:
        return
    shown = texts["maxLimitRequestRatio"]
    if ratio < 1:
        causes.invalid(field, shown, f"ratio {shown} is less than 1")
    if values.get("min") and "max" in values:
        most = values["max"] / values["min"]
        if ratio > most:
            causes.invalid(field, shown, f"ratio {shown} is greater than max/min = {float(most):f}")
