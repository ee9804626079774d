"""What patches need to know about JSON values: whether two are equal, and how they are compared.

Not here: how values are read and written (`codec`), and patches themselves.
"""

from __future__ import annotations

from typing import Any


def json_equal(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON: 1 and 1.0 are, 1 and true are not.

    Python says the same, except that it holds true and 1 for equal. So only what Python finds
    equal is looked at again, and only where there are containers or a bool.
    """
    try:
        return one == other and _no_bool_is_number(one, other)
    except RecursionError:
        # Only a patch in the middle of its work can be that deep, and it is refused in the end.
        return False


def _no_bool_is_number(one: Any, other: Any) -> bool:
    kind = type(one)
    if kind is dict:
        return all(_no_bool_is_number(value, other[key]) for key, value in one.items())
    if kind is list:
        return all(map(_no_bool_is_number, one, other))
    return (kind is bool) == (type(other) is bool)


def scalar_identity(value: Any) -> tuple[bool, Any] | None:
    """A key for dictionaries that keeps true and 1 apart; None for lists and objects."""
    kind = type(value)
    return None if kind is dict or kind is list else (kind is bool, value)
