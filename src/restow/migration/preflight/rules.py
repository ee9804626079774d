"""The rules that block a release. Pure: a view of the cluster and a target in, a report out.

A release is safe when (a) it can read every stored value at its key, (b) every server that can
still write writes only versions that it can read, and (c) no server writes without reporting.
Also, the servers that run now must be able to read the versions that it writes, since they run at
the same time and are the target of a rollback, and no migration or upgrade may be in progress.

(a) is decided by the raw values (`stored_rules`). StorageStates are an index: they can only add
blockers. Without raw values, as on Kubernetes, they are the only evidence, and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from restow.apimachinery.errors import MachineryError
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.encryption_keys import IDENTITY, is_readable
from restow.apis.names import LEASE_NAMESPACE
from restow.apis.storage_scan import OBJECTS_PREFIX
from restow.kinds.kubernetes_releases import is_known, stored_before
from restow.migration.preflight.intermediate import intermediate, name_intermediates
from restow.migration.preflight.stored_rules import (
    SAME_SCOPE,
    key_unreadable,
    keys_not_known,
    stored_findings,
)
from restow.migration.preflight.values import (
    HEARTBEAT_SECONDS_MAX,
    UNKNOWN,
    ClusterView,
    Evidence,
    Intermediate,
    PreflightFinding,
    PreflightReport,
    Reason,
    ResourceView,
    TargetRelease,
    TargetResource,
    not_seen,
)

UNVERIFIED_MIN: Final = 3
NAMES_SHOWN_MAX: Final = 3
REFUSED_FILE_ADVICE: Final = (
    "put the file back as it was, or correct it: it must have every key under which values may be"
    " stored, and a new secret needs a new name; the server takes it within seconds, without a"
    " restart; then check again"
)


def blockers(view: ClusterView, target: TargetRelease) -> tuple[PreflightFinding, ...]:
    """Return the blockers of a release; empty if there are none."""
    return judge(view, target).blockers


def judge(
    view: ClusterView,
    target: TargetRelease,
    *,
    accepts_discovery: bool = False,
    releases: Callable[[], Iterable[TargetRelease]] = tuple,
) -> PreflightReport:
    """Return the blockers and warnings for a cluster and a release.

    `accepts_discovery`: whether the user accepts a report that is based on discovery alone.
    `releases`: the releases that advice may name.
    """
    found = [*_whole(view, target), *_writers(view), *_refused_files(view)]
    # KEP-2343 4.18: any release that reads all that is stored may be run
    for each in sorted(view.resources, key=lambda each: str(each.resource)):
        if each.is_elsewhere:
            continue
        found += _of_resource(each, view, target)
    if view.scan is not None:
        found += stored_findings(view, view.scan, target)
    elif view.kubernetes_minor is None:
        found.append(_not_scanned(view))
    elif view.evidence is Evidence.DISCOVERY:
        found.append(_weak_evidence(is_blocking=not accepts_discovery))

    def named(*, is_blocking: bool) -> tuple[PreflightFinding, ...]:
        chosen = (each for each in found if each.is_blocking is is_blocking)
        return name_intermediates(chosen, releases, lambda each: blockers(view, each))

    return PreflightReport(
        target=target.name,
        blockers=named(is_blocking=True),
        warnings=_merge_unverified(named(is_blocking=False)),
        checked=len(view.resources),
        notes=view.notes,
        evidence=view.evidence,
        scanned=_scanned(view),
    )


def _merge_unverified(warnings: tuple[PreflightFinding, ...]) -> tuple[PreflightFinding, ...]:
    """Merge the warnings on resources that are not verified yet, as all are on a new cluster."""
    unverified = [each for each in warnings if each.reason is Reason.UNKNOWN and each.resource]
    if len(unverified) < UNVERIFIED_MIN:
        return warnings
    names = [str(each.resource) for each in unverified]
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    summary = PreflightFinding(
        reason=Reason.UNKNOWN,
        what=f"it is not verified in which versions {', '.join(names[:NAMES_SHOWN_MAX])}{more} are"
        " stored",
        why=unverified[0].why,
        advice="run restow controllers, which migrates and verifies them; or: restow migrate --all",
        is_blocking=False,
    )
    return (*(each for each in warnings if each not in unverified), summary)


def _of_resource(
    each: ResourceView, view: ClusterView, target: TargetRelease
) -> Iterator[PreflightFinding]:
    """Check StorageVersion, StorageState, CRD and migrations of one resource."""
    known = target.resources.get(each.resource)
    if known is not None and not each.kind:
        each = replace(each, kind=known.kind)
    yield from _no_change_in_progress(each, target, is_rolling=view.is_rolling)
    yield from _failed_migration(each)
    if known is not None or each.custom_versions is not None:
        yield from _keys(each, view, target)
    if each.custom_versions is not None:
        yield from _custom(each, each.custom_versions, view)
        yield from _changed_owner(each, known, target)
        if known is None:
            return
    if known is None:
        if view.scan is None:
            yield from _not_in_target(each, target)
        return
    yield from _readable(each, known, view, target)
    yield from _history(each, known, view, target)
    yield from _rollback(each, known, view, target)
    yield from _same_locations(each, known, view, target)
    yield from _written(each, known, view, target)


def _scanned(view: ClusterView) -> str:
    if view.scan is None:
        return ""
    where = f" in {view.scan.source}" if view.scan.source else ""
    return f"{view.scan.values:,} raw values{where} at revision {view.scan.revision}"


def _not_scanned(view: ClusterView) -> PreflightFinding:
    return PreflightFinding(
        reason=Reason.UNSEEN,
        what="the raw values of the store were not scanned",
        why=view.scan_problem or "no server was asked to scan them",
        advice="run it as a user who may create storagescans.storage.restow.dev, when all servers"
        " run a restow that serves it",
    )


def _weak_evidence(*, is_blocking: bool) -> PreflightFinding:
    return PreflightFinding(
        reason=Reason.WEAK_EVIDENCE,
        what="the answer rests on discovery only",
        why="discovery shows what servers write now, not what was stored before",
        advice="give the store (--store etcd://HOST:PORT, or --store snapshot:FILE), or run restow"
        " controllers until all resources are migrated and verified; to accept it as it is:"
        " --accept-discovery-only",
        is_blocking=is_blocking,
    )


def _writers(view: ClusterView) -> Iterator[PreflightFinding]:
    """Report servers that write to the store without reporting their storage versions."""
    if view.scan is None:
        return
    silent = [each for each in view.scan.servers if each.mode in ("", "off")]
    for each in silent:
        yield PreflightFinding(
            reason=Reason.UNREPORTED_WRITER,
            what=f"server {each.id} {f'({each.address}) ' if each.address else ''}writes"
            " without reporting its storage versions",
            why="its feature gate StorageVersionAPI is off"
            if each.mode
            else "its membership record cannot be read, so it runs another restow",
            advice="restart it with --feature-gates StorageVersionAPI=true; or stop it",
        )
    for each_id in sorted(view.scan.unfenced):
        yield PreflightFinding(
            reason=Reason.UNREPORTED_WRITER,
            what=f"the API server {each_id} writes to the same store and is no restow server",
            why="it holds an identity lease and no membership record, so no fence stops it",
            advice="stop it; its lease is removed when it has expired, or delete it: restow"
            f" store delete {OBJECTS_PREFIX}leases/{LEASE_NAMESPACE}/{each_id}",
        )


def _refused_files(view: ClusterView) -> Iterator[PreflightFinding]:
    """Report servers that run with older keys than their encryption configuration file has."""
    for each in view.scan.servers if view.scan is not None else ():
        if each.encryption_problem:
            yield PreflightFinding(
                reason=Reason.ENCRYPTION_CONFIG,
                what=f"server {each.id} {f'({each.address}) ' if each.address else ''}refuses"
                " its encryption configuration file: it would not start again",
                why=each.encryption_problem,
                advice=REFUSED_FILE_ADVICE,
            )


def _whole(view: ClusterView, target: TargetRelease) -> Iterator[PreflightFinding]:
    """Rules about the cluster as a whole."""
    yield from not_seen(view.unseen)
    now, then = view.kubernetes_minor, target.kubernetes_minor
    if now is None and not view.is_reported:
        yield PreflightFinding(
            reason=Reason.UNKNOWN,
            what="the server does not serve the StorageVersion API",
            why="it is not known in which versions its servers write",
            advice="start all servers with the feature gate StorageVersionAPI on, and with"
            " internal.apiserver.k8s.io/v1alpha1 not disabled in --runtime-config",
        )
    if now is not None and then is not None and abs(then - now) > 1:
        step = 1 if then > now else -1
        between = [f"1.{each}" for each in range(now + step, then, step)]
        yield PreflightFinding(
            reason=Reason.SKIPPED_RELEASE,
            what=f"from 1.{now} to 1.{then} in one step",
            why="Kubernetes is upgraded one minor release at a time",
            advice=f"upgrade by way of {', '.join(between)}, and check each of them",
            is_blocking=False,
        )


def _no_change_in_progress(
    view: ResourceView, target: TargetRelease, *, is_rolling: bool
) -> Iterator[PreflightFinding]:
    """The servers agree and no migration is running; not required during a rolling upgrade.

    A migration continues through an upgrade to a release that writes the same version.
    """
    known = target.resources.get(view.resource)
    is_kept = known is not None and view.common == known.storage
    if view.migrations and not is_kept and not is_rolling:
        names = ", ".join(view.migrations)
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.MIGRATING,
            what=f"is being migrated ({names})",
            why="another version in the middle of it makes the migration start again",
            advice=f"wait for its end: restow migrate {view.resource} --force",
        )
    if not view.is_agreed and not is_rolling:
        written = sorted({each.encodes for each in view.entries})
        why = view.disagreement or f"they write {' and '.join(written)}"
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.DISAGREEMENT,
            what="the running servers do not agree on a version",
            why=why,
            advice="finish the rolling upgrade that is under way (restow upgrade --to"
            " RELEASE); or take it back: restow upgrade --rollback",
        )


def _readable(
    view: ResourceView, known: TargetResource, cluster: ClusterView, target: TargetRelease
) -> Iterator[PreflightFinding]:
    """The target can read every version that the StorageState lists.

    "Unknown" blocks unless the raw values were scanned, which covers all of them.
    """
    yield from _unknown(view, cluster)
    hashes = _hashes(known.kind, known.decodable)
    found = _hashes(known.kind, _found(view, cluster))
    # Versions that the scan found are reported there, with counts and keys.
    # KEP-2343 4.7: it is not safe to run a release that cannot read a listed version
    foreign = [each for each in _persisted(view) if each not in hashes and each not in found]
    if foreign:
        names = _hashes(view.kind or known.kind, _candidate_versions(view, target))
        versions = ", ".join(names.get(each, f"a version with the hash {each}") for each in foreign)
        remedy = _rewrite_first(view, known, target, foreign)
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.UNDECODABLE,
            what=f"objects may be stored as {versions}",
            why=f"{target.name} can read {', '.join(known.decodable)}",
            advice=str(remedy),
            intermediate=remedy if isinstance(remedy, Intermediate) else None,
        )


def _unknown(view: ResourceView, cluster: ClusterView) -> Iterator[PreflightFinding]:
    """Report a StorageState that does not list the stored versions reliably.

    It blocks, unless the raw values were scanned after it became unknown: the scan covers all older
    writes, and the fences reject unreported ones.
    """
    why = _why_unknown(view, cluster)
    if why is None:
        return
    # KEP-2343 4.7: Unknown blocks, unless all stored values were read
    is_covered = cluster.scan is not None and view.state_revision <= cluster.scan.revision
    yield PreflightFinding(
        resource=view.resource,
        reason=Reason.UNKNOWN,
        what="it is not verified in which versions objects are stored",
        why=why,
        advice=_migrate(view) if is_covered else f"check again; or {_migrate(view)}",
        is_blocking=not is_covered,
    )


def _why_unknown(view: ResourceView, cluster: ClusterView) -> str | None:
    """The reason why the persisted versions in its StorageState are unreliable; None: they are
    reliable, or not expected to exist."""
    if view.persisted is None:
        return "it has no StorageState" if cluster.kubernetes_minor is None else None
    if UNKNOWN in (view.persisted or (UNKNOWN,)):
        return 'its StorageState says "Unknown"'
    if view.entries:
        return None  # servers update the state themselves, in the transactions that change it
    if view.heartbeat_seconds is None or view.heartbeat_seconds > HEARTBEAT_SECONDS_MAX:
        return "its StorageState has no recent heartbeat: restow controllers does not run"
    return None


def _history(
    view: ResourceView, known: TargetResource, cluster: ClusterView, target: TargetRelease
) -> Iterator[PreflightFinding]:
    """Report that old versions may remain, without a StorageState that shows a rewrite."""
    if view.persisted is not None or cluster.kubernetes_minor is None or cluster.scan is not None:
        return
    written = stored_before(view.resource, cluster.kubernetes_minor)
    old = [each for each in written if each not in known.decodable]
    if old:
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.UNKNOWN,
            what=f"objects that were never rewritten may be stored as {', '.join(old)}",
            why=f"earlier releases wrote that, and {target.name} may not be able to read it",
            advice=f"count them with restow census, or rewrite all: restow migrate {view.resource}",
            is_blocking=False,
        )


def _rollback(
    view: ResourceView, known: TargetResource, cluster: ClusterView, target: TargetRelease
) -> Iterator[PreflightFinding]:
    """The running servers, and those that may come back, can read what the target writes."""
    blind = {
        each.server: each.decodes
        for each in view.entries
        if known.storage not in (*each.decodes, each.encodes)
    }
    for server in cluster.absent:
        other = server.release.resources.get(view.resource)
        if other is not None and known.storage not in other.decodable:
            blind[server.name] = other.decodable
    if not blind:
        return
    readable = ", ".join(sorted({version for decodes in blind.values() for version in decodes}))
    is_voted = bool(view.selected)
    remedy = intermediate(view, known, target)
    yield PreflightFinding(
        resource=view.resource,
        reason=Reason.NO_WAY_BACK,
        what=f"{target.name} writes {known.storage}",
        why=f"{', '.join(blind)} can read only {readable}"
        + (
            ", so there is no way back once all servers have voted for it, or have lost their lease"
            if is_voted
            else ""
        ),
        advice=str(remedy),
        intermediate=remedy,
        # Voting servers write the selected version, which all can read, until the last one leaves.
        is_blocking=not is_voted,
    )


def _same_locations(
    view: ResourceView, known: TargetResource, cluster: ClusterView, target: TargetRelease
) -> Iterator[PreflightFinding]:
    """Report servers that store a resource at other keys: they cannot run together with the
    target."""
    others = {each.server: each.location for each in view.entries if not each.store}
    for server in cluster.absent:
        other = server.release.resources.get(view.resource)
        others[server.name] = "" if other is None else other.location
    differing = [name for name, each in others.items() if each and known.location not in ("", each)]
    if differing:
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.MISPLACED,
            what=f"{target.name} stores it at other keys ({known.location})",
            why=f"{', '.join(differing)} and it would not find each other's objects: servers of"
            " both do not become ready at the same time",
            advice=SAME_SCOPE,
        )


def _written(
    view: ResourceView, known: TargetResource, cluster: ClusterView, target: TargetRelease
) -> Iterator[PreflightFinding]:
    """Report servers that are not ready and will write a version that the target cannot read.

    The versions of the other servers are in the StorageState, and are checked with it.
    """
    if view.selected:
        return  # voting servers write the selected version
    for server in cluster.absent:
        other = server.release.resources.get(view.resource)
        if other is not None and other.storage not in known.decodable:
            yield PreflightFinding(
                resource=view.resource,
                reason=Reason.WRITES_UNREADABLE,
                what=f"{server.name} is not ready, and writes {other.storage} when it is",
                why=f"{target.name} can read {', '.join(known.decodable)}",
                advice=f"bring {server.name} back, then {intermediate(view, known, target)}",
            )


def _keys(
    view: ResourceView, cluster: ClusterView, target: TargetRelease
) -> Iterator[PreflightFinding]:
    """The target can decrypt what servers encrypt, or may have encrypted since the scan.

    Keys of values in the scan are checked with these (`stored_rules`).
    """
    if target.keeps_keys or not view.entries or cluster.scan is None:
        return
    found = {row.encryption_key or IDENTITY for row in cluster.scan.rows_of(view.resource)}
    for key in dict.fromkeys((*view.written_keys, *view.persisted_keys)):
        if key in found:
            continue
        how = "without encryption" if key == IDENTITY else f"encrypted with {key}"
        is_written = key in view.written_keys
        what = f"new objects are stored {how}" if is_written else f"objects may be stored {how}"
        if target.readable_keys is None:
            if key != IDENTITY:
                yield keys_not_known(view.resource, what)
        elif not is_readable(key, target.readable_keys(view.resource)):
            yield key_unreadable(view.resource, what, key)


def _failed_migration(view: ResourceView) -> Iterator[PreflightFinding]:
    if view.failed_migration:
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.FAILED_MIGRATION,
            what=f"its last migration failed: {view.failed_migration}",
            why="objects may be left in an old version",
            advice=f"correct what it names, then: restow migrate --force {view.resource}",
            is_blocking=False,
        )


def _changed_owner(
    view: ResourceView, known: TargetResource | None, target: TargetRelease
) -> Iterator[PreflightFinding]:
    """Report a kind that a CRD defines and the target builds in: its servers would not become ready
    while the others run. In the other direction the CRD is accepted when the last server with the
    built-in kind has left; until then new servers do not serve it."""
    if known is not None and not view.is_built_in:
        now, then, is_blocking = "defined by a CRD", f"built into {target.name}", True
    elif known is None and view.is_built_in:
        now, then, is_blocking = "built in", f"defined by a CRD with {target.name}", False
    else:
        return
    yield PreflightFinding(
        resource=view.resource,
        reason=Reason.CHANGED_OWNER,
        what=f"is {now}, and would be {then}",
        why="servers of both cannot serve it beside each other",
        advice=f"save its objects (kubectl get {view.resource} -A -o yaml), delete the CRD"
        f" (kubectl delete crd {view.resource}), and create the objects again after the"
        " upgrade",
        is_blocking=is_blocking,
    )


def _not_in_target(view: ResourceView, target: TargetRelease) -> Iterator[PreflightFinding]:
    """Report objects that no server would serve any more: they could not be read or deleted."""
    if target.kubernetes_minor is not None and not is_known(view.resource):
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.UNSEEN,
            what="is not in restow's table of Kubernetes releases",
            why="whether the target serves and reads it is not known",
            advice="look it up in the release notes of Kubernetes",
            is_blocking=False,
        )
        return
    if view.has_objects is False:
        return
    seen = "has objects" if view.has_objects else "may have objects, which could not be listed"
    yield PreflightFinding(
        resource=view.resource,
        reason=Reason.VANISHING,
        what=seen,
        why=f"{target.name} has no such resource, so no client could read or delete them",
        advice=f"save what is needed, then: kubectl delete {view.resource} --all -A",
    )


def _custom(
    view: ResourceView, listed: tuple[str, ...], cluster: ClusterView
) -> Iterator[PreflightFinding]:
    """A custom resource depends on its CRD alone: the CRD must list every stored version."""
    yield from _unknown(view, cluster)
    found = _found(view, cluster)
    hashes = _hashes(view.kind, (*listed, *found))
    foreign = [each for each in view.stored_versions if each not in (*listed, *found)]
    foreign += [
        f"a version with the hash {each}" for each in _persisted(view) if each not in hashes
    ]
    if foreign:
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.UNDECODABLE,
            what=f"objects may be stored as {', '.join(foreign)}",
            why=f"its CRD lists only {', '.join(listed)}",
            advice=f"add the version to the CRD with served: false (kubectl edit crd"
            f" {view.resource}), then: restow migrate {view.resource} --force",
        )
    if view.unconvertible:
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.CONVERSION,
            what="its conversion webhook does not convert stored objects",
            why=view.unconvertible,
            advice="start the webhook's backend; or correct spec.conversion of the CRD:"
            f" kubectl edit crd {view.resource}",
        )


def _found(view: ResourceView, cluster: ClusterView) -> list[str]:
    """The versions of the raw values of a resource."""
    rows = () if cluster.scan is None else cluster.scan.rows_of(view.resource)
    return [row.api_version for row in rows if row.api_version]


def _persisted(view: ResourceView) -> list[str]:
    """The hashes of all versions that may be stored, or are being written."""
    found = [each for each in view.persisted or () if each != UNKNOWN]
    found += [view.current_hash] if view.current_hash else []
    found += _hashes(view.kind, (each.encodes for each in view.entries))
    return list(dict.fromkeys(found))


def _candidate_versions(view: ResourceView, target: TargetRelease) -> Iterable[str]:
    """Candidate versions for a hash: those of servers and earlier releases, and common names."""
    for entry in view.entries:
        yield from (entry.encodes, *entry.decodes)
    yield from stored_before(view.resource, target.kubernetes_minor or 0)
    for minor in range(1, 5):
        for stage in ("", "beta1", "beta2", "beta3", "alpha1", "alpha2", "alpha3"):
            yield str(GroupVersion(view.resource.group, f"v{minor}{stage}"))


def _hashes(kind: str, versions: Iterable[str]) -> dict[str, str]:
    """Map the hashes of a kind to its versions."""
    found: dict[str, str] = {}
    for each in versions:
        try:
            found[storage_version_hash(GroupVersion.parse(each).with_kind(kind))] = each
        except MachineryError:
            continue  # a server reports an invalid version
    return found


def _rewrite_first(
    view: ResourceView, known: TargetResource, target: TargetRelease, foreign: list[str]
) -> str | Intermediate:
    """Advise a migration if the target can read what is written now; otherwise another release."""
    written = _hashes(view.kind or known.kind, [view.common] if view.common else [])
    current = next(iter(written), view.current_hash)
    if current and current not in foreign:
        return _migrate(view)
    return intermediate(view, known, target)


def _migrate(view: ResourceView) -> str:
    return f"migrate them first: restow migrate {view.resource}"
