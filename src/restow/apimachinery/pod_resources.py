"""What pods ask for and are limited to: the sums over their containers, and the class of service.

    containers          run together: they add up
    init containers     run one after the other: the greatest of them counts, if it is more
    restarted ones      run from their turn on, beside all that come later
    the pod itself      what it says of processor and memory counts in the place of the sums

Pure. Not here: who may ask for how much (`limit_ranges`, `quotas`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

from restow.apimachinery import quantity

Object = dict[str, Any]

HUGE_PAGES: Final = "hugepages-"
"""How the names of pages begin that are larger than others."""
_OF_PODS: Final = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of something, and the family of suffixes that it is shown with."""

    value: Fraction
    family: str = "decimal"

    def __add__(self, other: Amount) -> Amount:
        """The first that is something decides how the sum is shown."""
        return Amount(self.value + other.value, self.family if self.value else other.family)

    def __str__(self) -> str:
        return quantity.write(self.value, self.family)


Amounts = Mapping[str, Amount]
"""By the name of a resource: `cpu`, `memory`, `example.com/device`."""
Side = Literal["requests", "limits"]


def amounts_in(values: object) -> dict[str, Amount]:
    """A list of resources as objects have it. What is no quantity is nobody's to count."""
    found: dict[str, Amount] = {}
    for name, text in (values if isinstance(values, dict) else {}).items():
        try:
            found[name] = Amount(*quantity.read(str(text)))
        except ValueError:
            continue
    return found


def is_extended(name: str) -> bool:
    """Whether a resource is neither part of every node nor of the system itself: somebody's own
    devices and the like, which are counted."""
    return "/" in name and "kubernetes.io/" not in name


def amounts_of(container: Object, side: Side) -> dict[str, Amount]:
    """What a container asks for, or is limited to; the same of whatever has `resources`."""
    resources = container.get("resources")
    return amounts_in(resources.get(side)) if isinstance(resources, dict) else {}


def pod_amounts(
    pod: Object, side: Side, *, of_pods: tuple[str, ...] = _OF_PODS
) -> dict[str, Amount]:
    """What a pod asks for, or is limited to, as a whole. `of_pods`: how names begin of what a pod
    may say itself for all of its containers."""
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


def service_class(spec: Object) -> str:
    """`Guaranteed` if all get as much as they may take, `BestEffort` if none asks for anything.

    What the pod says itself counts in the place of what its containers say.
    """
    asking = [spec]
    if spec.get("resources") is None:
        asking = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    requests: dict[str, Fraction] = {}
    limits: dict[str, Fraction] = {}
    are_limited = True
    for each in asking:
        _add_counted(requests, amounts_of(each, "requests"))
        found = _add_counted(limits, amounts_of(each, "limits"))
        are_limited = are_limited and found == len(_OF_PODS)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if are_limited and requests == limits else "Burstable"


def _add_counted(total: dict[str, Fraction], amounts: Amounts) -> int:
    """Add what decides on the class of service; how many amounts it is."""
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
