"""JSON patch: a list of operations, each on a path, all of them or none.

The document that is patched stays as it is. A container is copied when an operation first changes
it, then changed in place, so that ten thousand operations on one large object cost one copy of it.

A patch that makes no sense is a 400; one that does not fit the document is a 422, and clients
depend on the difference. What a short patch could blow up is limited: the number of operations,
the bytes that `copy` copies, the items that are moved when a list gets or loses one in front.

Not here: how the body is read (`codec`).
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import orjson

from restow.machinery.codec import DEPTH_MAX, exceeds_depth
from restow.machinery.json_values import json_equal
from restow.machinery.status import (
    BadRequest,
    Invalid,
    bad_request,
    invalid_patch,
    too_large,
)

OPERATIONS_MAX: Final = 10_000
COPIED_BYTES_MAX: Final = 3 * 1024 * 1024
# A list of pointers is moved in a blink; this many take about a tenth of a second.
MOVED_ITEMS_MAX: Final = 50_000_000

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")
_NEEDS_VALUE: Final = frozenset({"add", "replace", "test"})
_NEEDS_FROM: Final = frozenset({"move", "copy"})


class Operation(NamedTuple):
    """One step. Paths are lists of keys and indexes, as text; the empty one is the document."""

    name: str
    path: tuple[str, ...]
    source: tuple[str, ...] = ()
    value: Any = None


class JsonPatch:
    """A patch that makes sense; it can be applied again when somebody else was faster."""

    __slots__ = ("operations",)

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self.operations = operations

    @classmethod
    def parse(cls, value: Any) -> JsonPatch:
        """Reads a patch from its JSON value."""
        if type(value) is not list:
            raise bad_request("a JSON patch must be a list of operations")
        if len(value) > OPERATIONS_MAX:
            raise too_large(
                f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, "
                f"got {len(value)}"
            )
        return cls(tuple(_operation(each, index) for index, each in enumerate(value)))

    def apply(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document after all operations; it must still be an object."""
        target = _Target(document)
        for index, operation in enumerate(self.operations):
            try:
                target.perform(operation)
            except _NotThere as error:
                raise _does_not_fit(index, operation, str(error)) from None
        result = target.root
        if type(result) is not dict:
            raise invalid_patch("the patched object is not a JSON object")
        if target.may_be_too_deep and exceeds_depth(result):
            raise invalid_patch(f"the patched object is nested more than {DEPTH_MAX} levels deep")
        return result


class _NotThere(Exception):
    """An operation does not fit the document."""


