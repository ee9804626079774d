"""The arithmetic of object quotas: what an object uses, what a quota allows, the words of refusals.

A quota names what it limits: `count/PLURAL.GROUP` for each kind, and older names for some of the
core group. All of it is a number of objects, or of something that objects have. What a quota says
of processor time and memory is kept and not counted: nothing here runs.

A quota with scopes is about pods only. Scopes that ask for more than a pod says of itself
(`CrossNamespacePodAffinity`), or about volumes, match nothing.

Pure. Not here: who charges a quota (`restow.serving.admission.quota`), and who counts anew
(`restow.resources.housekeeping.quotas`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from restow.machinery import quantity

Object = dict[str, Any]
Usage = Mapping[str, int]
"""By the names that quotas use."""

PLURAL: Final = "resourcequotas"

_COUNT: Final = "count/"
_OLD_NAMES: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
    }
)
_NODE_PORTS: Final = "services.nodeports"
_LOAD_BALANCERS: Final = "services.loadbalancers"
_PARTS: Final = {_NODE_PORTS: "services", _LOAD_BALANCERS: "services"}
# They come by themselves, and nobody is to be kept from saying what has happened.
_NEVER_COUNTED: Final = frozenset({("", "events"), ("events.k8s.io", "events")})
# Whose objects are not all alike.
_VARIED: Final = frozenset({"pods", "services"})
_ENDED: Final = frozenset({"Failed", "Succeeded"})


def names_of(group: str, plural: str) -> frozenset[str]:
    """The names by which quotas limit objects of a resource."""
    if (group, plural) in _NEVER_COUNTED:
        return frozenset()
    if group:
        return frozenset({f"{_COUNT}{plural}.{group}"})
    found = {f"{_COUNT}{plural}"}
    if plural in _OLD_NAMES:
        found.add(plural)
    found.update(name for name, whole in _PARTS.items() if whole == plural)
    return frozenset(found)


def resource_of(name: str) -> tuple[str, str] | None:
    """The group and plural of what a name in a quota counts; None: nothing that is counted."""
    if name.startswith(_COUNT):
        plural, _, group = name[len(_COUNT) :].partition(".")
        found = (group, plural)
    elif name in _OLD_NAMES:
        found = ("", name)
    elif name in _PARTS:
        found = ("", _PARTS[name])
    else:
        return None
    return None if found in _NEVER_COUNTED else found


def is_varied(group: str, plural: str) -> bool:
    """Whether objects must be read to know what they use; of all others each uses one."""
    return not group and plural in _VARIED


def may_grow(group: str, plural: str) -> bool:
    """Whether an update can make an object use more of what is charged for."""
    return not group and plural == "services"


def usage_of(group: str, plural: str, obj: Object) -> dict[str, int]:
    """What one object uses."""
    used = dict.fromkeys(names_of(group, plural), 1)
    if not is_varied(group, plural):
        return used
    if plural == "pods":
        used["pods"] = int(_part(obj, "status").get("phase") not in _ENDED)
    else:
        used |= _service_parts(_part(obj, "spec"))
    return used


def growth(now: Usage, before: Usage) -> dict[str, int]:
    """What is used more than before; never less than nothing."""
    return {name: more for name, used in now.items() if (more := used - before.get(name, 0)) > 0}


def _service_parts(spec: Object) -> dict[str, int]:
    ports = [each for each in spec.get("ports") or () if isinstance(each, dict)]
    is_balanced = spec.get("type") == "LoadBalancer"
    count = 0
    if is_balanced and spec.get("allocateLoadBalancerNodePorts") is False:
        count = sum(1 for each in ports if each.get("nodePort"))
    elif is_balanced or spec.get("type") == "NodePort":
        count = len(ports)
    return {_NODE_PORTS: count, _LOAD_BALANCERS: int(is_balanced)}


class Quota(NamedTuple):
    """What a quota allows and has charged, of what is counted here."""

    name: str
    hard: Mapping[str, int]
    """As its status says: a quota holds once somebody has counted what is there."""
    used: Mapping[str, int]
    scopes: tuple[Object, ...] = ()

    def wanted(self, usage: Usage) -> dict[str, int]:
        """The part of a usage that it limits."""
        return {name: more for name, more in usage.items() if more > 0 and name in self.hard}

    def problem(self, wanted: Usage) -> str:
        """Why that may not be used besides; empty when it may."""
        if unknown := wanted.keys() - self.used.keys():
            return f"status unknown for quota: {self.name}, resources: {','.join(sorted(unknown))}"
        exceeded = sorted(
            name for name, more in wanted.items() if self.used[name] + more > self.hard[name]
        )
        if not exceeded:
            return ""
        requested, used, limited = (
            ",".join(f"{name}={text(values[name])}" for name in exceeded)
            for values in (wanted, self.used, self.hard)
        )
        return (
            f"exceeded quota: {self.name}, requested: {requested}, used: {used}, limited: {limited}"
        )

    def charged(self, wanted: Usage) -> Quota:
        more = {name: self.used[name] + added for name, added in wanted.items()}
        return self._replace(used={**self.used, **more})

    def is_about(self, group: str, plural: str, obj: Object) -> bool:
        """Whether an object is one of those that its scopes select."""
        if not self.scopes:
            return True
        if (group, plural) != ("", "pods"):
            return False
        return all(_is_in_scope(each, obj) for each in self.scopes)


def read_quota(obj: Object) -> Quota:
    """A ResourceQuota object, as far as it is about what is counted here."""
    spec, status = _part(obj, "spec"), _part(obj, "status")
    scopes = [{"scopeName": each, "operator": "Exists"} for each in spec.get("scopes") or ()]
    scopes += _part(spec, "scopeSelector").get("matchExpressions") or ()
    return Quota(
        name=_part(obj, "metadata").get("name") or "",
        hard=_numbers(_part(status, "hard")),
        used=_numbers(_part(status, "used")),
        scopes=tuple(scopes),
    )


def with_used(obj: Object, used: Usage) -> Object:
    """A ResourceQuota object that has charged this; what is not counted here stays."""
    status = _part(obj, "status")
    texts = {name: text(value) for name, value in used.items()}
    return {**obj, "status": {**status, "used": {**_part(status, "used"), **texts}}}


def text(value: int) -> str:
    """A number as clients see it."""
    return quantity.canonical(str(value))


def _numbers(values: Object) -> dict[str, int]:
    found = {}
    for name, value in values.items():
        if resource_of(name) is not None:
            try:
                found[name] = int(quantity.parse(str(value)))
            except ValueError:
                continue  # validated when it was written; what cannot be read limits nothing
    return found


def _is_in_scope(requirement: Object, pod: Object) -> bool:
    spec = _part(pod, "spec")
    match requirement.get("scopeName"):
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return _is_best_effort(spec)
        case "NotBestEffort":
            return not _is_best_effort(spec)
        case "PriorityClass":
            return _is_selected(requirement, spec.get("priorityClassName") or "")
        case _:
            return False


def _is_best_effort(spec: Object) -> bool:
    """Whether no container wants or is given any share of what a node has."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), spec]
    resources = [_part(each, "resources") for each in containers]
    return not any(each.get("requests") or each.get("limits") for each in resources)


def _is_selected(requirement: Object, value: str) -> bool:
    values = requirement.get("values") or ()
    match requirement.get("operator"):
        case "Exists":
            return bool(value)
        case "DoesNotExist":
            return not value
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case _:
            return False


def _part(obj: Object, name: str) -> Object:
    found = obj.get(name)
    return found if isinstance(found, dict) else {}
