"""The entries of `metadata.managedFields`: who manages which fields of an object.

An entry stays what it is on the wire, a mapping, and a field set in it too (`sets`). Entries are
told apart by who (`manager`, `subresource`) and how (`operation`); those of updates also by the
version in which the fields are called so. Clients may write entries: what they send is checked
here, and what makes no sense leaves those that are there as they are.

Pure, and nothing that is given is changed. Not here: who gets and who loses fields
(`field_managers`, `server_side_apply`), and how they are found (`values`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from restow.apimachinery.apply import sets
from restow.apimachinery.apply.sets import FieldSet, WireReader
from restow.apimachinery.field_errors import Causes
from restow.apimachinery.status_error import StatusCause

Entry = dict[str, Any]
Identity = tuple[str, str, str, str]
"""Manager, operation, version (of updates), subresource."""

APPLY: Final = "Apply"
UPDATE: Final = "Update"
FIELDS_TYPE: Final = "FieldsV1"
UNKNOWN: Final = "unknown"
"""Who writes and does not say so."""
BEFORE_FIRST_APPLY: Final = "before-first-apply"
"""Who is said to have written what nobody kept track of."""
ANCIENT: Final = "ancient-changes"
"""Who is said to have written what many have, long ago."""
UPDATERS_MAX: Final = 10
ENTRIES_MAX: Final = 1_000
"""As many as a client may send: each is compared with each change from then on."""
MANAGER_LENGTH_MAX: Final = 128
SUBRESOURCE_LENGTH_MAX: Final = 256

_OPERATIONS: Final = frozenset({APPLY, UPDATE})
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
# What is told of every object, and is nobody's to manage.
_TYPE: Final = frozenset({"f:apiVersion", "f:kind"})
_IN_METADATA: Final = (
    *("f:name", "f:namespace", "f:creationTimestamp", "f:selfLink", "f:uid", "f:clusterName"),
    *("f:generation", "f:managedFields", "f:resourceVersion"),
)
_NOBODYS: Final = frozenset({".", *_IN_METADATA})
NOBODYS: Final[FieldSet] = {
    **dict.fromkeys(_TYPE, sets.EMPTY),
    "f:metadata": dict.fromkeys(_IN_METADATA, sets.EMPTY),
}
"""What is always there."""


class Manager(NamedTuple):
    """Who writes, and by which path."""

    name: str
    subresource: str = ""


class InvalidEntries(ValueError):
    """What a client has sent are no entries."""


def entry_of(
    manager: Manager, operation: str, api_version: str, *, time: str, fields: FieldSet
) -> Entry:
    """A new entry, its members in the order in which clients are used to them."""
    entry: Entry = {
        "manager": manager.name or UNKNOWN,
        "operation": operation,
        "apiVersion": api_version,
    }
    if time:
        entry["time"] = time
    entry["fieldsType"] = FIELDS_TYPE
    entry["fieldsV1"] = fields
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def identity(entry: Mapping[str, Any]) -> Identity:
    """What tells an entry from others."""
    operation = entry["operation"]
    return (
        entry.get("manager") or "",
        operation,
        entry["apiVersion"] if operation == UPDATE else "",
        entry.get("subresource") or "",
    )


def identity_of(manager: Manager, operation: str, api_version: str) -> Identity:
    """The same, of an entry that may not be there yet."""
    version = api_version if operation == UPDATE else ""
    return manager.name or UNKNOWN, operation, version, manager.subresource


def fields_of(entry: Mapping[str, Any]) -> FieldSet:
    """The fields in an entry; it may have none."""
    fields: FieldSet | None = entry.get("fieldsV1")
    return sets.EMPTY if fields is None else fields


def with_fields(entry: Entry, fields: FieldSet) -> Entry:
    """The same entry with other fields."""
    return {**entry, "fieldsV1": fields}


def stored(metadata: Mapping[str, Any]) -> list[Entry]:
    """The entries of an object from the store; none if they are no entries, seen from outside.

    What is in their fields was checked when it was written, here or by another server.
    """
    found = metadata.get("managedFields")
    if not found:
        return []
    try:
        for entry in found:
            if (
                entry["fieldsType"] != FIELDS_TYPE
                or entry["operation"] not in _OPERATIONS
                or type(entry.get("fieldsV1", sets.EMPTY)) is not dict
                or not entry["apiVersion"]
            ):
                return []
    except (KeyError, TypeError, AttributeError):
        return []
    return found if type(found) is list else []


def chosen(sent: Any, before: list[Entry]) -> list[Entry]:
    """The entries that a write begins with: those that a client has sent, if it has, or those that
    are there. None are left when it has sent an empty list, or one of an empty entry."""
    if sent is None or sent == before:
        return before
    if is_reset(sent):
        return []
    try:
        return read(sent, known=before) or before
    except InvalidEntries:
        return before


def is_reset(sent: Any) -> bool:
    """Whether a client wants all entries gone."""
    if sent == []:
        return True
    return (
        type(sent) is list
        and len(sent) == 1
        and type(sent[0]) is dict
        and all(value is None or value == "" for value in sent[0].values())
    )


def read(sent: Any, *, known: Sequence[Entry] = ()) -> list[Entry]:
    """Entries as clients send them, checked and in order; of two of the same, the last counts.

    Raises `InvalidEntries` with the words of the reference. `known` ones are right already.
    """
    if type(sent) is not list or len(sent) > ENTRIES_MAX:
        raise InvalidEntries(f"there must be a list of at most {ENTRIES_MAX} entries")
    right = {identity(entry): entry for entry in known}
    found: dict[Identity, Entry] = {}
    reader = WireReader()
    for index, entry in enumerate(sent):
        if not _is_among(entry, right):
            entry = _read_entry(entry, index, reader)  # noqa: PLW2901 - the same, in canonical form
        found[identity(entry)] = entry
    return in_order(found.values())


def _is_among(entry: Any, right: Mapping[Identity, Entry]) -> bool:
    """Whether an entry is one of those: it is compared with one of them only, for it is large."""
    try:
        return bool(right.get(identity(entry)) == entry)
    except (KeyError, TypeError, AttributeError):
        return False  # that is told when it is read


def _read_entry(entry: Any, index: int, reader: WireReader) -> Entry:
    if type(entry) is not dict:
        raise InvalidEntries(f"managed fields entry {index} is no object")
    if entry.get("operation") not in _OPERATIONS:
        raise InvalidEntries("operation must be `Apply` or `Update`")
    for name in ("manager", "apiVersion", "time", "subresource", "fieldsType"):
        if type(entry.get(name) or "") is not str:
            raise InvalidEntries(f"{name} of managed fields entry {index} is no text")
    if not entry.get("apiVersion"):
        raise InvalidEntries("apiVersion must not be empty")
    if (time := entry.get("time")) and not _TIME.fullmatch(time):
        raise InvalidEntries(f"time of managed fields entry {index} is no time")
    said = entry.get("fieldsType") or ""
    if not said:
        raise InvalidEntries(f"missing fieldsType in managed fields entry {index}")
    if said != FIELDS_TYPE:
        raise InvalidEntries(f'invalid fieldsType "{said[:64]}" in managed fields entry {index}')
    try:
        fields = reader.check(entry.get("fieldsV1") or {})
    except (ValueError, RecursionError) as error:  # a key may be nested deeper than its object
        raise InvalidEntries(f"error decoding set: {error}") from error
    return entry_of(
        Manager(entry.get("manager") or "", entry.get("subresource") or ""),
        entry["operation"],
        entry["apiVersion"],
        time=entry.get("time") or "",
        fields=fields,
    )


def problems(found: Iterable[Entry]) -> list[StatusCause]:
    """What is wrong with entries that could be read, as causes of a 422."""
    causes = Causes()
    for index, entry in enumerate(found):
        path = f"metadata.managedFields[{index}]"
        name = entry.get("manager") or ""
        if len(name) * 4 > MANAGER_LENGTH_MAX or not name.isprintable():
            causes += name_problems(name, f"{path}.manager")
        if len(entry.get("subresource") or "") > SUBRESOURCE_LENGTH_MAX:
            causes.too_long(f"{path}.subresource", length_max=SUBRESOURCE_LENGTH_MAX)
    return causes


def name_problems(name: str, field: str) -> list[StatusCause]:
    """What is wrong with the name of a manager: it is short, and can be printed."""
    causes = Causes()
    if len(name.encode(errors="surrogatepass")) > MANAGER_LENGTH_MAX:
        causes.too_long(field, length_max=MANAGER_LENGTH_MAX)
    if not name.isprintable():
        at = next(place for place, each in enumerate(name) if not each.isprintable())
        size = len(name[:at].encode(errors="surrogatepass"))
        causes.invalid(field, name, f"invalid character U+{ord(name[at]):04X} (at position {size})")
    return causes


def in_order(found: Iterable[Entry]) -> list[Entry]:
    """Entries as they are listed: who applies first, then by time."""
    listed = list(found)
    if len(listed) > 1:
        listed.sort(key=_place)
    return listed


def _place(entry: Entry) -> tuple[str, str, str, str, str]:
    # Times are in one form, that of the store: their order is that of their texts.
    return (
        entry["operation"],
        entry.get("time") or "",
        entry.get("manager") or "",
        entry["apiVersion"],
        entry.get("subresource") or "",
    )


def capped(found: list[Entry]) -> list[Entry]:
    """Entries in order, with the oldest updates joined, version by version, if there are many."""
    if len(found) <= UPDATERS_MAX:
        return in_order(found)
    updates = [entry for entry in found if entry["operation"] == UPDATE]
    if len(updates) <= UPDATERS_MAX:
        return in_order(found)
    by_identity = {identity(entry): entry for entry in found}
    joined: dict[str, Entry] = {}
    parts: dict[str, list[FieldSet]] = {}
    left = len(updates)
    for entry in sorted(updates, key=_age):
        if left <= UPDATERS_MAX:
            break
        version = entry["apiVersion"]
        older = joined.get(version)
        if older is not None:
            del by_identity[identity(entry)]
            by_identity.pop(identity(older), None)
            parts.setdefault(version, [fields_of(older)]).append(fields_of(entry))
            # The later time: the one that is joined to the rest.
            entry = entry_of(  # noqa: PLW2901 - it stands for both
                Manager(ANCIENT),
                UPDATE,
                version,
                time=entry.get("time") or "",
                fields=sets.EMPTY,
            )
            by_identity[identity(entry)] = entry
            left -= 1
        joined[version] = entry
    for version, fields in parts.items():
        joined[version]["fieldsV1"] = _union(fields)
    return in_order(by_identity.values())


def _union(fields: list[FieldSet]) -> FieldSet:
    """All of some sets, two by two: one after the other, a large one would be copied each time."""
    while len(fields) > 1:
        pairs = zip(fields[::2], fields[1::2], strict=False)
        odd = fields[-1:] if len(fields) % 2 else []
        fields = [sets.union(one, other) for one, other in pairs] + odd
    return fields[0]


def _age(entry: Entry) -> tuple[str, Identity]:
    # What was joined before comes first, so that all that is joined becomes one.
    is_joined = entry.get("manager") == ANCIENT and not entry.get("subresource")
    return "" if is_joined else entry.get("time") or "", identity(entry)


def stripped(fields: FieldSet) -> FieldSet:
    """Fields without those that are nobody's to manage."""
    metadata = fields.get("f:metadata")
    if metadata is None and _TYPE.isdisjoint(fields):
        return fields
    left = {name: inner for name, inner in fields.items() if name not in _TYPE}
    if metadata is not None:
        kept = {name: inner for name, inner in metadata.items() if inner or name not in _NOBODYS}
        if kept:
            left["f:metadata"] = kept
        else:
            del left["f:metadata"]
    return left
