"""The release to upgrade to before a target that cannot be reached in one step. Pure.

Two steps may be needed: first a release that reads the version of the target, then one that writes
it. The advice names only the next one; preflight is repeated after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from restow.migration.preflight.values import (
    Intermediate,
    PreflightFinding,
    ResourceView,
    TargetRelease,
    TargetResource,
)

__all__ = ["Intermediate", "intermediate", "name_intermediates"]


def intermediate(
    view: ResourceView, known: TargetResource, target: TargetRelease, *, stored: str = ""
) -> Intermediate:
    """The release to upgrade to before the target; `stored`: a version that it must read."""
    written = [each.encodes for each in view.entries]
    shared = [each for each in known.decodable if all(each in e.readable for e in view.entries)]
    # The servers that run at the same time must be able to read what it writes.
    writes = known.storage if known.storage in shared else next(iter(shared), view.common)
    writes = writes or next(iter(written), known.storage)
    reads = dict.fromkeys(each for each in (stored, *written, known.storage, writes) if each)
    return Intermediate(
        resource=view.resource,
        reads=tuple(reads),
        writes=writes,
        is_kubernetes=target.kubernetes_minor is not None,
    )


def name_intermediates(
    found: Iterable[PreflightFinding],
    releases: Callable[[], Iterable[TargetRelease]],
    blockers_of: Callable[[TargetRelease], Iterable[PreflightFinding]],
) -> tuple[PreflightFinding, ...]:
    """Return the blockers, with a known release named in the advice where one helps.

    A release is named if it removes a blocker and adds none.
    """
    found = tuple(found)
    wanted = [each.intermediate for each in found if each.intermediate is not None]
    if not wanted:
        return found
    names: dict[Intermediate, str] = {}
    present = {(each.resource, each.reason) for each in found}
    for release in releases():
        fitting = [each for each in wanted if each not in names and _fits(release, each)]
        if fitting:
            left = {(each.resource, each.reason) for each in blockers_of(release)}
            solved = [each for each in fitting if each.resource not in {name for name, _ in left}]
            names |= dict.fromkeys(solved if left <= present else (), release.name)
    return tuple(
        replace(each, advice=each.intermediate.advice(names[each.intermediate]))
        if each.intermediate in names
        else each
        for each in found
    )


def _fits(release: TargetRelease, wanted: Intermediate) -> bool:
    known = release.resources.get(wanted.resource)
    return (
        known is not None
        and known.storage == wanted.writes
        and set(wanted.reads) <= set(known.decodable)
    )
