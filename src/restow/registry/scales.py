"""The scale subresource: builds autoscaling/v1 Scale objects and changes replicas.

Built-in kinds have their replicas at `spec.replicas`; the CRD of a custom kind declares the paths.
Not here: how a change is stored.
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery import status
from restow.registry.custom.replicas import WrongType, names_of, value_at
from restow.registry.resource import Object, Resource, ScalePaths

API_VERSION: Final = "autoscaling/v1"
_SHOWN: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of_object(
    resource: Resource, version: str, obj: Object, *, may_lack_replicas: bool = False
) -> Object:
    """Return an autoscaling/v1 Scale with the replicas of an object.

    Raises a 500 when replicas are required and a custom object has none, as kube-apiserver does.
    """
    paths = scale_paths(resource, version)
    metadata = _mapping(obj.get("metadata"))
    spec, state = _builtin_replicas(obj)
    if paths is not None:
        spec, state = _declared_replicas(obj, paths, may_lack_replicas=may_lack_replicas)
    return {
        "kind": "Scale",
        "apiVersion": API_VERSION,
        "metadata": {name: metadata[name] for name in _SHOWN if name in metadata},
        "spec": spec,
        "status": state,
    }


def with_replicas(resource: Resource, version: str, obj: Object, replicas: int) -> Object:
    """Return a copy of an object with another number of replicas."""
    paths = scale_paths(resource, version)
    names = ["spec", "replicas"] if paths is None else names_of(paths.spec_replicas)
    fresh = at = dict(obj)
    for name in names[:-1]:
        inner = at.get(name)
        if inner is not None and not isinstance(inner, dict):
            raise status.bad_request(f"cannot set {'.'.join(names)}: {name} is not an object")
        at[name] = at = dict(inner or {})
    at[names[-1]] = replicas
    return fresh


def scale_paths(resource: Resource, version: str) -> ScalePaths | None:
    """Return the declared replica paths of a custom kind; None for other kinds."""
    traits = resource.traits.get(version)
    return None if traits is None else traits.scale


def _builtin_replicas(obj: Object) -> tuple[Object, Object]:
    spec, state = _mapping(obj.get("spec")), _mapping(obj.get("status"))
    selector = _mapping(spec.get("selector"))
    labels = _mapping(selector.get("matchLabels")) or {
        name: value for name, value in selector.items() if isinstance(value, str)
    }
    shown: Object = {"replicas": state.get("replicas", 0)}
    if labels:
        shown["selector"] = ",".join(f"{key}={labels[key]}" for key in sorted(labels))
    return {"replicas": spec.get("replicas", 0)}, shown


def _declared_replicas(
    obj: Object, paths: ScalePaths, *, may_lack_replicas: bool
) -> tuple[Object, Object]:
    try:
        wanted = value_at(obj, paths.spec_replicas, int)
        shown: Object = {"replicas": value_at(obj, paths.status_replicas, int) or 0}
        selector = value_at(obj, paths.label_selector, str) if paths.label_selector else None
    except WrongType as error:
        raise status.internal(str(error)) from None  # stored before the paths were declared
    if wanted is None and not may_lack_replicas:
        raise status.internal(f'the spec replicas field "{paths.spec_replicas}" does not exist')
    if selector:
        shown["selector"] = selector
    return {"replicas": wanted or 0}, shown


def _mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}
