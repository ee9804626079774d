"""JSON patch: a list of operations on paths, applied all or none.

The patched document is not modified. A container is copied when an operation first changes it and
then modified in place, so ten thousand operations on one large object cost one copy of it.

A body that is not a list of objects is a 400; an invalid operation, or one that does not match the
document, is a 422; clients depend on the difference. Where Kubernetes is more lenient than RFC
6902, so is this implementation, because patches rely on it: `replace` sets a missing member, `copy`
of a missing member yields null, a negative index counts from the end, `add` without a value adds
null, and a `~` that escapes nothing is literal. It is stricter in one respect: only `replace` and
`test` apply to the whole document.

Amplification by short patches is limited: the number of operations, the bytes that `copy` copies,
and the items that are moved by insertions and removals in lists.

Not here: decoding of the body (`codec`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

from restow.apimachinery.codec import DEPTH_MAX, exceeds_depth
from restow.apimachinery.json_values import json_equal
from restow.apimachinery.status import Invalid, bad_request, invalid_patch, too_large

OPERATIONS_MAX: Final = 10_000
COPIED_BYTES_MAX: Final = 3 * 1024 * 1024
# Moving a list of pointers is fast; this many take about a tenth of a second.
MOVED_ITEMS_MAX: Final = 50_000_000

_INDEX: Final = re.compile(r"[+-]?[0-9]{1,18}")
_ESCAPE: Final = re.compile(r"~[01]")
_NAMES: Final = frozenset({"add", "remove", "replace", "move", "copy", "test"})
_HAVE_SOURCE: Final = frozenset({"move", "copy"})
_ON_WHOLE: Final = frozenset({"replace", "test"})
_MEMBERS: Final = frozenset({"op", "path", "from", "value"})


class PatchOperation(NamedTuple):
    """One operation. Paths are lists of keys and indexes, as strings; the empty path is the
    document.
    """

    name: str
    path: tuple[str, ...]
    source: tuple[str, ...] = ()
    value: Any = None


class JsonPatch:
    """A valid patch; it can be applied again after a conflict."""

    __slots__ = ("operations", "unknown")

    def __init__(
        self, operations: tuple[PatchOperation, ...], unknown: tuple[str, ...] = ()
    ) -> None:
        self.operations = operations
        # Unknown members of operations, as paths in the patch.
        self.unknown = unknown

    @classmethod
    def parse(cls, value: Any) -> JsonPatch:
        """Parse a patch from its JSON value."""
        if type(value) is not list:
            raise bad_request("a JSON patch must be a list of operations")
        if len(value) > OPERATIONS_MAX:
            raise too_large(
                f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, "
                f"got {len(value)}"
            )
        operations = tuple(_operation(each, index) for index, each in enumerate(value))
        return cls(operations, tuple(_unknown_members(value)))

    def apply(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the document after all operations; it must still be an object."""
        target = _Target(document)
        for index, operation in enumerate(self.operations):
            try:
                target.perform(operation)
            except _Mismatch as error:
                raise _mismatch(index, operation, str(error)) from None
        result = target.root
        if type(result) is not dict:
            raise invalid_patch("the patched object is not a JSON object")
        if target.may_be_too_deep and exceeds_depth(result):
            raise invalid_patch(f"the patched object is nested more than {DEPTH_MAX} levels deep")
        return result


class _Mismatch(Exception):
    """An operation does not match the document."""


