"""Equality and identity of JSON values, for patches.

Not here: decoding and encoding (`codec`), and patches themselves.
"""

from __future__ import annotations

from typing import Any


def json_equal(one: Any, other: Any) -> bool:
    """Report whether two values are equal in JSON: 1 equals 1.0, but not true.

    Python agrees, except that true equals 1. So only values that Python considers equal are
    compared again, and only containers and bools.
    """
    try:
        return one == other and _no_bool_is_number(one, other)
    except RecursionError:
        # Only an intermediate state of a patch can be that deep, and it is rejected in the end.
        return False


def _no_bool_is_number(one: Any, other: Any) -> bool:
    kind = type(one)
    if kind is dict:
        return all(_no_bool_is_number(value, other[key]) for key, value in one.items())
    if kind is list:
        return all(map(_no_bool_is_number, one, other))
    return (kind is bool) == (type(other) is bool)


def scalar_identity(value: Any) -> tuple[bool, Any] | None:
    """Return a dictionary key that distinguishes true and 1; None for lists and objects."""
    kind = type(value)
    return None if kind is dict or kind is list else (kind is bool, value)
