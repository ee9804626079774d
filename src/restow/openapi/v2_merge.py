"""Merges pieces of aggregated servers' v2 documents into ours, and resolves name conflicts.

A definition with the content of ours is shared. One with the same name and other content gets a
numbered name, such as `ObjectMeta_v2`, and references to it are updated. The list of kinds of a
definition is not part of its content: lists are merged.

Pure. Not here: encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from restow.openapi.aggregated_spec import (
    DEFINITION_REF,
    GVK,
    PARAMETER_REF,
    ForeignSpec,
)
from restow.openapi.schemas import Gvk

Item = dict[str, Any]

_FIRST_NUMBER: Final = 2


@dataclass(slots=True)
class Merged:
    """The pieces that are added to our document."""

    paths: dict[str, Item] = field(default_factory=dict)
    definitions: dict[str, Item] = field(default_factory=dict)
    parameters: dict[str, Item] = field(default_factory=dict)
    kinds: list[tuple[str, Gvk]] = field(default_factory=list)
    """Additional kinds of our definitions."""
    originals: dict[str, Item] = field(default_factory=dict)
    """The definitions before their references were updated, for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """The parts of our document that other documents may conflict with."""

    definitions: Collection[str]
    definition: Callable[[str], Item | None]
    """Returns the content of a definition; None if it cannot equal any other."""
    parameters: Mapping[str, Item]


def merge(specs: Sequence[ForeignSpec], ours: Ours) -> Merged:
    """Merge several documents; the first one with a name keeps it."""
    merged = Merged()
    for spec in specs:
        pieces = spec.read()
        renames = {
            DEFINITION_REF + name: DEFINITION_REF + new
            for name, new in _definition_names(pieces.definitions, merged, ours).items()
        }
        renames |= {
            PARAMETER_REF + name: PARAMETER_REF + new
            for name, new in _parameter_names(pieces.parameters, merged, ours).items()
        }
        for name, item in pieces.definitions.items():
            new_name = renames[DEFINITION_REF + name].removeprefix(DEFINITION_REF)
            _put_definition(merged, ours, new_name, item=item, renames=renames)
        for name, item in pieces.parameters.items():
            new_name = renames[PARAMETER_REF + name].removeprefix(PARAMETER_REF)
            if new_name not in ours.parameters:
                merged.parameters.setdefault(new_name, _rewritten(item, renames))
        for name, item in pieces.paths.items():
            merged.paths.setdefault(name, _rewritten(item, renames))
    return merged


def _definition_names(pieces: dict[str, Item], merged: Merged, ours: Ours) -> dict[str, str]:
    """Return the name of each definition in our document."""

    def is_same(name: str, item: Item) -> bool:
        known = merged.originals.get(name) or ours.definition(name)
        return known is not None and _content(known, item) == _content(item, known)

    taken = {*ours.definitions, *merged.definitions}
    return _names(pieces, taken, is_same)


def _parameter_names(pieces: dict[str, Item], merged: Merged, ours: Ours) -> dict[str, str]:
    known = {**ours.parameters, **merged.parameters}
    return _names(pieces, set(known), lambda name, item: known[name] == item)


def _names(
    pieces: dict[str, Item], taken: set[str], is_same: Callable[[str, Item], bool]
) -> dict[str, str]:
    names: dict[str, str] = {}
    assigned: set[str] = set()
    for name, item in pieces.items():
        new, number = name, _FIRST_NUMBER
        while (new in taken and not is_same(new, item)) or (
            new != name and (new in pieces or new in assigned)
        ):
            new = f"{name}_v{number}"
            number += 1
        names[name] = new
        assigned.add(new)
    return names


def _put_definition(
    merged: Merged, ours: Ours, name: str, *, item: Item, renames: Mapping[str, str]
) -> None:
    if name in ours.definitions:
        merged.kinds += [(name, gvk) for gvk in _kinds(item)]
        return
    known = merged.definitions.get(name)
    if known is None:
        merged.originals[name] = item
        merged.definitions[name] = _rewritten(item, renames)
        return
    kinds = list(dict.fromkeys([*_kinds(known), *_kinds(item)]))
    if kinds:
        known[GVK] = [
            {"group": group, "version": version, "kind": kind} for group, version, kind in kinds
        ]


def _kinds(item: Item) -> list[Gvk]:
    listed = item.get(GVK)
    if not isinstance(listed, list):
        return []
    return [(each["group"], each["version"], each["kind"]) for each in listed]


def _content(item: Item, other: Item) -> Item:
    """Return the content for comparison. The description of a kind names it, so it is ignored as
    well.
    """
    is_kind = GVK in item or GVK in other
    return {
        key: value
        for key, value in item.items()
        if key != GVK and not (is_kind and key == "description")
    }


def _rewritten(value: Any, renames: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        made = {key: _rewritten(each, renames) for key, each in value.items()}
        reference = made.get("$ref")
        if isinstance(reference, str):
            made["$ref"] = renames.get(reference, reference)
        return made
    if isinstance(value, list):
        return [_rewritten(each, renames) for each in value]
    return value
