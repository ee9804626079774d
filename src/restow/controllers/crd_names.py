"""Names of CRDs: decides which names a CRD gets; names that were accepted first are kept. Pure.

Within a group no two kinds may share a plural, singular or short name, nor a kind or list kind.
Each requested name is decided separately; a name that another CRD has is rejected, and decided
again when it becomes free. `NameClaims` counts the names of each group, so that the cost of a
decision does not depend on the number of CRDs. Not here: reading and writing CRDs.
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
    """A name that a CRD has or requests, as a kind or as a resource name."""

    is_kind: bool
    name: str


class NameDecision(NamedTuple):
    """The decision about the requested names of a CRD."""

    names: Names
    reason: str
    message: str
    refused: list[NameClaim]

    @property
    def is_accepted(self) -> bool:
        return self.reason == NO_CONFLICTS


def claims_of(names: Names) -> frozenset[NameClaim]:
    """Return all names that a CRD with these names occupies."""
    resources = (names.plural, names.singular, *(names.short_names or ()))
    kinds = (names.kind, names.list_kind)
    return frozenset(
        [NameClaim(is_kind=False, name=name) for name in resources if name]
        + [NameClaim(is_kind=True, name=name) for name in kinds if name]
    )


def decide(
    requested: Names, accepted: Names, is_taken: Callable[[NameClaim], bool]
) -> NameDecision:
    """Decide which of the requested names are accepted, given the names accepted so far.

    `is_taken` reports names of other CRDs. A name of the same CRD in another role is in use as
    well, except for a short name that repeats the plural or singular. The last rejection is
    reported, as in kube-apiserver.
    """
    requested, accepted = normalize(requested), normalize(accepted)
    own = claims_of(accepted)
    refused: list[NameClaim] = []
    reported = (NO_CONFLICTS, "no conflicts found")
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
            reported = (reason, _in_use(taken))
        else:
            chosen[attribute] = wanted
    chosen["categories"] = requested.categories
    return NameDecision(Names(**chosen), *reported, refused)


def normalize(names: Names) -> Names:
    """Normalize names for comparison: an empty list becomes None."""
    return msgspec.structs.replace(
        names, short_names=names.short_names or None, categories=names.categories or None
    )


def to_wire(names: Names) -> dict[str, Any]:
    """Return names for a status: without empty fields, except for plural and kind."""
    fields = msgspec.to_builtins(names)
    return {name: value for name, value in fields.items() if value or name in ("plural", "kind")}


def from_wire(names: Any) -> Names:
    """Decode the names of an object that was validated; empty if they are malformed."""
    try:
        return normalize(msgspec.convert(names or {}, Names))
    except msgspec.ValidationError:
        return Names()


def group_of(definition: str) -> str:
    """Return the group of a CRD from its name: `plural.group`."""
    return definition.partition(".")[2]


def resource_named(definition: str) -> GroupResource:
    """Return the resource of a CRD from its name."""
    plural, _, group = definition.partition(".")
    return GroupResource(group, plural)


@dataclass(slots=True)
class _Held:
    """The names that one CRD occupies."""

    revision: int = 0
    recorded: frozenset[NameClaim] = frozenset()
    """Names in the object at the revision."""
    reserved: frozenset[NameClaim] = frozenset()
    """Names in a write that is in progress."""

    @property
    def claims(self) -> frozenset[NameClaim]:
        return self.recorded | self.reserved


@dataclass(slots=True)
class _Group:
    """The names of one API group."""

    used: Counter[NameClaim] = field(default_factory=Counter)
    waiting: dict[NameClaim, set[str]] = field(default_factory=dict)
    """CRDs that wait for a name."""


class NameClaims:
    """The names of all CRDs by group; names of built-in kinds are always taken."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._held: dict[str, _Held] = {}
        self._groups: dict[str, _Group] = {}

    def __len__(self) -> int:
        return len(self._held)

    def is_taken(self, claim: NameClaim, definition: str) -> bool:
        """Whether a name is taken by a built-in kind or another CRD."""
        group = group_of(definition)
        used = self._group(group).used[claim]
        held = self._held.get(definition)
        if held is not None and claim in held.claims:
            used -= 1
        return used > 0

    def note(self, definition: str, names: Names, revision: int) -> set[str]:
        """Record the names of a CRD at a revision; return the CRDs that wait for a freed name."""
        held = self._held.setdefault(definition, _Held())
        if revision < held.revision:
            return set()
        held.revision = revision
        return self._change(definition, held, recorded=claims_of(names), reserved=held.reserved)

    def reserve(self, definition: str, names: Names) -> None:
        """Reserve names for a CRD while they are written to its status."""
        held = self._held.setdefault(definition, _Held())
        self._change(definition, held, recorded=held.recorded, reserved=claims_of(names))

    def end_reservation(self, definition: str) -> set[str]:
        """End a reservation after the write; return the CRDs that wait for a freed name."""
        held = self._held.get(definition)
        if held is None:
            return set()
        return self._change(definition, held, recorded=held.recorded, reserved=frozenset())

    def remove(self, definition: str, revision: int) -> set[str]:
        """Record the deletion of a CRD at a revision; return the CRDs that wait for a freed
        name."""
        held = self._held.get(definition)
        if held is None or revision < held.revision:
            return set()
        waiting_crds = self._change(definition, held, recorded=frozenset(), reserved=frozenset())
        del self._held[definition]
        return waiting_crds

    def wait(self, definition: str, refused: Iterable[NameClaim]) -> None:
        """Register a CRD that waits for rejected names."""
        waiting = self._group(group_of(definition)).waiting
        for claim in refused:
            waiting.setdefault(claim, set()).add(definition)

    def keep_only(self, definitions: Collection[str], revision: int) -> None:
        """Remove all other CRDs, as of a revision. Waiting CRDs are queued anyway."""
        for name in [name for name in self._held if name not in definitions]:
            self.remove(name, revision)

    def _change(
        self,
        definition: str,
        held: _Held,
        *,
        recorded: frozenset[NameClaim],
        reserved: frozenset[NameClaim],
    ) -> set[str]:
        before = held.claims
        held.recorded, held.reserved = recorded, reserved
        after = held.claims
        if before == after:
            return set()
        group = self._group(group_of(definition))
        group.used.update(after - before)
        waiting_crds: set[str] = set()
        for claim in before - after:
            group.used[claim] -= 1
            if not group.used[claim]:
                del group.used[claim]
                waiting_crds |= group.waiting.pop(claim, set())
        return waiting_crds

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
