"""JSON patch: a list of operations, each on a path, all of them or none.

The document that is patched stays as it is. A container is copied when an operation first changes
it, then changed in place, so that ten thousand operations on one large object cost one copy of it.

What is no list of objects is a 400; an operation that makes no sense or does not fit the document
is a 422, and clients depend on the difference. Where the reference is more generous than RFC 6902,
so are we, because patches are written against it: `replace` sets a member that is not there, `copy`
of one gives null, an index may be negative and then counts from the end, `add` without a value adds
null, and a `~` that escapes nothing is itself. It is less generous in one thing: only `replace` and
`test` take the whole document.

What a short patch could blow up is limited: the number of operations, the bytes that `copy` copies,
the items that are moved when a list gets or loses one in front.

Not here: how the body is read (`codec`).
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
# A list of pointers is moved in a blink; this many take about a tenth of a second.
MOVED_ITEMS_MAX: Final = 50_000_000

_INDEX: Final = re.compile(r"[+-]?[0-9]{1,18}")
_ESCAPE: Final = re.compile(r"~[01]")
_NAMES: Final = frozenset({"add", "remove", "replace", "move", "copy", "test"})
_HAVE_SOURCE: Final = frozenset({"move", "copy"})
_ON_WHOLE: Final = frozenset({"replace", "test"})
_MEMBERS: Final = frozenset({"op", "path", "from", "value"})


class PatchOperation(NamedTuple):
    """One step. Paths are lists of keys and indexes, as text; the empty one is the document."""

    name: str
    path: tuple[str, ...]
    source: tuple[str, ...] = ()
    value: Any = None


class JsonPatch:
    """A patch that makes sense; it can be applied again when somebody else was faster."""

    __slots__ = ("operations", "unknown")

    def __init__(
        self, operations: tuple[PatchOperation, ...], unknown: tuple[str, ...] = ()
    ) -> None:
        self.operations = operations
        # Members of operations that mean nothing, as paths in the patch.
        self.unknown = unknown

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
        operations = tuple(_operation(each, index) for index, each in enumerate(value))
        return cls(operations, tuple(_unknown_members(value)))

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
            raise _NotThere(f"it would nest more than {DEPTH_MAX} levels deep")
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
        # A member that is absent is as good as null here.
        if not json_equal(self._get_or_null(operation.path), operation.value):
            raise _NotThere("the value is another one")

    def _move(self, operation: PatchOperation) -> None:
        self._note_depth(operation)
        # First gone and then there again: a value cannot be moved into itself.
        self._add(operation.path, self._remove(operation.source))

    def _note_depth(self, operation: PatchOperation) -> None:
        if len(operation.path) > len(operation.source):
            self.may_be_too_deep = True

    def _get_or_null(self, path: tuple[str, ...]) -> Any:
        """A value; null for a member that an object does not have."""
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
            raise _NotThere(f"there is nothing at {_shown(part)}")
        return container[_position(container, part)]

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
    """The place in a list; a negative one counts from the end."""
    if not _INDEX.fullmatch(part):
        raise _NotThere(f"{_shown(part)} is no index of a list")
    index = int(part)
    if not -end <= index < end:
        raise _NotThere(f"index {part} is out of range")
    return index + end if index < 0 else index


def _operation(value: Any, index: int) -> PatchOperation:
    if value is None:
        value = {}
    if type(value) is not dict:
        raise bad_request(f"operation {index} of the JSON patch makes no sense: it is no object")
    name = _text(value, "op", index)
    if name not in _NAMES:
        raise _no_sense(index, f"Unexpected kind: {_shown(name or 'unknown')}")
    path = _path(value, "path", index)
    if not path and name not in _ON_WHOLE:
        raise _no_sense(index, f"{name} is not for the whole document")
    if name in _HAVE_SOURCE:
        source = _path(value, "from", index)
        if not source:
            raise _no_sense(index, f"{name} is not for the whole document")
        return PatchOperation(name, path, source=source)
    return PatchOperation(name, path, value=value.get("value"))


def _unknown_members(operations: list[Any]) -> Iterator[str]:
    for index, operation in enumerate(operations):
        if operation is not None:
            for name in sorted(operation.keys() - _MEMBERS):
                yield f"[{index}].{name}"


def _path(value: dict[str, Any], member: str, index: int) -> tuple[str, ...]:
    """The parts of a path. What stands before the first slash means nothing."""
    text = _text(value, member, index)
    if text is None:
        raise _no_sense(index, f'it has no "{member}"')
    if not text:
        return ()
    parts = text.split("/")[1:]
    if not parts:
        raise _no_sense(index, f'its "{member}" must begin with a slash')
    if len(parts) > DEPTH_MAX:
        raise _no_sense(index, f'its "{member}" has more than {DEPTH_MAX} parts')
    if "~" not in text:
        return tuple(parts)
    return tuple(_ESCAPE.sub(_unescaped, part) for part in parts)


def _text(value: dict[str, Any], member: str, index: int) -> str | None:
    text = value.get(member)
    if text is not None and type(text) is not str:
        raise bad_request(
            f'operation {index} of the JSON patch makes no sense: its "{member}" is no string'
        )
    return text


def _unescaped(found: re.Match[str]) -> str:
    return "/" if found[0] == "~1" else "~"


def _no_sense(index: int, why: str) -> Invalid:
    return invalid_patch(f"operation {index} of the JSON patch makes no sense: {why}")


def _does_not_fit(index: int, operation: PatchOperation, why: str) -> Invalid:
    where = "/".join(("", *operation.path))[:256]
    return invalid_patch(f"operation {index} ({operation.name} {where}): {why}")


def _shown(part: str) -> str:
    return f'"{part[:64]}"'
