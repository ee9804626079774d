"""The entries of `metadata.managedFields`: which manager owns which fields of an object.

An entry stays a mapping in its wire form, and so does its field set (`sets`). Entries are
identified by manager, subresource and operation; entries of updates also by the version that names
their fields. Clients may send entries: they are validated here, and invalid ones leave the existing
entries unchanged.

Pure; arguments are never modified. Not here: how ownership changes (`field_managers`,
`server_side_apply`), and how field sets are computed (`values`).
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
"""The manager of a write that does not name one."""
BEFORE_FIRST_APPLY: Final = "before-first-apply"
"""The manager of fields that were written before field ownership was tracked."""
ANCIENT: Final = "ancient-changes"
"""The manager of the oldest updates, which are merged into one entry."""
UPDATERS_MAX: Final = 10
ENTRIES_MAX: Final = 1_000
"""Maximum number of entries that a client may send: each is compared with every later change."""
MANAGER_LENGTH_MAX: Final = 128
SUBRESOURCE_LENGTH_MAX: Final = 256

_OPERATIONS: Final = frozenset({APPLY, UPDATE})
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
# Fields that every object has and no manager owns.
_TYPE_META: Final = frozenset({"f:apiVersion", "f:kind"})
_IN_METADATA: Final = (
    *("f:name", "f:namespace", "f:creationTimestamp", "f:selfLink", "f:uid", "f:clusterName"),
    *("f:generation", "f:managedFields", "f:resourceVersion"),
)
_UNMANAGED_METADATA: Final = frozenset({".", *_IN_METADATA})
UNMANAGED: Final[FieldSet] = {
    **dict.fromkeys(_TYPE_META, sets.EMPTY),
    "f:metadata": dict.fromkeys(_IN_METADATA, sets.EMPTY),
}
"""Fields that every object has and no manager owns."""


class Manager(NamedTuple):
    """The writer: its field manager name, and the subresource through which it writes."""

    name: str
    subresource: str = ""


class InvalidEntries(ValueError):
    """A client sent `managedFields` that are invalid."""


def entry_of(
    manager: Manager, operation: str, api_version: str, *, time: str, fields: FieldSet
) -> Entry:
    """Return a new entry; its members have the order that Kubernetes writes."""
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
    """Return the fields that identify an entry among others."""
    operation = entry["operation"]
    return (
        entry.get("manager") or "",
        operation,
        entry["apiVersion"] if operation == UPDATE else "",
        entry.get("subresource") or "",
    )


def identity_of(manager: Manager, operation: str, api_version: str) -> Identity:
    """Return the identity of an entry that may not exist yet."""
    version = api_version if operation == UPDATE else ""
    return manager.name or UNKNOWN, operation, version, manager.subresource


def fields_of(entry: Mapping[str, Any]) -> FieldSet:
    """Return the field set of an entry; empty if it has none."""
    fields: FieldSet | None = entry.get("fieldsV1")
    return sets.EMPTY if fields is None else fields


def with_fields(entry: Entry, fields: FieldSet) -> Entry:
    """Return a copy of an entry with another field set."""
    return {**entry, "fieldsV1": fields}


def stored(metadata: Mapping[str, Any]) -> list[Entry]:
    """Return the entries of a stored object; none if they are not valid entries.

    Only the outer structure is checked: field sets were validated when they were written, here or
    by another server.
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
    """Return the entries that a write starts with: those that the client sent, or the existing
    ones.

    The result is empty if the client sent an empty list, or a list of one empty entry.
    """
    if sent is None or sent == before:
        return before
    if is_reset(sent):
        return []
    try:
        return read(sent, known=before) or before
    except InvalidEntries:
        return before


def is_reset(sent: Any) -> bool:
    """Report whether the client requests the removal of all entries."""
    if sent == []:
        return True
    return (
        type(sent) is list
        and len(sent) == 1
        and type(sent[0]) is dict
        and all(value is None or value == "" for value in sent[0].values())
    )


def read(sent: Any, *, known: Sequence[Entry] = ()) -> list[Entry]:
    """Parse and sort the entries that a client sent; of entries with the same identity the last
    wins.

    `known` entries are already valid and are not parsed again. Raises `InvalidEntries` with
    Kubernetes' wording.
    """
    if type(sent) is not list or len(sent) > ENTRIES_MAX:
        raise InvalidEntries(f"there must be a list of at most {ENTRIES_MAX} entries")
    valid = {identity(entry): entry for entry in known}
    found: dict[Identity, Entry] = {}
    reader = WireReader()
    for index, entry in enumerate(sent):
        if not _is_known(entry, valid):
            entry = _read_entry(entry, index, reader)  # noqa: PLW2901 - the same, in canonical form
        found[identity(entry)] = entry
    return in_order(found.values())


