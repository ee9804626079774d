"""Validation of subresources of pods that change parts of the spec or status.

    binding               the node, as the server writes it
    ephemeralcontainers   additional containers of a running pod; none is changed or removed
    eviction              the condition with the reason, as the server writes it
    resize                CPU and memory of the containers

`keep_rest` restores all fields that a subresource does not change, `change_problems` validates the
others. Pure.

Not here: rules of a pod as a whole (`workloads`, `pods`), and authorization of subresources.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import field_errors as errors
from restow.apimachinery.name_formats import dns_label_problem
from restow.apimachinery.pod_accounts import MIRROR
from restow.apimachinery.pod_resources import qos_class
from restow.kinds.validation.fields import Causes, Object, listed, part, require

BINDING: Final = "binding"
EPHEMERAL: Final = "ephemeralcontainers"
EVICTION: Final = "eviction"
RESIZE: Final = "resize"
PARTS: Final = frozenset({BINDING, EPHEMERAL, EVICTION, RESIZE})
UNCOUNTED: Final = frozenset({BINDING, EVICTION})
"""Subresources that do not increment the generation of a pod."""

_CONTAINERS: Final = ("containers", "initContainers")
_RESIZED: Final = ("cpu", "memory")
_RESIZED_FIELDS: Final = ("resources", "resizePolicy")
_KEPT_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")
# Fields that an ephemeral container may not set.
_NOT_EPHEMERAL: Final = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)
_NOT_EPHEMERAL_TEXT: Final = "cannot be set for an Ephemeral Container"


def keep_rest(new: Object, old: Object, *, subresource: str) -> None:
    """Restore in the new pod, in place, all fields that the subresource does not change."""
    if subresource not in (EPHEMERAL, RESIZE):
        return
    spec, before = part(new, "spec"), part(old, "spec")
    if subresource == EPHEMERAL:
        kept = {**before, "ephemeralContainers": spec.get("ephemeralContainers") or []}
        if not kept["ephemeralContainers"]:
            del kept["ephemeralContainers"]
    else:
        if any(len(_list(spec, name)) != len(_list(before, name)) for name in _CONTAINERS):
            return  # validation rejects it, and needs the containers for the message
        kept = {**before, **{name: _resized(spec, before, name) for name in _given(before)}}
    new["spec"] = kept
    for fields, was, names in (
        (new, old, ("status",)),
        (new["metadata"], old["metadata"], _KEPT_METADATA),
    ):
        for name in names:
            if name in was:
                fields[name] = was[name]
            else:
                fields.pop(name, None)


def change_problems(causes: Causes, new: Object, old: Object, *, subresource: str) -> None:
    """Validate a change of a pod through a subresource."""
    is_mirror = MIRROR in part(old, "metadata", "annotations")
    if subresource == EPHEMERAL:
        if is_mirror:
            causes.forbidden("[]", "static pods do not support ephemeral containers")
            return
        _check_ephemeral(causes, part(new, "spec"), part(old, "spec"))
    elif subresource == RESIZE:
        if is_mirror:
            causes.forbidden("[]", "static pods cannot be resized")
            return
        if part(old, "spec", "os").get("name") == "windows":
            causes.forbidden("[]", "windows pods cannot be resized")
            return
        _check_resize(causes, new, old)


def _check_ephemeral(causes: Causes, spec: Object, old: Object) -> None:
    others = {each.get("name") for name in _CONTAINERS for _, each in listed(spec, name, name)}
    names: set[Any] = set(others)
    for place, each in listed(spec, "ephemeralContainers", "spec.ephemeralContainers"):
        require(causes, each, field=place, names=("name", "image"))
        name = each.get("name") or ""
        if name and (problem := dns_label_problem(name)):
            causes.invalid(f"{place}.name", name, problem)
        elif name in names:
            causes.duplicate(f"{place}.name", name)
        names.add(name or None)
        target = each.get("targetContainerName")
        if target and target not in others:
            causes.not_found(f"{place}.targetContainerName", target)
        causes += [
            errors.forbidden(f"{place}.{field}", _NOT_EPHEMERAL_TEXT)
            for field in _NOT_EPHEMERAL
            if each.get(field)
        ]
        for mounted, mount in listed(each, "volumeMounts", f"{place}.volumeMounts"):
            causes += [
                errors.forbidden(f"{mounted}.{field}", _NOT_EPHEMERAL_TEXT)
                for field in ("subPath", "subPathExpr")
                if mount.get(field)
            ]
    now = {each.get("name"): each for each in _list(spec, "ephemeralContainers")}
    for each in _list(old, "ephemeralContainers"):
        name = each.get("name")
        what = "removed" if name not in now else "changed"
        if now.get(name) != each:
            why = f'existing ephemeral containers "{name}" may not be {what}\n'
            causes.forbidden("spec.ephemeralContainers", why)


def _check_resize(causes: Causes, new: Object, old: Object) -> None:
    spec, before = part(new, "spec"), part(old, "spec")
    quality = part(old, "status").get("qosClass") or qos_class(before)
    if qos_class(spec) != quality:
        causes.invalid("spec", quality, "Pod QOS Class may not change as a result of resizing")
    in_order = True
    for name in _CONTAINERS:
        was, now = _list(before, name), _list(spec, name)
        if len(was) != len(now):
            causes.forbidden(f"spec.{name}", f"{name} may not be added or removed on resize")
            in_order = False
            continue
        for index, (one, other) in enumerate(zip(now, was, strict=True)):
            if one.get("name") != other.get("name"):
                why = f"{name} may not be renamed or reordered on resize"
                causes.forbidden(f"spec.{name}[{index}].name", why)
                in_order = False
    if in_order:
        for name in ("initContainers", "containers"):
            _check_amounts(causes, _list(spec, name), _list(before, name), name=name)


def _check_amounts(causes: Causes, now: list[Object], before: list[Object], *, name: str) -> None:
    for index, (one, other) in enumerate(zip(now, before, strict=True)):
        place = f"spec.{name}[{index}]"
        resources, was = part(one, "resources"), part(other, "resources")
        for kind in ("requests", "limits"):
            if part(was, kind).keys() - part(resources, kind).keys():
                causes.forbidden(f"{place}.resources.{kind}", f"resource {kind} cannot be removed")
        if _unresized(one) != _unresized(other):
            if name == "containers":
                causes.forbidden("spec", "only cpu and memory resources are mutable")
            else:
                why = "only cpu and memory resources for init or sidecar containers are mutable"
                causes.forbidden(place, why)


def _resized(spec: Object, before: Object, name: str) -> list[Object]:
    """The old containers with the resources of the new ones."""
    found: list[Object] = []
    for now, was in zip(_list(spec, name), _list(before, name), strict=True):
        if now.get("name") != was.get("name"):
            return _list(spec, name)  # validation rejects it, and needs them for the message
        fresh = {key: value for key, value in was.items() if key not in _RESIZED_FIELDS}
        found.append(fresh | {key: now[key] for key in _RESIZED_FIELDS if key in now})
    return found


def _unresized(container: Object) -> Object:
    """A container without the fields that a resize may change."""
    fresh: Object = {key: value for key, value in container.items() if key != "resources"}
    for kind, amounts in part(container, "resources").items():
        left = amounts
        if isinstance(amounts, dict):
            left = {name: each for name, each in amounts.items() if name not in _RESIZED}
        if left:
            fresh[f"resources.{kind}"] = left
    return fresh


def _given(spec: Object) -> list[str]:
    return [name for name in _CONTAINERS if name in spec]


def _list(obj: Object, name: str) -> list[Object]:
    found = obj.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
