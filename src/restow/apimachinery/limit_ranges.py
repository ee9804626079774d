"""Limit ranges: defaults for containers, and violations of limits.

A LimitRange contains limits for containers, pods and persistent volume claims. Messages and the
annotation are those of Kubernetes. Maps are processed by sorted name, so messages are stable.

Pure. Not here: when limits are checked (`restow.admission.limit_ranger`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from restow.apimachinery.pod_resources import Amount, Amounts, amounts_in, amounts_of, pod_amounts

Object = dict[str, Any]

ANNOTATION: Final = "kubernetes.io/limit-ranger"
CLAIM: Final = "PersistentVolumeClaim"
_CONTAINER: Final = "Container"
_POD: Final = "Pod"
# Above it thousandths do not fit into 64 bits, so whole numbers are compared.
_MILLI_MAX: Final = (2**63 - 1) // 1000
_NOTHING: Final = Amount(Fraction(0))


class Limit(NamedTuple):
    """One entry of a LimitRange."""

    type: str
    min: Amounts
    max: Amounts
    ratio: Amounts


class LimitRange(NamedTuple):
    """A parsed LimitRange object."""

    limits: tuple[Limit, ...]
    default_requests: Object
    default_limits: Object
    """Defaults of containers, as strings."""


def read_limit_range(obj: Object) -> LimitRange:
    """Parse a LimitRange object."""
    limits: list[Limit] = []
    requests: Object = {}
    most: Object = {}
    for each in (obj.get("spec") or {}).get("limits") or ():
        kind = each.get("type") or ""
        ratio = amounts_in(each.get("maxLimitRequestRatio"))
        limits.append(Limit(kind, amounts_in(each.get("min")), amounts_in(each.get("max")), ratio))
        if kind == _CONTAINER:
            requests |= each.get("defaultRequest") or {}
            most |= each.get("default") or {}
    return LimitRange(tuple(limits), requests, most)


# Defaults.


def with_defaults(pod: Object, ranges: Iterable[LimitRange]) -> Object | None:
    """Return a pod with default requests and limits; None if none are missing."""
    changed: Object | None = None
    for each in ranges:
        if each.default_requests or each.default_limits:
            changed = _defaulted(changed or pod, each) or changed
    return changed


def _defaulted(pod: Object, limits: LimitRange) -> Object | None:
    notes: list[str] = []
    spec = dict(pod.get("spec") or {})
    for part, words in (("containers", "container"), ("initContainers", "init container")):
        if spec.get(part):
            spec[part] = [
                _with_container_defaults(each, limits, words, notes) for each in spec[part]
            ]
    if not notes:
        return None
    metadata = dict(pod["metadata"])
    note = f"LimitRanger plugin set: {'; '.join(notes)}"
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: note}
    return {**pod, "metadata": metadata, "spec": spec}


def _with_container_defaults(
    container: Object, limits: LimitRange, words: str, notes: list[str]
) -> Object:
    resources = dict(container.get("resources") or {})
    sides = (
        ("requests", "request", limits.default_requests),
        ("limits", "limit", limits.default_limits),
    )
    is_changed = False
    for side, word, defaults in sides:
        given = resources.get(side) or {}
        if missing := sorted(defaults.keys() - given.keys()):
            is_changed = True
            resources[side] = {**given, **{name: defaults[name] for name in missing}}
            notes.append(f"{', '.join(missing)} {word} for {words} {container.get('name') or ''}")
    return {**container, "resources": resources} if is_changed else container


# Violations.


def pod_problem(pod: Object, limits: LimitRange) -> str:
    """Return why a limit range does not allow a pod; empty if it does."""
    spec, found = pod.get("spec") or {}, list[str]()
    for limit in limits.limits:
        if limit.type == _CONTAINER:
            for part in ("containers", "initContainers"):
                for each in spec.get(part) or ():
                    found += _problems(
                        limit, amounts_of(each, "requests"), amounts_of(each, "limits")
                    )
        elif limit.type == _POD:
            found += _problems(limit, pod_amounts(pod, "requests"), pod_amounts(pod, "limits"))
    return _text(found)


def claim_problem(claim: Object, limits: LimitRange) -> str:
    """Return why a limit range does not allow a claim; empty if it does. Only requests count."""
    requests, found = amounts_of(claim.get("spec") or {}, "requests"), list[str]()
    for limit in limits.limits:
        if limit.type == CLAIM:
            found += _each(limit.min, _min, limit.type, requests, {})
            found += _each(limit.max, _max_request, limit.type, requests, {})
    return _text(found)


def _problems(limit: Limit, requests: Amounts, limits: Amounts) -> list[str]:
    return [
        *_each(limit.min, _min, limit.type, requests, limits),
        *_each(limit.max, _max, limit.type, requests, limits),
        *_each(limit.ratio, _ratio, limit.type, requests, limits),
    ]


class _Comparison(NamedTuple):
    """The values of one limited resource that are compared."""

    what: str
    """As in `cpu usage per Container is 1`."""
    enforced: Amount
    request: Amount | None
    limit: Amount | None

    def compared(self) -> tuple[int, int, int]:
        """Return request, limit and the enforced amount, as integers of one precision."""
        exact = [each.value for each in (self.request or _NOTHING, self.limit or _NOTHING)]
        exact.append(self.enforced.value)
        whole = [math.ceil(value) for value in exact]
        if all(value <= _MILLI_MAX for value in whole):
            whole = [math.ceil(value * 1000) for value in exact]
        return whole[0], whole[1], whole[2]


_Rule = Callable[[_Comparison], str]


def _each(
    enforced: Amounts, rule: _Rule, kind: str, requests: Amounts, limits: Amounts
) -> list[str]:
    found = []
    for name in sorted(enforced):
        amount = enforced[name]
        values = _Comparison(
            _what(rule, name, kind, amount), amount, requests.get(name), limits.get(name)
        )
        found.append(rule(values))
    return [each for each in found if each]


def _what(rule: _Rule, name: str, kind: str, amount: Amount) -> str:
    if rule is _ratio:
        return f"{name} max limit to request ratio per {kind} is {amount}"
    return f"{'minimum' if rule is _min else 'maximum'} {name} usage per {kind} is {amount}"


def _min(values: _Comparison) -> str:
    request, limit, least = values.compared()
    if values.request is None:
        return f"{values.what}.  No request is specified"
    if request < least:
        return f"{values.what}, but request is {values.request}"
    if values.limit is not None and limit < least:
        return f"{values.what}, but limit is {values.limit}"
    return ""


def _max(values: _Comparison) -> str:
    request, limit, most = values.compared()
    if values.limit is None:
        return f"{values.what}.  No limit is specified"
    if limit > most:
        return f"{values.what}, but limit is {values.limit}"
    if values.request is not None and request > most:
        return f"{values.what}, but request is {values.request}"
    return ""


def _max_request(values: _Comparison) -> str:
    request, _limit, most = values.compared()
    if values.request is None:
        return f"{values.what}.  No request is specified"
    return f"{values.what}, but request is {values.request}" if request > most else ""


def _ratio(values: _Comparison) -> str:
    request, limit, _most = values.compared()
    if not request:
        return f"{values.what}, but no request is specified or request is 0"
    if not limit:
        return f"{values.what}, but no limit is specified or limit is 0"
    ratio, most = float(limit) / float(request), float(math.ceil(values.enforced.value))
    shown = ratio
    if most <= _MILLI_MAX:
        ratio, most = ratio * 1000, float(math.ceil(values.enforced.value * 1000))
    return f"{values.what}, but provided ratio is {shown:f}" if ratio > most else ""


def _text(problems: Sequence[str]) -> str:
    """Join distinct problems into one message."""
    distinct = list(dict.fromkeys(problems))
    if len(distinct) < 2:
        return "".join(distinct)
    return f"[{', '.join(distinct)}]"