def _is_known(entry: Any, valid: Mapping[Identity, Entry]) -> bool:
    """Report whether an entry equals a known one. Entries are large, so one comparison at most."""
    try:
        return bool(valid.get(identity(entry)) == entry)
    except (KeyError, TypeError, AttributeError):
        return False  # reading it reports the error


def _read_entry(entry: Any, index: int, reader: WireReader) -> Entry:
    if type(entry) is not dict:
        raise InvalidEntries(f"managed fields entry {index} is not an object")
    if entry.get("operation") not in _OPERATIONS:
        raise InvalidEntries("operation must be `Apply` or `Update`")
    for name in ("manager", "apiVersion", "time", "subresource", "fieldsType"):
        if type(entry.get(name) or "") is not str:
            raise InvalidEntries(f"{name} of managed fields entry {index} must be a string")
    if not entry.get("apiVersion"):
        raise InvalidEntries("apiVersion must not be empty")
    if (time := entry.get("time")) and not _TIME.fullmatch(time):
        raise InvalidEntries(f"time of managed fields entry {index} is not a valid time")
    fields_type = entry.get("fieldsType") or ""
    if not fields_type:
        raise InvalidEntries(f"missing fieldsType in managed fields entry {index}")
    if fields_type != FIELDS_TYPE:
        shown = fields_type[:64]
        raise InvalidEntries(f'invalid fieldsType "{shown}" in managed fields entry {index}')
    try:
        fields = reader.check(entry.get("fieldsV1") or {})
    except (ValueError, RecursionError) as error:
        raise InvalidEntries(f"error decoding set: {error}") from error
    return entry_of(
        Manager(entry.get("manager") or "", entry.get("subresource") or ""),
        entry["operation"],
        entry["apiVersion"],
        time=entry.get("time") or "",
        fields=fields,
    )


def problems(found: Iterable[Entry]) -> list[StatusCause]:
    """Validate parsed entries; return the causes of a 422."""
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
    """Validate the name of a field manager: at most 128 bytes, all of them printable."""
    causes = Causes()
    if len(name.encode(errors="surrogatepass")) > MANAGER_LENGTH_MAX:
        causes.too_long(field, length_max=MANAGER_LENGTH_MAX)
    if not name.isprintable():
        at = next(place for place, each in enumerate(name) if not each.isprintable())
        size = len(name[:at].encode(errors="surrogatepass"))
        causes.invalid(field, name, f"invalid character U+{ord(name[at]):04X} (at position {size})")
    return causes


def in_order(found: Iterable[Entry]) -> list[Entry]:
    """Sort entries as Kubernetes lists them: applies first, then by time."""
    listed = list(found)
    if len(listed) > 1:
        listed.sort(key=_place)
    return listed


def _place(entry: Entry) -> tuple[str, str, str, str, str]:
    # All times have the same format, so string order is time order.
    return (
        entry["operation"],
        entry.get("time") or "",
        entry.get("manager") or "",
        entry["apiVersion"],
        entry.get("subresource") or "",
    )


def capped(found: list[Entry]) -> list[Entry]:
    """Sort entries, and merge the oldest updates of each version if there are more than the
    maximum.
    """
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
            # The merged entry gets the later time.
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
    """Return the union of several sets, pairwise: a sequential union would copy a large set each
    time.
    """
    while len(fields) > 1:
        pairs = zip(fields[::2], fields[1::2], strict=False)
        odd = fields[-1:] if len(fields) % 2 else []
        fields = [sets.union(one, other) for one, other in pairs] + odd
    return fields[0]


def _age(entry: Entry) -> tuple[str, Identity]:
    # An entry that was merged before comes first, so that all merged entries end up in one.
    is_joined = entry.get("manager") == ANCIENT and not entry.get("subresource")
    return "" if is_joined else entry.get("time") or "", identity(entry)


def stripped(fields: FieldSet) -> FieldSet:
    """Return a field set without the fields that no manager owns."""
    metadata = fields.get("f:metadata")
    if metadata is None and _TYPE_META.isdisjoint(fields):
        return fields
    left = {name: inner for name, inner in fields.items() if name not in _TYPE_META}
    if metadata is not None:
        kept = {
            name: inner
            for name, inner in metadata.items()
            if inner or name not in _UNMANAGED_METADATA
        }
        if kept:
            left["f:metadata"] = kept
        else:
            del left["f:metadata"]
    return left