class _Target:
    """A document that is being patched, and which of its containers are private copies."""

    __slots__ = ("_copied_bytes", "_moved_items", "_own", "may_be_too_deep", "root")

    def __init__(self, document: Any) -> None:
        self.root = document
        self.may_be_too_deep = False
        # By `id()`; the containers are referenced, so that no id is reused.
        self._own: dict[int, Any] = {}
        self._copied_bytes = 0
        self._moved_items = 0

    def perform(self, operation: PatchOperation) -> None:
        match operation.name:
            case "add":
                self._put_checked(operation)
            case "replace":
                self._put_checked(operation)
            case "remove":
                self._remove(operation.path)
            case "test":
                self._test(operation)
            case "move":
                self._move(operation)
            case _:
                value = self._copy_of(self._get_or_null(operation.source))
                self._note_depth(operation)
                self._add(operation.path, value)

    def _put_checked(self, operation: PatchOperation) -> None:
        value, path = operation.value, operation.path
        if exceeds_depth(value, DEPTH_MAX - len(path)):
            raise _Mismatch(f"the result would be nested more than {DEPTH_MAX} levels deep")
        if operation.name == "add":
            self._add(path, value)
        elif not path:
            self.root = value
        else:
            container = self._own_container(path)
            if type(container) is dict:
                container[path[-1]] = value
            else:
                container[_index(path[-1], len(container))] = value

    def _add(self, path: tuple[str, ...], value: Any) -> None:
        container = self._own_container(path)
        if type(container) is dict:
            container[path[-1]] = value
        elif path[-1] == "-":
            container.append(value)
        else:
            index = _index(path[-1], len(container) + 1)
            self._count_moved(len(container) - index)
            container.insert(index, value)

    def _remove(self, path: tuple[str, ...]) -> Any:
        container = self._own_container(path)
        position = _position(container, path[-1])
        if type(container) is list:
            self._count_moved(len(container) - position)
        return container.pop(position)

    def _test(self, operation: PatchOperation) -> None:
        # A missing member equals null here.
        if not json_equal(self._get_or_null(operation.path), operation.value):
            raise _Mismatch("the value differs")

    def _move(self, operation: PatchOperation) -> None:
        self._note_depth(operation)
        # Remove first, then add: a value cannot be moved into itself.
        self._add(operation.path, self._remove(operation.source))

    def _note_depth(self, operation: PatchOperation) -> None:
        if len(operation.path) > len(operation.source):
            self.may_be_too_deep = True

    def _get_or_null(self, path: tuple[str, ...]) -> Any:
        """Return a value; null for a missing member of an object."""
        if not path:
            return self.root
        container = self._get(path[:-1])
        if type(container) is dict:
            return container.get(path[-1])
        return self._get_in(container, path[-1])

    def _get(self, path: tuple[str, ...]) -> Any:
        value = self.root
        for part in path:
            value = self._get_in(value, part)
        return value

    @staticmethod
    def _get_in(container: Any, part: str) -> Any:
        if type(container) is not dict and type(container) is not list:
            raise _Mismatch(f"nothing exists at {_shown(part)}")
        return container[_position(container, part)]

    def _own_container(self, path: tuple[str, ...]) -> Any:
        """Return the container of a path's last part, copied so that it may be modified in
        place.
        """
        if type(self.root) is not dict and type(self.root) is not list:
            raise _Mismatch("the document is neither an object nor a list")
        container = self.root = self._owned(self.root)
        for part in path[:-1]:
            position = _position(container, part)
            inner = container[position]
            if type(inner) is not dict and type(inner) is not list:
                raise _Mismatch(f"{_shown(part)} is neither an object nor a list")
            owned = container[position] = self._owned(inner)
            container = owned
        return container

    def _owned(self, container: Any) -> Any:
        if id(container) in self._own:
            return container
        copy = container.copy()
        self._own[id(copy)] = copy
        return copy

    def _copy_of(self, value: Any) -> Any:
        """Return a deep copy: containers that are modified in place must not be shared."""
        try:
            encoded = orjson.dumps(value)
        except orjson.JSONEncodeError:
            raise _Mismatch(
                f"the result would be nested more than {DEPTH_MAX} levels deep"
            ) from None
        self._copied_bytes += len(encoded)
        if self._copied_bytes > COPIED_BYTES_MAX:
            raise too_large(
                f"the copy operations of a JSON patch may copy at most {COPIED_BYTES_MAX} bytes"
            )
        return orjson.loads(encoded) if type(value) is dict or type(value) is list else value

    def _count_moved(self, items: int) -> None:
        self._moved_items += items
        if self._moved_items > MOVED_ITEMS_MAX:
            raise too_large("the JSON patch moves list items too often")


def _position(container: Any, part: str) -> Any:
    """Return the key or index of an existing value."""
    if type(container) is dict:
        if part not in container:
            raise _Mismatch(f"{_shown(part)} does not exist")
        return part
    return _index(part, len(container))


def _index(part: str, end: int) -> int:
    """Parse a list index; a negative one counts from the end."""
    if not _INDEX.fullmatch(part):
        raise _Mismatch(f"{_shown(part)} is not a list index")
    index = int(part)
    if not -end <= index < end:
        raise _Mismatch(f"index {part} is out of range")
    return index + end if index < 0 else index


def _operation(value: Any, index: int) -> PatchOperation:
    if value is None:
        value = {}
    if type(value) is not dict:
        raise bad_request(f"operation {index} of the JSON patch is invalid: it is not an object")
    name = _text(value, "op", index)
    if name not in _NAMES:
        raise _invalid_operation(index, f"Unexpected kind: {_shown(name or 'unknown')}")
    path = _path(value, "path", index)
    if not path and name not in _ON_WHOLE:
        raise _invalid_operation(index, f"{name} does not apply to the whole document")
    if name in _HAVE_SOURCE:
        source = _path(value, "from", index)
        if not source:
            raise _invalid_operation(index, f"{name} does not apply to the whole document")
        return PatchOperation(name, path, source=source)
    return PatchOperation(name, path, value=value.get("value"))


def _unknown_members(operations: list[Any]) -> Iterator[str]:
    for index, operation in enumerate(operations):
        if operation is not None:
            for name in sorted(operation.keys() - _MEMBERS):
                yield f"[{index}].{name}"


def _path(value: dict[str, Any], member: str, index: int) -> tuple[str, ...]:
    """Return the parts of a path. Anything before the first slash is ignored."""
    text = _text(value, member, index)
    if text is None:
        raise _invalid_operation(index, f'it has no "{member}"')
    if not text:
        return ()
    parts = text.split("/")[1:]
    if not parts:
        raise _invalid_operation(index, f'its "{member}" must start with a slash')
    if len(parts) > DEPTH_MAX:
        raise _invalid_operation(index, f'its "{member}" has more than {DEPTH_MAX} parts')
    if "~" not in text:
        return tuple(parts)
    return tuple(_ESCAPE.sub(_unescaped, part) for part in parts)


def _text(value: dict[str, Any], member: str, index: int) -> str | None:
    text = value.get(member)
    if text is not None and type(text) is not str:
        raise bad_request(
            f'operation {index} of the JSON patch is invalid: its "{member}" is not a string'
        )
    return text


def _unescaped(found: re.Match[str]) -> str:
    return "/" if found[0] == "~1" else "~"


def _invalid_operation(index: int, why: str) -> Invalid:
    return invalid_patch(f"operation {index} of the JSON patch is invalid: {why}")


def _mismatch(index: int, operation: PatchOperation, why: str) -> Invalid:
    where = "/".join(("", *operation.path))[:256]
    return invalid_patch(f"operation {index} ({operation.name} {where}): {why}")


def _shown(part: str) -> str:
    return f'"{part[:64]}"'
