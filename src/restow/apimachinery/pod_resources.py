"""Resource requests and limits of pods, summed over their containers, and the QoS class.

    containers          run concurrently: they are added
    init containers     run one after the other: the largest counts, if it exceeds the sum
    sidecars            init containers that keep running beside all later containers
    the pod itself      its own cpu and memory requests and limits replace the sums

Pure. Not here: limits on requests (`limit_ranges`, `quotas`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

from restow.apimachinery import quantity

Object = dict[str, Any]

HUGE_PAGES: Final = "hugepages-"
"""Prefix of huge page resources."""
_OF_PODS: Final = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount, and the family of suffixes for formatting it."""

    value: Fraction
    family: str = "decimal"

    def __add__(self, other: Amount) -> Amount:
        """Add amounts; the first nonzero one determines the suffix family."""
        return Amount(self.value + other.value, self.family if self.value else other.family)

    def __str__(self) -> str:
        return quantity.write(self.value, self.family)


Amounts = Mapping[str, Amount]
"""Amounts by resource name: `cpu`, `memory`, `example.com/device`."""
Side = Literal["requests", "limits"]


def amounts_in(values: object) -> dict[str, Amount]:
    """Parse a resource list of an object. Invalid quantities are ignored."""
    found: dict[str, Amount] = {}
    for name, text in (values if isinstance(values, dict) else {}).items():
        try:
            found[name] = Amount(*quantity.read(str(text)))
        except ValueError:
            continue
    return found


def is_extended(name: str) -> bool:
    """Report whether a resource is an extended one, such as a device."""
    return "/" in name and "kubernetes.io/" not in name


def amounts_of(container: Object, side: Side) -> dict[str, Amount]:
    """Return the requests or limits of a container, or of any object with `resources`."""
    resources = container.get("resources")
    return amounts_in(resources.get(side)) if isinstance(resources, dict) else {}


def pod_amounts(
    pod: Object, side: Side, *, of_pods: tuple[str, ...] = _OF_PODS
) -> dict[str, Amount]:
    """Return the total requests or limits of a pod.

    `of_pods` are prefixes of the resources that a pod may specify for all its containers.
    """
    spec = pod.get("spec") or {}
    total: dict[str, Amount] = {}
    for container in spec.get("containers") or ():
        _add(total, amounts_of(container, side))
    restarted: dict[str, Amount] = {}
    greatest: dict[str, Amount] = {}
    for container in spec.get("initContainers") or ():
        own = amounts_of(container, side)
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(restarted, own)
            own = dict(restarted)
        else:
            _add(own, restarted)
        _raise(greatest, own)
    _raise(total, greatest)
    own = amounts_of(spec, side)
    return total | {name: amount for name, amount in own.items() if name.startswith(of_pods)}


def qos_class(spec: Object) -> str:
    """Return the QoS class: `Guaranteed`, `Burstable` or `BestEffort`.

    Pod-level resources replace those of the containers.
    """
    sources = [spec]
    if spec.get("resources") is None:
        sources = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    requests: dict[str, Fraction] = {}
    limits: dict[str, Fraction] = {}
    are_limited = True
    for each in sources:
        _add_counted(requests, amounts_of(each, "requests"))
        found = _add_counted(limits, amounts_of(each, "limits"))
        are_limited = are_limited and found == len(_OF_PODS)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if are_limited and requests == limits else "Burstable"


def _add_counted(total: dict[str, Fraction], amounts: Amounts) -> int:
    """Add the resources that determine the QoS class; return their number."""
    counted = [name for name in _OF_PODS if name in amounts and amounts[name].value > 0]
    for name in counted:
        total[name] = total.get(name, Fraction(0)) + amounts[name].value
    return len(counted)


def _add(total: dict[str, Amount], more: Amounts) -> None:
    for name, amount in more.items():
        known = total.get(name)
        total[name] = amount if known is None else known + amount


def _raise(total: dict[str, Amount], other: Amounts) -> None:
    for name, amount in other.items():
        known = total.get(name)
        if known is None or amount.value > known.value:
            total[name] = amount
