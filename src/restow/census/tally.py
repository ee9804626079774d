"""Counts objects per resource and stored form, and determines which of them are stale.

One pass over the store, in any key order, with memory for the counts and a bounded number of sample
keys: stale objects are known only after all targets have been read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from restow.census.counter import Counter, Scope, ValueGroup, ValueLocation
from restow.census.resource_names import (
    PREFIX_DEFAULT,
    TARGET_ROOTS,
    ResourceSelection,
    means,
    name_of,
)
from restow.census.targets import CensusTarget, Targets, target_of_argument
from restow.census.values import Stored, inside, read_value
from restow.storage.sources import Entry

SAMPLES_DEFAULT: Final = 20
SAMPLES_MAX: Final = 1_000_000

_TARGETS: Final = frozenset(TARGET_ROOTS)

Opener = Callable[[str, bytes], Awaitable[bytes | None]]
"""Decrypts a value, given its key in the store; returns None if no encryption key fits."""


class ReadableStore(Protocol):
    """The interface of a store for the census."""

    @property
    def revision(self) -> int:
        """Valid after the first read."""

    def pages(self, prefixes: Sequence[str]) -> AsyncIterator[Sequence[Entry]]:
        """Yield the entries under the prefixes, in any order, each once, at one revision."""


class CensusVerdict(Enum):
    """The result for the objects of a row, of a resource, or of the whole store."""

    RIGHT = "right"
    """Stored in the target version."""
    STALE = "stale"
    """Stored in another version."""
    UNDECIDED = "undecided"
    """There is a target, but it or the stored version is unknown."""
    NO_TARGET = "no-target"
    """There is no target version."""


@dataclass(frozen=True, slots=True)
class Row:
    """Objects of one resource that are stored in the same way."""

    stored: Stored
    objects: int
    verdict: CensusVerdict
    keys: tuple[str, ...]
    """The first of their keys, at most `samples_max`."""
    scope: Scope = "Namespaced"
    """The scope of the objects, from the number of segments of their keys."""


@dataclass(frozen=True, slots=True)
class ResourceCount:
    """The objects of one resource."""

    resource: str
    """`deployments.apps`; or a key prefix such as `/registry/ranges/`, if it has no name."""
    target: CensusTarget | None
    rows: tuple[Row, ...]

    @property
    def objects(self) -> int:
        return sum(row.objects for row in self.rows)

    def of(self, verdict: CensusVerdict) -> int:
        """Number of objects with this verdict."""
        return sum(row.objects for row in self.rows if row.verdict is verdict)


@dataclass(frozen=True, slots=True)
class Census:
    """The content of a store at one revision."""

    revision: int
    resources: tuple[ResourceCount, ...]
    targets: Mapping[str, CensusTarget] = field(default_factory=dict)
    """All targets in the store, including those of resources without objects."""

    @property
    def objects(self) -> int:
        return sum(each.objects for each in self.resources)

    @property
    def unreadable(self) -> tuple[tuple[str, Row], ...]:
        """Rows of unreadable values, with their resources."""
        return tuple(
            (each.resource, row)
            for each in self.resources
            for row in each.rows
            if row.stored.form == "unreadable"
        )

    @property
    def unopened(self) -> int:
        """Number of encrypted objects that were not decrypted."""
        rows = (row for each in self.resources for row in each.rows)
        return sum(
            row.objects
            for row in rows
            if row.stored.form == "encrypted" and not row.stored.api_version
        )

    def of(self, verdict: CensusVerdict) -> int:
        return sum(each.of(verdict) for each in self.resources)

    @property
    def verdict(self) -> CensusVerdict:
        """The worst verdict of all objects."""
        for worse in (CensusVerdict.STALE, CensusVerdict.UNDECIDED, CensusVerdict.RIGHT):
            if self.of(worse):
                return worse
        return CensusVerdict.NO_TARGET

    def knows(self, name: str) -> bool:
        """Whether the store contains anything that belongs to this resource."""
        return any(means(name, each.resource) for each in self.resources) or any(
            means(name, resource) for resource in self.targets
        )


async def take_census(
    source: ReadableStore,
    *,
    prefix: str = PREFIX_DEFAULT,
    selection: ResourceSelection | None = None,
    arguments: Mapping[str, str] | None = None,
    samples_max: int = SAMPLES_DEFAULT,
    on_progress: Callable[[int], None] | None = None,
    opener: Opener | None = None,
) -> Census:
    """Count the objects of a store under a prefix. Without `opener` nothing is decrypted.

    `arguments` are targets given by the user: resource names and versions. They take precedence
    over targets in the store.
    """
    selection = selection or ResourceSelection()
    counter = Counter(prefix, samples_max=samples_max)
    targets = Targets()
    done = 0
    async for page in source.pages(selection.prefixes(prefix)):
        for key, value in page:
            stored = read_value(value)
            if opener is not None and stored.form == "encrypted":
                opened = await opener(key, value)
                if opened is not None:
                    stored, value = inside(stored, opened), opened  # noqa: PLW2901
            place = counter.add_as(key, stored)
            if place.root in _TARGETS:
                targets.note(place.root, key.rpartition("/")[2], value)
        done += len(page)
        if on_progress is not None:
            on_progress(done)
    return _sum_up(
        counter.groups,
        revision=source.revision,
        prefix=prefix,
        selection=selection,
        found=targets.found(),
        arguments=arguments or {},
        samples_max=samples_max,
    )


def _sum_up(
    groups: Mapping[ValueLocation, ValueGroup],
    *,
    revision: int,
    prefix: str,
    selection: ResourceSelection,
    found: Mapping[str, CensusTarget],
    arguments: Mapping[str, str],
    samples_max: int,
) -> Census:
    by_resource: dict[str, list[tuple[ValueLocation, ValueGroup]]] = {}
    for place, group in groups.items():
        resource = name_of(place.root, place.stored.api_version)
        name = str(resource) if resource else f"{prefix}{place.root}/" if place.root else prefix
        if name in selection:
            by_resource.setdefault(name, []).append((place, group))
    counted: list[ResourceCount] = []
    for name, members in sorted(by_resource.items()):
        target = _target_of(name, found, arguments)
        rows = sorted(
            (
                Row(
                    place.stored,
                    group.values,
                    _judge(place.stored, target),
                    group.samples(samples_max),
                    place.scope,
                )
                for place, group in members
            ),
            key=lambda row: (
                not row.stored.api_version,
                row.stored.api_version,
                row.stored,
                row.scope,
            ),
        )
        counted.append(ResourceCount(name, target, tuple(rows)))
    return Census(revision, tuple(counted), found)


def _target_of(
    name: str, found: Mapping[str, CensusTarget], arguments: Mapping[str, str]
) -> CensusTarget | None:
    version = arguments.get(name)
    if version is None:
        version = next((said for word, said in arguments.items() if means(word, name)), None)
    return found.get(name) if version is None else target_of_argument(name, version)


def _judge(stored: Stored, target: CensusTarget | None) -> CensusVerdict:
    if target is None:
        return CensusVerdict.NO_TARGET
    match target.accepts(stored):
        case True:
            return CensusVerdict.RIGHT
        case False:
            return CensusVerdict.STALE
        case None:
            return CensusVerdict.UNDECIDED
