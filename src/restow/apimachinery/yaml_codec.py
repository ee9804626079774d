"""Decodes YAML request bodies to JSON values.

Values are built from the events of the C parser, so that limits apply while the body is parsed: a
short YAML body can expand to a very large or very deep value, or take long to scan.

Only values that JSON can represent are accepted. Plain `true`, `false`, `null` and numbers have
their JSON meaning, and `0644` is octal, as in manifests; all other plain scalars, including `yes`
and `on`, are strings. Aliases, merge keys, tags beyond the core ones and further documents are
rejected.

Not here: JSON, and encoding YAML (`yaml_encoder`).
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml
from yaml import events

from restow.apimachinery import codec
from restow.apimachinery.codec import Decoded
from restow.apimachinery.status import BadRequest, bad_request, body_too_large, too_large

# Parsing YAML is a hundred times slower than parsing JSON.
YAML_SIZE_MAX: Final = 256 * 1024

_CORE_TAG: Final = "tag:yaml.org,2002:"
_CONSTANTS: Final[dict[str, bool | None]] = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
    "null": None,
    "Null": None,
    "NULL": None,
    "~": None,
    "": None,
}
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_BASED: Final = re.compile(r"([-+]?)(?:0x([0-9a-fA-F]+)|0o?([0-7]+)|0b([01]+))")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# Longer ones do not fit into 64 bits, and int() of very long ones is slow.
_NUMBER_LENGTH_MAX: Final = 80
_NUMBER_START: Final = frozenset("0123456789+-.")
_NO_KEY: Final = object()


def decode(body: bytes, *, size_max: int = codec.BODY_SIZE_MAX) -> Decoded:
    """Decode the object in a body; raises a 4xx if there is none.

    JSON is also YAML, and is parsed as JSON because that is much faster.
    """
    if len(body) > size_max:
        raise body_too_large(size_max)
    if body.startswith(b"{"):
        try:
            return codec.decode(body, size_max=size_max)
        except BadRequest:
            pass  # it may be a YAML flow mapping that is not JSON
    value, duplicates = decode_value(body)
    if type(value) is not dict:
        raise codec.not_an_object()
    return Decoded(value, duplicates)


def decode_value(body: bytes) -> tuple[Any, tuple[str, ...]]:
    """Decode any YAML value; also return the paths of duplicate keys."""
    if len(body) > YAML_SIZE_MAX:
        raise body_too_large(YAML_SIZE_MAX)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise bad_request("the body is not UTF-8") from None
    builder = _Builder()
    try:
        # Only the parser of the loader is used.
        _read(yaml.CSafeLoader(text), builder)
    except yaml.YAMLError as error:
        raise _not_yaml(error) from None
    return builder.root, tuple(builder.duplicates)


def _read(parser: Any, builder: _Builder) -> None:
    documents = 0
    while True:
        event = parser.get_event()
        kind = type(event)
        if kind is events.ScalarEvent:
            builder.add_scalar(event)
        elif kind is events.MappingStartEvent:
            builder.open({}, event, "map")
        elif kind is events.SequenceStartEvent:
            builder.open([], event, "seq")
        elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
            builder.close()
        elif kind is events.AliasEvent:
            raise _refused("an alias", event)
        elif kind is events.DocumentStartEvent:
            documents += 1
            if documents > 1:
                raise _refused("a second document", event)
        elif kind is events.StreamEndEvent:
            return


class _Builder:
    """Builds values from events; tracks the open containers."""

    def __init__(self) -> None:
        self.root: Any = None
        self.duplicates: list[str] = []
        self._nodes = 0
        # The container that is being filled, and the key of the next value, if any.
        self._container: dict[str, Any] | list[Any] | None = None
        self._key: Any = _NO_KEY
        self._outer: list[tuple[dict[str, Any] | list[Any] | None, Any]] = []

    def open(self, container: dict[str, Any] | list[Any], event: Any, kind: str) -> None:
        if type(self._container) is dict and self._key is _NO_KEY:
            raise _refused("a key that is not a scalar", event)
        _check_tag(event, kind)
        if len(self._outer) >= codec.DEPTH_MAX:
            raise codec.too_deep()
        self._count()
        key = self._key
        self._add(container)
        self._outer.append((self._container, key))
        self._container, self._key = container, _NO_KEY

    def close(self) -> None:
        self._container, _ = self._outer.pop()
        self._key = _NO_KEY

    def add_scalar(self, event: Any) -> None:
        self._count()
        value = _scalar(event)
        if type(self._container) is dict and self._key is _NO_KEY:
            self._key = self._checked_key(value, event)
        else:
            self._add(value)

    def _checked_key(self, value: Any, event: Any) -> str:
        if value == "<<" and event.implicit[0]:
            raise _refused("a merge key", event)
        if value is None:
            raise _refused("a key that is null", event)
        key = value if type(value) is str else codec.encode(value).decode()
        container = self._container
        assert type(container) is dict
        if key in container and len(self.duplicates) < codec.DUPLICATES_MAX:
            path = self._path_of(key)
            if path not in self.duplicates:
                self.duplicates.append(path)
        return key

    def _add(self, value: Any) -> None:
        container = self._container
        if type(container) is dict:
            container[self._key] = value
            self._key = _NO_KEY
        elif type(container) is list:
            container.append(value)
        else:
            self.root = value

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > codec.VALUES_MAX:
            raise too_large(f"the body has more than {codec.VALUES_MAX} values")

    def _path_of(self, key: str) -> str:
        path = ""
        for container, outer_key in self._outer:
            if type(container) is dict:
                path += f".{outer_key}"
            elif type(container) is list:
                path += f"[{len(container) - 1}]"
        return f"{path}.{key}".removeprefix(".")


def _scalar(event: Any) -> Any:
    """Convert a scalar; only plain scalars and scalars with a core tag can be other than
    strings.
    """
    text: str = event.value
    if event.implicit[0]:
        return _plain(text, event)
    tag = event.tag
    if tag is None or tag in ("!", _CORE_TAG + "str"):
        return text
    kind = tag.removeprefix(_CORE_TAG)
    value = _plain(text, event)
    if kind == "float" and type(value) is int:
        return float(value)
    wanted = {"int": int, "float": float, "bool": bool, "null": type(None)}.get(kind)
    if wanted is None:
        raise _refused(f"the tag {tag[:64]}", event)
    if type(value) is not wanted:
        raise bad_request(f"line {_line(event)}: {text[:64]!r} is not a valid {kind}")
    return value


def _plain(text: str, event: Any) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _NOT_FINITE.fullmatch(text):
        raise _refused(f"the number {text}", event)
    if not _FLOAT.fullmatch(text) and not _BASED.fullmatch(text):
        return text
    if len(text) > _NUMBER_LENGTH_MAX:
        raise bad_request(f"line {_line(event)}: the number {text[:40]} is too long")
    return _number(text, event)


def _number(text: str, event: Any) -> int | float:
    if _DECIMAL.fullmatch(text):
        return codec.check_integer(text)
    if found := _BASED.fullmatch(text):
        sign, hexadecimal, octal, binary = found.groups()
        digits, base = next(
            pair for pair in ((hexadecimal, 16), (octal, 8), (binary, 2)) if pair[0]
        )
        return codec.check_integer(f"{sign}{int(digits, base)}")
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _refused(f"the number {text}", event)
    return number


def _check_tag(event: Any, kind: str) -> None:
    if event.tag not in (None, "!", _CORE_TAG + kind):
        raise _refused(f"the tag {event.tag[:64]}", event)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _refused(what: str, event: Any) -> BadRequest:
    return bad_request(f"line {_line(event)}: {what} is not accepted in the YAML of a request")


def _not_yaml(error: yaml.YAMLError) -> BadRequest:
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    return bad_request(f"the body is not YAML: {where}{problem[:256]}")
