"""One bad value, written once, and every request that can carry it.

A case names a valid object, a field, and a bad value for that field. It yields seven requests:
create and update, each as JSON and as YAML, and the three kinds of patch. So a value that one verb
refuses and another accepts is always found.

Not here: the cases themselves, and cases about a path, a header or a parameter.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import orjson
import yaml

from tests.support.api_client import JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, YAML

Object = dict[str, Any]
Codes = dict[str, int]

STORED: Final = "stored"
"""Name of the valid object in the store."""
FRESH: Final = "fresh"
"""Name of the object that no create may store."""

CREATE: Final = ("create JSON", "create YAML")
UPDATE: Final = ("update JSON", "update YAML")
BODIES: Final = CREATE + UPDATE
PATCHES: Final = ("merge patch", "strategic patch", "JSON patch")
VERBS: Final = BODIES + PATCHES


class _Absent:
    """Marks a missing field."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Good:
    """A kind, by a valid object of it."""

    kind: str
    collection: str
    body: Object
    is_custom: bool = False
    stored: Object | None = None
    """Fields that differ in the stored object, where two objects cannot be equal."""
    fresh_name: str = FRESH
    stored_name: str = STORED

    def fresh(self) -> Object:
        return self._named(self.body, self.fresh_name)

    def kept(self) -> Object:
        return self._named(self.stored or self.body, self.stored_name)

    @property
    def target(self) -> str:
        return f"{self.collection}/{self.stored_name}"

    def _named(self, body: Object, name: str) -> Object:
        made = copy.deepcopy(body)
        made["metadata"] = {"name": name, **made.get("metadata", {})}
        return made


