"""The rules: what is in the way of a release. Pure: a view and a target in, an answer out.

A release is safe when each of its servers can read all that may be stored; when what it writes can
be read by the servers that run now, which serve beside it and are what one goes back to; and when
the cluster is at rest: agreed on what it writes, and not in the middle of rewriting it.

Nothing is guessed. Where the cluster does not say what is stored ("Unknown"), that is in the way
itself, unless the target reads all that it could be; where nobody keeps a record, as on Kubernetes
without StorageStates, it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from restow.controllers.preflight.values import (
    HEARTBEAT_SECONDS_MAX,
    UNKNOWN,
    Blocker,
    ClusterView,
    Reason,
    Report,
    ResourceView,
    Target,
    TargetResource,
)
from restow.kinds.kubernetes_releases import is_known, stored_before
from restow.machinery.errors import MachineryError
from restow.machinery.names import GroupVersion
from restow.machinery.version_hash import storage_version_hash


def blockers(view: ClusterView, target: Target) -> tuple[Blocker, ...]:
    """What speaks against it; empty: nothing does."""
    return judge(view, target).blockers


def judge(view: ClusterView, target: Target) -> Report:
    """All that is to be said about a cluster on its way to a release."""
    found = [*_whole(view, target)]
    for each in sorted(view.resources, key=lambda each: str(each.resource)):
        found += _at_rest(each, target, is_rolling=view.is_rolling)
        if each.custom_versions is not None:
            found += _custom(each, each.custom_versions)
            continue
        known = target.resources.get(each.resource)
        if known is None:
            found += _vanishing(each, target)
        else:
            found += _readable(each, known, view, target)
            found += _history(each, known, view, target)
            found += _way_back(each, known, target)
    return Report(
        target=target.name,
        blockers=tuple(blocker for blocker, is_blocking in found if is_blocking),
        warnings=tuple(blocker for blocker, is_blocking in found if not is_blocking),
        checked=len(view.resources),
        notes=view.notes,
    )


_Finding = tuple[Blocker, bool]
"""Something, and whether it is in the way."""


def _whole(view: ClusterView, target: Target) -> Iterator[_Finding]:
    """What concerns no single resource."""
    for each in view.unseen:
        yield (
            Blocker(
                resource=None,
                reason=Reason.UNSEEN,
                what=each,
                why="what was not seen cannot be called safe",
                advice="ask as a user who may list it, and when all servers are up",
            ),
            True,
        )
    now, then = view.kubernetes_minor, target.kubernetes_minor
    if now is not None and then is not None and abs(then - now) > 1:
        step = 1 if then > now else -1
        between = [f"1.{each}" for each in range(now + step, then, step)]
        yield (
            Blocker(
                resource=None,
                reason=Reason.SKIPPED_RELEASE,
                what=f"from 1.{now} to 1.{then} in one step",
                why="Kubernetes is upgraded one minor release at a time",
                advice=f"go by way of {', '.join(between)}, and ask for each of them",
            ),
            False,
        )


def _at_rest(view: ResourceView, target: Target, *, is_rolling: bool) -> Iterator[_Finding]:
    """Agreed, and not being rewritten; in the middle of a roll neither can be had.

    A migration goes on through an upgrade to a release that writes the same version.
    """
    known = target.resources.get(view.resource)
    is_kept = known is not None and view.common == known.storage
    if view.migrations and not is_kept and not is_rolling:
        names = ", ".join(view.migrations)
        yield (
            Blocker(
                resource=view.resource,
                reason=Reason.MIGRATING,
                what=f"is being migrated ({names})",
                why="another version in the middle of it makes the migration begin anew",
                advice="wait until it has ended: restow status",
            ),
            True,
        )
    if not view.is_agreed and not is_rolling:
        written = sorted({each.encodes for each in view.entries})
        why = view.disagreement or f"they write {' and '.join(written)}"
        yield (
            Blocker(
                resource=view.resource,
                reason=Reason.DISAGREEMENT,
                what="the running servers do not agree on a version",
                why=why,
                advice="finish the rolling upgrade that is under way, or take it back",
            ),
            True,
        )


def _readable(
    view: ResourceView, known: TargetResource, cluster: ClusterView, target: Target
) -> Iterator[_Finding]:
    """All that may be stored, the target can read."""
    why = _why_unknown(view)
    if why is not None and not _is_harmless(view, known, cluster):
        yield (
            Blocker(
                resource=view.resource,
                reason=Reason.UNKNOWN,
                what="it is not known in which versions objects are stored",
                why=why,
                advice=_migrate(view),
            ),
            True,
        )
    hashes = _hashes(known.kind, known.decodable)
    foreign = [each for each in _persisted(view) if each not in hashes]
    if foreign:
        names = _hashes(view.kind or known.kind, _spoken(view, target))
        versions = ", ".join(names.get(each, f"a version with the hash {each}") for each in foreign)
        yield (
            Blocker(
                resource=view.resource,
                reason=Reason.UNDECODABLE,
                what=f"objects may be stored as {versions}",
                why=f"{target.name} can read {', '.join(known.decodable)}",
                advice=_rewrite_first(view, known, foreign),
            ),
            True,
        )


def _why_unknown(view: ResourceView) -> str | None:
    """Why its StorageState does not tell what is stored; None: it does, or there is none."""
    if view.persisted is None:
        return None
    if UNKNOWN in (view.persisted or (UNKNOWN,)):
        return 'its StorageState says "Unknown"'
    if view.entries:
        return None  # servers keep the state themselves, in the transactions that change it
    if view.heartbeat_seconds is None or view.heartbeat_seconds > HEARTBEAT_SECONDS_MAX:
        return (
            "nobody keeps its StorageState up to date: no heartbeat, so restow controllers is off"
        )
    return None


def _is_harmless(view: ResourceView, known: TargetResource, cluster: ClusterView) -> bool:
    """Whether all that running servers can read, the target can read as well.

    A restow server takes part only if it can read everything that is stored, and nobody writes what
    it cannot read: whatever "Unknown" stands for is among the versions that each of them reads. A
    real API server promises no such thing.
    """
    if not view.entries or cluster.kubernetes_minor is not None:
        return False
    readable = [{each.encodes, *each.decodes} for each in view.entries]
    return set.intersection(*readable).issubset(known.decodable)


def _history(
    view: ResourceView, known: TargetResource, cluster: ClusterView, target: Target
) -> Iterator[_Finding]:
    """Without a record: what earlier releases wrote may still be there, if never rewritten."""
    if view.persisted is not None or cluster.kubernetes_minor is None:
        return
    written = stored_before(view.resource, cluster.kubernetes_minor)
    old = [each for each in written if each not in known.decodable]
    if old:
        yield (
            Blocker(
                resource=view.resource,
                reason=Reason.UNKNOWN,
                what=f"objects that were never rewritten may be stored as {', '.join(old)}",
                why=f"earlier releases wrote that, and {target.name} may not be able to read it",
                advice=f"count them with restow census, or rewrite all: restow migrate"
                f" {view.resource}",
            ),
            False,
        )


def _way_back(view: ResourceView, known: TargetResource, target: Target) -> Iterator[_Finding]:
    """What the target writes, the servers that run can read."""
    blind = [each for each in view.entries if known.storage not in (*each.decodes, each.encodes)]
    if not blind:
        return
    servers = ", ".join(each.server for each in blind)
    readable = ", ".join(sorted({version for each in blind for version in each.decodes}))
    is_voted = bool(view.selected)
    yield (
        Blocker(
            resource=view.resource,
            reason=Reason.NO_WAY_BACK,
            what=f"{target.name} writes {known.storage}",
            why=f"{servers} can read only {readable}"
            + (", so there is no way back once all have voted for it" if is_voted else ""),
            advice="go by way of a release that can read both and still writes the old one",
        ),
        # Voters write what was selected, which all of them can read, until the last one is gone.
        not is_voted,
    )


def _vanishing(view: ResourceView, target: Target) -> Iterator[_Finding]:
    """Objects that nobody would serve any more stay in the store, and nobody can delete them."""
    if target.kubernetes_minor is not None and not is_known(view.resource):
        yield (
            Blocker(
                resource=view.resource,
                reason=Reason.UNSEEN,
                what="is in no release that the table knows",
                why="so nothing can be said of it",
                advice="look it up in the notes of the release",
            ),
            False,
        )
        return
    if view.has_objects is False:
        return
    seen = "has objects" if view.has_objects else "may have objects, which could not be looked at"
    yield (
        Blocker(
            resource=view.resource,
            reason=Reason.VANISHING,
            what=seen,
            why=f"{target.name} has no such resource, so nobody could read or delete them",
            advice=f"save what is needed, then: kubectl delete {view.resource} --all -A",
        ),
        True,
    )


def _custom(view: ResourceView, listed: tuple[str, ...]) -> Iterator[_Finding]:
    """A custom resource depends on its definition alone: what is stored must be in it."""
    hashes = _hashes(view.kind, listed)
    foreign = [each for each in view.stored_versions if each not in listed]
    foreign += [
        f"a version with the hash {each}" for each in _persisted(view) if each not in hashes
    ]
    if foreign:
        yield (
            Blocker(
                resource=view.resource,
                reason=Reason.UNDECODABLE,
                what=f"objects may be stored as {', '.join(foreign)}",
                why=f"its CustomResourceDefinition lists only {', '.join(listed)}",
                advice="add the version to the definition (served: false), then: restow migrate"
                f" {view.resource}",
            ),
            True,
        )


def _persisted(view: ResourceView) -> list[str]:
    """The hashes of all that is known to be stored, or is written just now."""
    found = [each for each in view.persisted or () if each != UNKNOWN]
    found += [view.current_hash] if view.current_hash else []
    found += _hashes(view.kind, (each.encodes for each in view.entries))
    return list(dict.fromkeys(found))


def _spoken(view: ResourceView, target: Target) -> Iterable[str]:
    """Versions that a hash may stand for: whatever anybody has ever called by a name."""
    for entry in view.entries:
        yield from (entry.encodes, *entry.decodes)
    yield from stored_before(view.resource, target.kubernetes_minor or 0)
    for minor in range(1, 5):
        for stage in ("", "beta1", "beta2", "beta3", "alpha1", "alpha2", "alpha3"):
            yield str(GroupVersion(view.resource.group, f"v{minor}{stage}"))


def _hashes(kind: str, versions: Iterable[str]) -> dict[str, str]:
    """The versions of a kind by their hashes."""
    found: dict[str, str] = {}
    for each in versions:
        try:
            found[storage_version_hash(GroupVersion.parse(each).with_kind(kind))] = each
        except MachineryError:
            continue  # of a server that says strange things
    return found


def _rewrite_first(view: ResourceView, known: TargetResource, foreign: list[str]) -> str:
    """Rewriting helps only when what is written now can be read by the target."""
    written = _hashes(view.kind or known.kind, [view.common] if view.common else [])
    current = next(iter(written), view.current_hash)
    if current and current not in foreign:
        return _migrate(view)
    return "go by way of a release that can read it and writes a version that the target can read"


def _migrate(view: ResourceView) -> str:
    return f"rewrite them first: restow migrate {view.resource}"
