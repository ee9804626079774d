"""Merges an applied configuration into the live object.

Nothing is removed here: fields that the applier dropped are removed afterwards, by field set
(`field_removal`). The arguments are not modified; the result shares parts with both.

Not here: conflicts and ownership (`server_side_apply`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.apply.elements import element_text
from restow.apimachinery.apply.schema import Elements, Members, SchemaNode
from restow.apimachinery.apply.schema_check import error_of

_ABSENT: Final[Any] = type("Absent", (), {"__repr__": lambda _: "ABSENT"})()


def merge(node: SchemaNode, live: Any, config: Any) -> Any:
    """Return both values merged; where both set a field, the configuration wins.

    Maps and associative lists are merged, everything else is replaced. A null replaces atomic
    values and leaves granular ones unchanged. Raises ApplySchemaError if an item of an associative
    list has no valid key.
    """
    return _merge(node, live, config, "")


def _merge(node: SchemaNode, live: Any, config: Any, path: str) -> Any:
    """Merge values of one field. If both are empty or null, the configuration's value is used."""
    if live == config:
        return config
    members, elements = node.granular_map, node.granular_list
    if members is not None and _has(dict, live) and (type(config) is dict or config is None):
        return _merge_members(members, live, config or {}, path)
    if elements is not None and _has(list, live) and (type(config) is list or config is None):
        return _merge_items(elements, live, config or [], path)
    return config


def _has(kind: type, live: Any) -> bool:
    """Report whether the live value has that type and is not empty."""
    return type(live) is kind and bool(live)


def _merge_members(
    members: Members, live: dict[str, Any], config: dict[str, Any], path: str
) -> dict[str, Any]:
    out = live.copy()
    for name, applied in config.items():
        node = members[name].walk
        if node is not None and name in live:
            out[name] = _merge(node, live[name], applied, f"{path}.{name}")
        else:
            out[name] = applied
    return out


def _merge_items(elements: Elements, live: list[Any], config: list[Any], path: str) -> list[Any]:
    """Merge two associative lists; the order follows both lists as far as possible.

    Items in both lists, and new items, follow the order of the configuration. Items of the live
    list only stay before the items that follow them there.
    """
    applied = _keyed(elements, config, path)
    found: dict[str, Any] = {}
    order: list[str] = []
    singles: list[Any] = []
    for index, item in enumerate(live):
        key = _key(elements, item, index, path)
        order.append(key)
        singles.append(item)
        # Duplicates are not merged with the applied item; it replaces them.
        found[key] = _ABSENT if key in found else item
    node = elements.walk

    def merged(key: str) -> Any:
        was = found.get(key, _ABSENT)
        if node is None or was is _ABSENT:
            return applied[key]
        return _merge(node, was, applied[key], path + element_text(key))

    out = []
    shared = iter([key for key in applied if key in found])
    next_shared = next(shared, None)
    done: set[str] = set()
    wanted = list(applied)
    left, right = 0, 0
    while left < len(order) or right < len(wanted):
        if left < len(order) and right < len(wanted):
            key = order[left]
            if key == wanted[right]:
                out.append(merged(key))
                done.add(key)
                left, right = left + 1, right + 1
                next_shared = next(shared, None)
                continue
            if key in applied and next_shared is not None and key != next_shared:
                # The item is in both lists; its position in the configuration comes later, or has
                # passed.
                left += 1
                continue
        if left < len(order):
            key = order[left]
            if key not in applied:
                out.append(singles[left])
                left += 1
                continue
            if key in done:
                left += 1
        if right < len(wanted):
            key = wanted[right]
            out.append(merged(key))
            done.add(key)
            right += 1
            if key == next_shared:
                next_shared = next(shared, None)
    return out


def _keyed(elements: Elements, items: list[Any], path: str) -> dict[str, Any]:
    """Return the applied items by key, in their order. Raises ApplySchemaError for duplicates."""
    out: dict[str, Any] = {}
    for index, item in enumerate(items):
        key = _key(elements, item, index, path)
        if key in out:
            text = f"duplicate entries for key {element_text(key)}"
            raise error_of([f"{path}: {text}" if path else text])
        out[key] = item
    return out


def _key(elements: Elements, item: Any, index: int, path: str) -> str:
    try:
        return elements.element_of(item)
    except ValueError as error:
        text = f"element {index}: {error}"
        raise error_of([f"{path}: {text}" if path else text]) from error
