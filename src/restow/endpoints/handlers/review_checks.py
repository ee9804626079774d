"""Validation of access reviews, as causes of a 422.

Pure functions of the review alone. Not here: the result of a review (`reviews`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import field_errors, selectors, status
from restow.apimachinery.name_formats import label_value_problem, qualified_name_problem
from restow.apimachinery.names import GroupKind
from restow.apimachinery.status_error import StatusError
from restow.registry.resource import Object

Causes = list[status.StatusCause]

_NEEDS_VALUES: Final = ("In", "NotIn")
_NEEDS_NONE: Final = ("Exists", "DoesNotExist")
_SPEC: Final = "spec.resourceAttributes"
# managedFields is written by the server, so it is not validated as client input.
_IGNORED: Final = frozenset({"managedFields", "creationTimestamp"})


def check_access(kind: GroupKind, obj: Object) -> None:
    """Raise a 422 with all errors in an access review."""
    spec, metadata = obj.get("spec") or {}, obj["metadata"]
    is_self, is_local = kind.kind.startswith("Self"), kind.kind.startswith("Local")
    causes: Causes = []
    wanted, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if wanted is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        causes.append(field_errors.invalid("spec.nonResourceAttributes", _shown(path), why))
    if wanted is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes.append(field_errors.invalid(_SPEC, None, why))
    if not is_self and not spec.get("user") and not spec.get("groups"):
        why = "at least one of user or group must be specified"
        causes.append(field_errors.invalid("spec.user", spec.get("user") or "", why))
    for name in ("fieldSelector", "labelSelector"):
        causes += _selector_problems(name, (wanted or {}).get(name))
    ignored = _IGNORED | {"namespace"} if is_local else _IGNORED
    if any(value for name, value in metadata.items() if name not in ignored):
        why = "must be empty except for namespace" if is_local else "must be empty"
        causes.append(field_errors.invalid("metadata", metadata, why))
    if is_local and wanted is not None:
        namespace = wanted.get("namespace") or ""
        if namespace != metadata.get("namespace"):
            why = "must match metadata.namespace"
            causes.append(field_errors.invalid(f"{_SPEC}.namespace", namespace, why))
    if is_local and path is not None:
        why = "disallowed on this kind of request"
        causes.append(field_errors.invalid("spec.nonResourceAttributes", _shown(path), why))
    if causes:
        raise status.invalid(kind, "", causes)


def _shown(path: Object) -> Object:
    """The value as Kubernetes shows it in errors, with the names of its Go fields."""
    return {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}


def _selector_problems(name: str, selector: Object | None) -> Causes:
    """The errors in one selector; unknown operators are allowed, for newer clients."""
    if selector is None:
        return []
    field, causes = f"{_SPEC}.{name}", Causes()
    raw, requirements = selector.get("rawSelector"), selector.get("requirements")
    if raw and requirements:
        why = "may not specified at the same time as requirements"
        causes.append(field_errors.invalid(f"{field}.rawSelector", raw, why))
    if not raw and not requirements:
        why = f"when {field} is specified, requirements or rawSelector is required"
        causes.append(field_errors.required(f"{field}.requirements", why))
    for index, each in enumerate(requirements or ()):
        place = f"{field}.requirements[{index}]"
        causes += _requirement_problems(place, each, is_label=name == "labelSelector")
    return causes


def _requirement_problems(place: str, requirement: Object, *, is_label: bool) -> Causes:
    causes: Causes = []
    key, values = requirement.get("key") or "", requirement.get("values") or []
    operator = requirement.get("operator") or ""
    if not is_label and not key:
        causes.append(field_errors.required(f"{place}.key", "must be specified"))
    if operator in _NEEDS_VALUES and not values:
        why = "must be specified when `operator` is 'In' or 'NotIn'"
        causes.append(field_errors.required(f"{place}.values", why))
    if operator in _NEEDS_NONE and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        causes.append(field_errors.forbidden(f"{place}.values", why))
    if is_label:
        problem = qualified_name_problem(key)
        if problem:
            causes.append(field_errors.invalid(f"{place}.key", key, problem))
        for index, value in enumerate(values):
            problem = label_value_problem(value)
            if problem:
                causes.append(field_errors.invalid(f"{place}.values[{index}]", value, problem))
    return causes


def selector_errors(wanted: dict[str, Any]) -> str:
    """The unparseable parts of the selectors, in the wording of a review status. Selectors narrow a
    review, and RBAC roles ignore them."""
    problems: list[str] = []
    for name, parse in (
        ("fieldSelector", selectors.parse_field_selector),
        ("labelSelector", selectors.parse_label_selector),
    ):
        selector = wanted.get(name) or {}
        requirements = selector.get("requirements") or ()
        understood = sum(_is_understood(each, is_field=name[0] == "f") for each in requirements)
        is_lost = understood < len(requirements)
        try:
            parse(selector.get("rawSelector") or "")
        except StatusError:
            is_lost = True
        if is_lost:
            partly = "partially " if understood else ""
            problems.append(f"{_SPEC}.{name} {partly}ignored due to parse error")
    return "; ".join(problems)


def _is_understood(requirement: Object, *, is_field: bool) -> bool:
    operator = requirement.get("operator")
    if is_field:
        return operator in _NEEDS_VALUES and len(requirement.get("values") or ()) == 1
    return operator in (*_NEEDS_VALUES, *_NEEDS_NONE)