class _Target:
    """A document that is being patched, and which of its containers are copies of our own."""

    __slots__ = ("_copied_bytes", "_moved_items", "_own", "may_be_too_deep", "root")

    def __init__(self, document: Any) -> None:
        self.root = document
        self.may_be_too_deep = False
        # By identity; held as well, so that no identity is given to another container.
        self._own: dict[int, Any] = {}
        self._copied_bytes = 0
        self._moved_items = 0

    def perform(self, operation: Operation) -> None:
        match operation.name:
            case "add":
                self._put_checked(operation)
            case "replace":
                self._get(operation.path)
                self._put_checked(operation)
            case "remove":
                self._remove(operation.path)
            case "test":
                self._test(operation)
            case "move":
                self._move(operation)
            case _:
                value = self._copy_of(self._get(operation.source))
                self._note_depth(operation)
                self._add(operation.path, value)

    def _put_checked(self, operation: Operation) -> None:
        value, path = operation.value, operation.path
        if exceeds_depth(value, DEPTH_MAX - len(path)):
            raise _NotThere(f"it would nest more than {DEPTH_MAX} levels deep")
        if operation.name == "add":
            self._add(path, value)
        elif not path:
            self.root = value
        else:
            container = self._own_container(path)
            container[_position(container, path[-1])] = value

    def _add(self, path: tuple[str, ...], value: Any) -> None:
        if not path:
            self.root = value
            return
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
        if not path:
            raise _NotThere("the whole object cannot be removed")
        container = self._own_container(path)
        position = _position(container, path[-1])
        if type(container) is list:
            self._count_moved(len(container) - position)
        return container.pop(position)

    def _test(self, operation: Operation) -> None:
        *outer, last = operation.path or ("",)
        if operation.value is None and operation.path:
            # A member that is absent is as good as null here.
            container = self._get(tuple(outer))
            if type(container) is dict and last not in container:
                return
        if not json_equal(self._get(operation.path), operation.value):
            raise _NotThere("the value is another one")

    def _move(self, operation: Operation) -> None:
        source, path = operation.source, operation.path
        if path[: len(source)] == source:
            self._get(source)
            if path == source:
                return
            raise _NotThere("a value cannot be moved into itself")
        self._note_depth(operation)
        self._add(path, self._remove(source))

    def _note_depth(self, operation: Operation) -> None:
        if len(operation.path) > len(operation.source):
            self.may_be_too_deep = True

    def _get(self, path: tuple[str, ...]) -> Any:
        value = self.root
        for part in path:
            if type(value) is not dict and type(value) is not list:
                raise _NotThere(f"there is nothing at {_shown(part)}")
            value = value[_position(value, part)]
        return value

    def _own_container(self, path: tuple[str, ...]) -> Any:
        """The container of the last part of a path, after which it may be changed in place."""
        if type(self.root) is not dict and type(self.root) is not list:
            raise _NotThere("the document is neither object nor list")
        container = self.root = self._owned(self.root)
        for part in path[:-1]:
            position = _position(container, part)
            inner = container[position]
            if type(inner) is not dict and type(inner) is not list:
                raise _NotThere(f"{_shown(part)} is neither object nor list")
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
        """A whole copy: two places must not share a container that is changed in place."""
        try:
            encoded = orjson.dumps(value)
        except orjson.JSONEncodeError:
            raise _NotThere(f"it would nest more than {DEPTH_MAX} levels deep") from None
        self._copied_bytes += len(encoded)
        if self._copied_bytes > COPIED_BYTES_MAX:
            raise too_large(
                f"the copy operations of a JSON patch may copy at most {COPIED_BYTES_MAX} bytes"
            )
        return orjson.loads(encoded) if type(value) is dict or type(value) is list else value

    def _count_moved(self, items: int) -> None:
        self._moved_items += items
        if self._moved_items > MOVED_ITEMS_MAX:
            raise too_large("the JSON patch changes the beginning of long lists too often")


def _position(container: Any, part: str) -> Any:
    """The key or index of something that is there."""
    if type(container) is dict:
        if part not in container:
            raise _NotThere(f"there is no {_shown(part)}")
        return part
    return _index(part, len(container))


def _index(part: str, end: int) -> int:
    if not _INDEX.fullmatch(part):
        raise _NotThere(f"{_shown(part)} is no index of a list")
    index = int(part)
    if index >= end:
        raise _NotThere(f"index {part} is out of range")
    return index


def _operation(value: Any, index: int) -> Operation:
    if type(value) is not dict:
        raise _no_sense(index, "it is no object")
    name = value.get("op")
    if type(name) is not str:
        raise _no_sense(index, 'it has no "op"')
    path = _path(value, "path", index)
    if name in _NEEDS_VALUE:
        if "value" not in value:
            raise _no_sense(index, 'it has no "value"')
        return Operation(name, path, value=value["value"])
    if name in _NEEDS_FROM:
        return Operation(name, path, source=_path(value, "from", index))
    if name == "remove":
        return Operation(name, path)
    raise _no_sense(index, f"its op {_shown(name)} is unknown")


def _path(value: dict[str, Any], member: str, index: int) -> tuple[str, ...]:
    text = value.get(member)
    if type(text) is not str:
        raise _no_sense(index, f'it has no "{member}"')
    if not text:
        return ()
    if text[0] != "/":
        raise _no_sense(index, f'its "{member}" must begin with a slash')
    parts = text[1:].split("/")
    if len(parts) > DEPTH_MAX:
        raise _no_sense(index, f'its "{member}" has more than {DEPTH_MAX} parts')
    if "~" not in text:
        return tuple(parts)
    if _BAD_ESCAPE.search(text):
        raise _no_sense(index, f'in its "{member}", a ~ must be followed by 0 or 1')
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def _no_sense(index: int, why: str) -> BadRequest:
    return bad_request(f"operation {index} of the JSON patch makes no sense: {why}")


def _does_not_fit(index: int, operation: Operation, why: str) -> Invalid:
    where = "/".join(("", *operation.path))[:256]
    return invalid_patch(f"operation {index} ({operation.name} {where}): {why}")


def _shown(part: str) -> str:
    return f'"{part[:64]}"'
