"""Path elements as keys of a field set: how each kind is encoded, displayed and ordered.

    f:name                 a member of a map or a field of a struct
    k:{"port":80}          an item of a list, by its keys, sorted by name
    v:"text"               an item of a set, by its value
    i:0                    an item of a list, by its index

Each element has exactly one encoding, so sets can be compared by their keys alone.

Not here: field sets (`sets`), and the schemas that map an element to an item.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final

import orjson

# Longer strings are encoded each time, to bound the memory of the cache.
_CACHED_LENGTH_MAX: Final = 100
_CACHED_TEXTS_MAX: Final = 4096
# Outside this range Kubernetes writes numbers with an exponent.
_EXPONENT_FROM: Final = 1e21
_EXPONENT_BELOW: Final = 1e-6
# Escapes of Go's JSON encoder that Python's encoder lacks or writes differently.
_GO_ESCAPES: Final = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
_NEED_ESCAPE: Final = frozenset("<>&\u2028\u2029\b\f")


def key_text(name: str) -> str:
    """Encode the name of a key field."""
    return encode_basestring(name)


def value_text(value: Any) -> str:
    """Encode a value as Kubernetes does inside an element: compact JSON with HTML escapes."""
    kind = type(value)
    if kind is str:
        return _short_text(value) if len(value) <= _CACHED_LENGTH_MAX else _text(value)
    if kind is int:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if kind is float:
        return _number(value)
    if kind is list:
        return "[" + ",".join(map(value_text, value)) + "]"
    return "{" + ",".join(f"{_text(k)}:{value_text(value[k])}" for k in sorted(value)) + "}"


def _text(value: str) -> str:
    text = encode_basestring(value)
    if not _NEED_ESCAPE.isdisjoint(value):
        text = text.replace("\\b", "\\u0008").replace("\\f", "\\u000c")
        for character, escape in _GO_ESCAPES.items():
            text = text.replace(character, escape)
    return text


_short_text = lru_cache(maxsize=_CACHED_TEXTS_MAX)(_text)


def _number(value: float) -> str:
    size = abs(value)
    if value.is_integer() and size < _EXPONENT_FROM:
        return str(int(value))
    if _EXPONENT_BELOW <= size < _EXPONENT_FROM:
        return format(Decimal(repr(value)), "f")
    return repr(value).replace("e-0", "e-")


def canonical(key: str) -> str | None:
    """Return the canonical form of an element that a client sent; None if its kind is unknown.

    Raises ValueError if it is not an element.
    """
    if len(key) < 2:
        raise ValueError("key must be 2 characters long:")
    if key[1] != ":":
        raise ValueError(f"missing colon: {key[:100]}")
    kind, text = key[0], key[2:]
    if kind == "f":
        return key
    if kind == "k":
        value = orjson.loads(text)
        if not isinstance(value, dict):
            raise ValueError(f"the keys of a list item must be an object: {key[:100]}")
        pairs = (f"{key_text(name)}:{value_text(value[name])}" for name in sorted(value))
        return "k:{" + ",".join(pairs) + "}"
    if kind == "v":
        return "v:" + value_text(orjson.loads(text))
    return f"i:{int(text)}" if kind == "i" else None


def element_order(key: str) -> tuple[Any, ...]:
    """Return a sort key that orders elements as Kubernetes does."""
    kind, text = key[0], key[2:]
    if kind == "f":
        return (0, text)
    if kind == "k":
        value = orjson.loads(text)
        return (1, tuple((name, _value_order(value[name])) for name in sorted(value)))
    if kind == "v":
        return (2, _value_order(orjson.loads(text)))
    return (3, int(text))


def _value_order(value: Any) -> tuple[Any, ...]:
    """Order numbers before strings, strings before booleans, then lists, objects and null."""
    kind = type(value)
    if kind is int or kind is float:
        return (0, value)
    if kind is str:
        return (1, value)
    if kind is bool:
        return (2, value)
    if kind is list:
        return (3, tuple(map(_value_order, value)))
    if kind is dict:
        return (4, tuple((name, _value_order(value[name])) for name in sorted(value)))
    return (5,)


def element_text(key: str) -> str:
    """Format an element as Kubernetes shows it: `.name`, `[name="a"]`, `[="v"]`, `[0]`."""
    kind, text = key[0], key[2:]
    if kind == "f":
        return f".{text}"
    if kind == "k":
        value = orjson.loads(text)
        return "[" + ",".join(f"{name}={_shown(value[name])}" for name in value) + "]"
    if kind == "v":
        return f"[={_shown(orjson.loads(text))}]"
    return f"[{text}]"


def _shown(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return quoted(value)
    if kind is list:
        return "[" + ",".join(map(_shown, value)) + "]"
    if kind is dict:
        return "".join(f"{name}={_shown(member)}" for name, member in value.items())
    return value_text(value)


def quoted(text: str) -> str:
    """Quote a string as Go's `%q` does: unprintable characters are escaped."""
    return '"' + "".join(map(_quoted_character, text)) + '"'


_GO_NAMED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}


def _quoted_character(character: str) -> str:
    if named := _GO_NAMED.get(character):
        return named
    if character.isprintable():
        return character
    number = ord(character)
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
