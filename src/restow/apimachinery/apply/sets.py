"""Field sets and their set operations.

A field set is its JSON form, the `fieldsV1` of `managedFields`: each key leads to the set below
that path. `{}` means that the path is a member. `{".": {}, "f:x": {}}` means that it is a member
and has members below it; `{"f:x": {}}` that only paths below it are members. So nothing is parsed
when an object is read, and nothing is built when it is written.

Sets share parts with other sets and must never be modified.

Not here: the field sets of objects (`values`), and the schemas that define their paths (`schema`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from restow.apimachinery.apply.elements import canonical, element_order, element_text

FieldSet: TypeAlias = dict[str, Any]

# A member with nothing below it; as a whole set, the empty set. Never modify it.
EMPTY: Final[FieldSet] = {}
# The key that marks a path with members below it as a member itself.
SELF: Final = "."
# Maximum members of all sets in one write; the size limit of a body allows few more.
MEMBERS_MAX: Final = 200_000
# Maximum total length of keys other than field names, in characters: each is parsed, and that
# blocks other requests.
KEY_CHARACTERS_MAX: Final = 128 * 1024


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of either set."""
    if not a or a is b:
        return b
    if not b:
        return a
    return _union_children(a, b)


def _union_children(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return `a` itself if it contains `b`: most managers write the same fields as before."""
    out = a
    for key, below in b.items():
        found = a.get(key)
        if found is None:
            joined = below
        elif found is below or not (found or below):
            continue
        elif found and below:
            joined = _union_children(found, below)
        else:
            joined = _union_below(found, below)
        if joined is not found:
            if out is a:
                out = a.copy()
            out[key] = joined
    return out


def _union_below(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the union below one path."""
    if not b:
        return a if not a or SELF in a else {SELF: EMPTY, **a}
    if not a:
        return b if SELF in b else {SELF: EMPTY, **b}
    return _union_children(a, b)


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of `a` that are not members of `b`, regardless of paths above or below."""
    if a is b:
        return EMPTY
    return _difference_children(a, b)


def _difference_children(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return `a` itself if it has no member of `b`. Mostly little is removed."""
    out = a
    for key, other in b.items():
        below = a.get(key)
        if below is None:
            continue
        rest = _difference_below(below, other)
        if rest is below:
            continue
        if out is a:
            out = a.copy()
        if rest is None:
            del out[key]
        else:
            out[key] = rest
    return out


def _difference_below(a: FieldSet, b: FieldSet) -> FieldSet | None:
    """Return what remains of a path and everything below it; None if nothing does."""
    if a is b:
        return None
    if not a:
        return None if not b or SELF in b else a
    if b:
        out = _difference_children(a, b)
    elif SELF in a:
        out = a.copy()
        del out[SELF]
    else:
        return a
    return a if out is a else _normal(out)


def covers(a: FieldSet, b: FieldSet) -> bool:
    """Report whether every member of `b` is a member of `a`."""
    for key, below in b.items():
        found = a.get(key)
        if found is None:
            return False
        if below:
            if not found or not covers(found, below):
                return False
        elif found and SELF not in found:
            return False
    return True


def are_apart(a: FieldSet, b: FieldSet) -> bool:
    """Report whether no member of one set is a member of the other or an ancestor of one."""
    for key, below in b.items():
        found = a.get(key)
        if found is not None and (not found or not below or not are_apart(found, below)):
            return False
    return True


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of both sets."""
    return a if a is b else _intersection_children(a, b)


def _intersection_children(a: FieldSet, b: FieldSet) -> FieldSet:
    if len(a) > len(b):
        a, b = b, a
    out = {}
    for key, below in a.items():
        other = b.get(key)
        if other is not None and (both := _intersection_below(below, other)) is not None:
            out[key] = both
    return out


def _intersection_below(a: FieldSet, b: FieldSet) -> FieldSet | None:
    if a is b:
        return a
    if not a:
        return a if not b or SELF in b else None
    if not b:
        return b if SELF in a else None
    return _normal(_intersection_children(a, b))


def _normal(below: FieldSet) -> FieldSet | None:
    """Return the canonical form: a single member is `{}`, and an empty set is omitted."""
    if not below:
        return None
    return EMPTY if len(below) == 1 and SELF in below else below


def contains(a: FieldSet, path: Iterable[str]) -> bool:
    """Report whether a path is a member; the empty path never is."""
    below: FieldSet | None = a
    is_given = False
    for element in path:
        is_given = True
        if (below := below.get(element) if below else None) is None:
            return False
    return is_given and (not below or SELF in below)


def members(a: FieldSet) -> Iterator[tuple[str, ...]]:
    """Return the paths of all members: those of a level first, then those below, each level sorted.

    This is the order in which Kubernetes lists conflicts.
    """
    return _members(a, ())


def _members(below: FieldSet, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    keys = sorted((key for key in below if key != SELF), key=element_order)
    for key in keys:
        if not below[key] or SELF in below[key]:
            yield (*above, key)
    for key in keys:
        if below[key]:
            yield from _members(below[key], (*above, key))


def leaves(a: FieldSet) -> FieldSet:
    """Return the members that have no members below them."""
    return {key: leaves(below) for key, below in a.items() if key != SELF}


def path_text(path: Iterable[str]) -> str:
    """Format a path as Kubernetes shows it: `.spec.containers[name="a"].image`."""
    return "".join(map(element_text, path))


class WireReader:
    """Parses the field sets of one write and enforces the limits on all of them together."""

    def __init__(self) -> None:
        self._members_left = MEMBERS_MAX
        self._characters_left = KEY_CHARACTERS_MAX

    def check(self, value: Any) -> FieldSet:
        """Return a client's field set with canonical keys; ValueError if it is not a field set.

        Path elements of an unknown kind are dropped: a newer server may have written them.
        """
        if type(value) is not dict:
            raise ValueError(f"a field set must be an object, not {_json_type(value)}")
        checked = self._read(value)
        checked.pop(SELF, None)
        return checked

    def _read(self, value: dict[str, Any]) -> FieldSet:
        out: FieldSet = {}
        self._members_left -= len(value)
        if self._members_left < 0:
            raise ValueError(f"field sets have more than {MEMBERS_MAX} members")
        for key, below in value.items():
            if key == SELF:
                out[SELF] = EMPTY
                continue
            element = key if key.startswith("f:") else self._element(key)
            if element is None:
                continue
            if below is not None and type(below) is not dict:
                raise ValueError(f"{key[:100]!r} must hold an object, not {_json_type(below)}")
            read = self._read(below) if below else EMPTY
            found = out.get(element)
            out[element] = read if found is None else _union_below(found, read)
        return EMPTY if len(out) == 1 and SELF in out else out

    def _element(self, key: str) -> str | None:
        self._characters_left -= len(key)
        if self._characters_left < 0:
            raise ValueError(
                f"field sets have keys of more than {KEY_CHARACTERS_MAX} characters together"
            )
        return canonical(key)


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    return names.get(type(value), "an array")