@dataclass(frozen=True, slots=True)
class Bad:
    """A valid object with one bad value, and the expected status codes."""

    name: str
    good: Good
    path: tuple[str | int, ...]
    value: Any
    codes: Mapping[str, int]

    def requests(self, current: Object) -> Iterator[Request]:
        """Returns each request that carries the value; `current` is the stored object as read."""
        for verb, code in self.codes.items():
            yield Request(verb, code, *self._request(verb, current))

    def _request(self, verb: str, current: Object) -> tuple[str, str, bytes, str]:
        good = self.good
        if verb in CREATE:
            body = changed(good.fresh(), self.path, self.value)
            return "POST", good.collection, *_written(verb, body)
        if verb in UPDATE:
            body = changed(current, self.path, self.value)
            return "PUT", good.target, *_written(verb, body)
        if verb == "JSON patch":
            operations = [_operation(current, self.path, self.value)]
            return "PATCH", good.target, orjson.dumps(operations), JSON_PATCH
        media_type = MERGE_PATCH if verb == "merge patch" else STRATEGIC_PATCH
        merged = _merge(current, self.path, self.value)
        return "PATCH", good.target, orjson.dumps(merged), media_type


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that is no value of JSON or YAML, in the place of one."""

    name: str
    token: bytes
    """In JSON."""
    yaml: bytes | None
    """In YAML; None where YAML has no such form, or accepts it."""
    codes: Mapping[str, int]

    def requests(self, good: Good) -> Iterator[Request]:
        for verb, code in self.codes.items():
            yield Request(verb, code, *self._request(verb, good))

    def _request(self, verb: str, good: Good) -> tuple[str, str, bytes, str]:
        if verb in PATCHES:
            return "PATCH", good.target, *self._patch(verb)
        name = FRESH if verb in CREATE else STORED
        where = ("POST", good.collection) if verb in CREATE else ("PUT", good.target)
        if verb.endswith("JSON"):
            body = b'{"metadata":{"name":"%b"},"data":{"k":%b}}' % (name.encode(), self.token)
            return *where, body, JSON
        assert self.yaml is not None
        body = b"metadata:\n  name: %b\ndata:\n  k: %b\n" % (name.encode(), self.yaml)
        return *where, body, YAML

    def _patch(self, verb: str) -> tuple[bytes, str]:
        if verb == "JSON patch":
            body = b'[{"op":"add","path":"/data/k","value":%b}]' % self.token
            return body, JSON_PATCH
        media_type = MERGE_PATCH if verb == "merge patch" else STRATEGIC_PATCH
        return b'{"data":{"k":%b}}' % self.token, media_type


@dataclass(frozen=True, slots=True)
class Whole:
    """A body that is invalid as a whole, sent with every verb."""

    name: str
    codes: Mapping[str, int]
    json: bytes = b""
    yaml: bytes = b""

    def requests(self, good: Good) -> Iterator[Request]:
        for verb, code in self.codes.items():
            where = ("POST", good.collection) if verb in CREATE else ("PUT", good.target)
            if verb in PATCHES:
                where = ("PATCH", good.target)
            body = self.yaml if verb.endswith("YAML") else self.json
            yield Request(verb, code, *where, body, _media_type(verb))


@dataclass(frozen=True, slots=True)
class Request:
    """A request, and its expected status code."""

    verb: str
    code: int
    method: str
    target: str
    body: bytes
    content_type: str


def _media_type(verb: str) -> str:
    return {
        "merge patch": MERGE_PATCH,
        "strategic patch": STRATEGIC_PATCH,
        "JSON patch": JSON_PATCH,
    }.get(verb, YAML if verb.endswith("YAML") else JSON)


def _written(verb: str, body: Object) -> tuple[bytes, str]:
    if verb.endswith("YAML"):
        return yaml.dump(body, Dumper=yaml.CSafeDumper, encoding="utf-8"), YAML
    return orjson.dumps(body), JSON


def changed(obj: Object, path: tuple[str | int, ...], value: Any) -> Object:
    """Returns a copy with another value at one path; missing parents are created."""
    made = copy.deepcopy(obj)
    place: Any = made
    for step, after in pairwise(path):
        place = _step(place, step, [] if isinstance(after, int) else {})
    if value is ABSENT:
        del place[path[-1]]
    elif isinstance(place, list) and path[-1] == len(place):
        place.append(value)
    else:
        place[path[-1]] = value
    return made


def _step(place: Any, step: str | int, empty: Any) -> Any:
    if isinstance(step, int):
        if step == len(place):
            place.append(empty)
        return place[step]
    return place.setdefault(step, empty)


def _merge(current: Object, path: tuple[str | int, ...], value: Any) -> Object:
    """Returns the equivalent merge patch; it contains whole lists, as merge patches must."""
    depth = next((i for i, step in enumerate(path) if isinstance(step, int)), None)
    if depth is not None:
        value = _at(changed(current, path, value), path[:depth])
        path = path[:depth]
    merged: Any = None if value is ABSENT else value
    for step in reversed(path):
        merged = {step: merged}
    patch: Object = merged
    return patch


def _at(obj: Object, path: tuple[str | int, ...]) -> Any:
    place: Any = obj
    for step in path:
        place = place[step]
    return place


def _operation(current: Object, path: tuple[str | int, ...], value: Any) -> Object:
    """Returns the equivalent JSON patch operation; missing parents are added with it."""
    if value is ABSENT:
        return {"op": "remove", "path": _pointer(path)}
    whole = changed(current, path, value)
    place: Any = current
    for depth, step in enumerate(path):
        is_there = step < len(place) if isinstance(step, int) else step in place
        if not is_there or depth == len(path) - 1:
            shown = path[: depth + 1]
            op = "replace" if is_there and isinstance(step, int) else "add"
            return {"op": op, "path": _pointer(shown), "value": _at(whole, shown)}
        place = place[step]
    raise AssertionError(path)


def _pointer(path: tuple[str | int, ...]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def steps(path: str) -> tuple[str | int, ...]:
    """Splits `spec.ports.0.name` into steps: numbers are list indices."""
    return tuple(int(step) if step.isdecimal() else step for step in path.split("."))


def codes_of(good: Good, bodies: int, patches: int | None = None, **but: int) -> Codes:
    """Returns the code for all bodies, the code for all patches, and exceptions.

    `but` names a verb, or several: `create`, `update`, `yaml`, `merge`, `strategic`, `json` (the
    JSON patch). Zero: the verb cannot carry the value.
    """
    found = dict.fromkeys(BODIES, bodies)
    found |= dict.fromkeys(PATCHES, bodies if patches is None else patches)
    if good.is_custom:
        del found["strategic patch"]
    named = {
        "create": CREATE,
        "update": UPDATE,
        "yaml": ("create YAML", "update YAML"),
        "merge": ("merge patch",),
        "strategic": ("strategic patch",),
        "json": ("JSON patch",),
    }
    for name, code in but.items():
        for verb in named[name]:
            if verb in found:
                found[verb] = code
    return {verb: code for verb, code in found.items() if code}


def bad(
    name: str,
    good: Good,
    path: str | tuple[str | int, ...],
    value: Any,
    code: int = 422,
    *,
    patches: int | None = None,
    **but: int,
) -> Bad:
    at = steps(path) if isinstance(path, str) else path
    codes = codes_of(good, code, patches, **but)
    return Bad(f"{good.kind}: {name}", good, at, value, codes)


def mistyped(
    name: str, good: Good, path: str | tuple[str | int, ...], value: Any, **but: int
) -> Bad:
    """A value of another type than the field's: no object of the kind can be decoded."""
    return bad(name, good, path, value, 400, **{"patches": 422, **but})
