"""Replicas of a custom resource: reads and validates them at the paths that the CRD declares.

Paths are field names joined by dots, such as `.spec.replicas`. Not here: the scale subresource.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import field_errors
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.type_values import INT32_MAX
from restow.registry.resource import Object, ScalePaths

_GO_TYPES: Final = {
    type(None): "<nil>",
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


class WrongType(Exception):
    """The value at a path has the wrong type."""


def scale_problems(obj: Object, paths: ScalePaths, *, is_status: bool) -> list[StatusCause]:
    """Validate replicas and selector; a write of the status does not validate `spec.replicas`."""
    causes = []
    for path in (
        (paths.status_replicas,)
        if is_status
        else (
            paths.spec_replicas,
            paths.status_replicas,
        )
    ):
        causes += _replicas_problems(obj, path)
    if paths.label_selector:
        try:
            value_at(obj, paths.label_selector, str)
        except WrongType as error:
            causes.append(field_errors.invalid(paths.label_selector, "", str(error)))
    return causes


def _replicas_problems(obj: Object, path: str) -> list[StatusCause]:
    try:
        count = value_at(obj, path, int) or 0
    except WrongType as error:
        return [field_errors.invalid(path, 0, str(error))]
    if count < 0:
        return [field_errors.invalid(path, count, "should be a non-negative integer")]
    if count > INT32_MAX:
        why = f"should be less than or equal to {INT32_MAX}"
        return [field_errors.invalid(path, count, why)]
    return []


def names_of(path: str) -> list[str]:
    """Return the field names of a path, outermost first."""
    return path.removeprefix(".").split(".")


def value_at(obj: Object, path: str, wanted: type) -> Any:
    """Return the value at a path; None if it does not exist. Raises `WrongType`."""
    value: Any = obj
    names = names_of(path)
    for depth, name in enumerate(names):
        if value is None:
            return None
        if type(value) is not dict:
            raise _wrong(names[: depth + 1], value, "map[string]interface{}")
        if name not in value:
            return None
        value = value[name]
    if type(value) is not wanted:
        raise _wrong(names, value, _GO_TYPES[wanted])
    return value


def _wrong(names: list[str], value: Any, wanted: str) -> WrongType:
    found = _GO_TYPES.get(type(value), type(value).__name__)
    return WrongType(
        f".{'.'.join(names)} accessor error: {_in_go(value)} is of the type {found},"
        f" expected {wanted}"
    )


def _in_go(value: Any) -> str:
    """Format a value as Go does in the messages of kube-apiserver."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{' '.join(map(_in_go, value))}]"
    if isinstance(value, dict):
        inner = " ".join(f"{name}:{_in_go(value[name])}" for name in sorted(value))
        return f"map[{inner}]"
    return str(value)[: field_errors.VALUE_LENGTH_MAX]
