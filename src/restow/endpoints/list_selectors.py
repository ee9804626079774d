"""Selection of the objects of a list or watch by namespace, labels and fields.

Labels are read from the encoded object without decoding all of it. Pure, except for a small cache
of parsed selectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import orjson

from restow.apimachinery.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)
from restow.kinds.kind import SelectableField
from restow.registry.resource import Resource
from restow.registry.watch_cache import Entry
from restow.request.request_info import RequestInfo

_OWN_FIELDS = ("metadata.name", "metadata.namespace")


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Metadata


_decode_labels = msgspec.json.Decoder(_Labelled).decode


class ListSelectors:
    """The selectors of one list or watch."""

    __slots__ = ("_extra", "bound_to", "fields", "labels", "prefix", "resource", "single")

    def __init__(self, resource: Resource, info: RequestInfo) -> None:
        kind = resource.kind
        self.resource = resource
        self.labels: LabelSelector = parse_label_selector(info.parameter("labelSelector"))
        self.fields: FieldSelector = parse_field_selector(info.parameter("fieldSelector"))
        self.prefix = f"{info.namespace}/" if kind.namespaced and info.namespace else ""
        self._extra: dict[str, Callable[[Any], str]] = {}
        if self.fields:
            known = {
                field.label: field.value_of for field in _selectable_fields(resource, info.version)
            }
            self.fields.refuse_others((*_OWN_FIELDS, *known))
            self._extra = {
                label: value for label, value in known.items() if label in str(self.fields)
            }
        self.single = self._single_path(resource, info)
        self.bound_to = "\0".join(
            (kind.group, kind.plural, self.prefix, str(self.labels), str(self.fields))
        )

    def __bool__(self) -> bool:
        """Whether there is any selector besides the namespace."""
        return bool(self.labels) or bool(self.fields)

    def may_match(self, path: str) -> bool:
        """Whether an object can match, judged by its path alone."""
        if self.single is not None:
            return path == self.single
        return path.startswith(self.prefix)

    def matches(self, path: str, entry: Entry) -> bool:
        """Whether an object matches.

        An object whose selectable fields differ by version must be in the version of the request.
        """
        if self.prefix and not path.startswith(self.prefix):
            return False
        if self.labels and not self.labels.matches(labels_of(entry[2])):
            return False
        if not self.fields:
            return True
        namespace, _, name = path.rpartition("/")
        values = {"metadata.name": name, "metadata.namespace": namespace}
        if self._extra:
            obj = orjson.loads(entry[2])
            values.update((label, value(obj)) for label, value in self._extra.items())
        return self.fields.matches(values)

    def _single_path(self, resource: Resource, info: RequestInfo) -> str | None:
        """The only path that can match, if the field selector determines it."""
        name = self.fields.requires("metadata.name") if self.fields else None
        if name is None:
            return None
        if not resource.kind.namespaced:
            return name
        namespace = info.namespace or self.fields.requires("metadata.namespace")
        return f"{namespace}/{name}" if namespace else None


def _selectable_fields(resource: Resource, version: str) -> tuple[SelectableField, ...]:
    """The selectable fields of a resource; those of a custom kind depend on the version."""
    traits = resource.traits.get(version)
    return resource.kind.selectable_fields if traits is None else traits.selectable_fields


def labels_of(body: bytes) -> dict[str, str]:
    """The labels of an object, read from its bytes."""
    try:
        return _decode_labels(body).metadata.labels or {}
    except msgspec.DecodeError:
        return _lenient_labels(orjson.loads(body)["metadata"].get("labels"))


def _lenient_labels(labels: Any) -> dict[str, str]:
    """Labels some of whose values are not strings, which only objects without a schema can have."""
    if not isinstance(labels, dict):
        return {}
    return {name: value if isinstance(value, str) else "" for name, value in labels.items()}
