"""Which definition has which names: those that were accepted first keep them. Pure, no I/O.

Within a group no two kinds may share a plural, singular or short name, nor a kind or list kind.
A definition gets the names it asks for one by one; what another one has is refused, and asked for
again when it is free. `NameClaims` counts the names of each group, so that a decision costs the
same however many definitions there are. Not here: reading and writing definitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from restow.apimachinery.names import GroupResource
from restow.registry.catalog import Catalog
from restow.registry.custom.crds import Names

NO_CONFLICTS: Final = "NoConflicts"


class NameClaim(NamedTuple):
    """One name that a definition has or wants, as a kind or as a resource."""

    is_kind: bool
    name: str


class NameDecision(NamedTuple):
    """What a definition gets of the names it asks for."""

    names: Names
    reason: str
    message: str
    refused: list[NameClaim]

    @property
    def is_accepted(self) -> bool:
        return self.reason == NO_CONFLICTS


def claims_of(names: Names) -> frozenset[NameClaim]:
    """All names that a definition with these names keeps from others."""
    resources = (names.plural, names.singular, *(names.short_names or ()))
    kinds = (names.kind, names.list_kind)
    return frozenset(
        [NameClaim(is_kind=False, name=name) for name in resources if name]
        + [NameClaim(is_kind=True, name=name) for name in kinds if name]
    )


def decide(
    requested: Names, accepted: Names, is_taken: Callable[[NameClaim], bool]
) -> NameDecision:
    """Which of the requested names a definition may have that has the accepted ones so far.

    `is_taken` is asked about other definitions. A name of one's own in another role is in use as
    well, but for a short name that repeats the plural or singular. The last refusal is the one
    that is told, as clients of Kubernetes know it.
    """
    requested, accepted = tidy(requested), tidy(accepted)
    own = claims_of(accepted)
    refused: list[NameClaim] = []
    told = (NO_CONFLICTS, "no conflicts found")
    chosen = msgspec.structs.asdict(accepted)

    def is_free(claim: NameClaim, before: str) -> bool:
        return claim.name == before or not (claim in own or is_taken(claim))

    for attribute, reason, is_kind in (
        ("plural", "PluralConflict", False),
        ("singular", "SingularConflict", False),
        ("short_names", "ShortNamesConflict", False),
        ("kind", "KindConflict", True),
        ("list_kind", "ListKindConflict", True),
    ):
        wanted = getattr(requested, attribute)
        if attribute == "short_names":
            known = {*(accepted.short_names or ()), accepted.plural, accepted.singular}
            fresh = [
                NameClaim(is_kind=False, name=each) for each in wanted or () if each not in known
            ]
            taken = [claim for claim in fresh if not is_free(claim, "")]
        else:
            claim = NameClaim(is_kind, wanted)
            taken = [] if is_free(claim, getattr(accepted, attribute)) else [claim]
        if taken:
            refused += taken
            told = (reason, _in_use(taken))
        else:
            chosen[attribute] = wanted
    chosen["categories"] = requested.categories
    return NameDecision(Names(**chosen), *told, refused)


def tidy(names: Names) -> Names:
    """The same names, so that they can be compared: an empty list is as good as none."""
    return msgspec.structs.replace(
        names, short_names=names.short_names or None, categories=names.categories or None
    )


def to_wire(names: Names) -> dict[str, Any]:
    """Names as a status shows them: without what is empty, but plural and kind are always there."""
    fields = msgspec.to_builtins(names)
    return {name: value for name, value in fields.items() if value or name in ("plural", "kind")}


def from_wire(names: Any) -> Names:
    """Names of an object that was checked when it was written; none for what is no such thing."""
    try:
        return tidy(msgspec.convert(names or {}, Names))
    except msgspec.ValidationError:
        return Names()


def group_of(definition: str) -> str:
    """The group of a definition, from its name alone: `plural.group`."""
    return definition.partition(".")[2]


def resource_named(definition: str) -> GroupResource:
    """What a definition defines, from its name alone."""
    plural, _, group = definition.partition(".")
    return GroupResource(group, plural)


@dataclass(slots=True)
class _Held:
    """What one definition keeps from others."""

    revision: int = 0
    noted: frozenset[NameClaim] = frozenset()
    """As it is stored at the revision."""
    reserved: frozenset[NameClaim] = frozenset()
    """In a write that is under way."""

    @property
    def claims(self) -> frozenset[NameClaim]:
        return self.noted | self.reserved


@dataclass(slots=True)
class _Group:
    """The names of one group."""

    used: Counter[NameClaim] = field(default_factory=Counter)
    waiting: dict[NameClaim, set[str]] = field(default_factory=dict)
    """Definitions that were refused a name."""


class NameClaims:
    """The names that all definitions have, group by group; those of built-in kinds are taken."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._held: dict[str, _Held] = {}
        self._groups: dict[str, _Group] = {}

    def __len__(self) -> int:
        return len(self._held)

    def is_taken(self, claim: NameClaim, definition: str) -> bool:
        """Whether anybody but this definition has a name."""
        group = group_of(definition)
        used = self._group(group).used[claim]
        held = self._held.get(definition)
        if held is not None and claim in held.claims:
            used -= 1
        return used > 0

    def note(self, definition: str, names: Names, revision: int) -> set[str]:
        """A definition has these names at a revision; who may now get what it has given up."""
        held = self._held.setdefault(definition, _Held())
        if revision < held.revision:
            return set()
        held.revision = revision
        return self._change(definition, held, noted=claims_of(names), reserved=held.reserved)

    def reserve(self, definition: str, names: Names) -> None:
        """A definition will have these names, unless the write that gives them to it fails."""
        held = self._held.setdefault(definition, _Held())
        self._change(definition, held, noted=held.noted, reserved=claims_of(names))

    def end_reservation(self, definition: str) -> set[str]:
        """Such a write is over, and what came of it was noted; who may now get a name."""
        held = self._held.get(definition)
        if held is None:
            return set()
        return self._change(definition, held, noted=held.noted, reserved=frozenset())

    def remove(self, definition: str, revision: int) -> set[str]:
        """A definition is gone since a revision; who may now get its names."""
        held = self._held.get(definition)
        if held is None or revision < held.revision:
            return set()
        woken = self._change(definition, held, noted=frozenset(), reserved=frozenset())
        del self._held[definition]
        return woken

    def wait(self, definition: str, refused: Iterable[NameClaim]) -> None:
        """A definition was refused these names, and wants to hear when one of them is free."""
        waiting = self._group(group_of(definition)).waiting
        for claim in refused:
            waiting.setdefault(claim, set()).add(definition)

    def keep_only(self, definitions: Collection[str], revision: int) -> None:
        """All others are gone, as seen at a revision. Those who wait are looked at anyway."""
        for name in [name for name in self._held if name not in definitions]:
            self.remove(name, revision)

    def _change(
        self,
        definition: str,
        held: _Held,
        *,
        noted: frozenset[NameClaim],
        reserved: frozenset[NameClaim],
    ) -> set[str]:
        before = held.claims
        held.noted, held.reserved = noted, reserved
        after = held.claims
        if before == after:
            return set()
        group = self._group(group_of(definition))
        group.used.update(after - before)
        woken: set[str] = set()
        for claim in before - after:
            group.used[claim] -= 1
            if not group.used[claim]:
                del group.used[claim]
                woken |= group.waiting.pop(claim, set())
        return woken

    def _group(self, name: str) -> _Group:
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = _Group()
            for resource in self._catalog.in_group(name):
                if resource.origin is None:
                    found.used.update(_builtin_claims(resource.kind))
        return found


def _builtin_claims(kind: Any) -> frozenset[NameClaim]:
    return claims_of(
        Names(
            plural=kind.plural,
            singular=kind.singular,
            short_names=list(kind.short_names),
            kind=kind.kind,
            list_kind=kind.list_kind,
        )
    )


def _in_use(claims: Iterable[NameClaim]) -> str:
    texts = dict.fromkeys(
        f"{orjson.dumps(each.name).decode()} is already in use" for each in claims
    )
    return next(iter(texts)) if len(texts) == 1 else f"[{', '.join(texts)}]"
