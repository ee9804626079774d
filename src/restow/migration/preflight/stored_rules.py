"""Rules on raw values: whether the target reads each of them, at its key. Pure.

Each prefix of keys has an owner in the target: a built-in resource, a CRD, or none. Each row of the
scan must have the owner's scope, a version that the owner decodes, an encoding that servers read,
and an encryption key that the target has. The scan is the evidence; StorageStates can only add
blockers (`rules`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from restow.apimachinery.names import GroupResource
from restow.apis.encryption_keys import IDENTITY, is_readable
from restow.apis.storage_scan import OBJECTS_PREFIX, StoredCount
from restow.migration.preflight.intermediate import Intermediate, intermediate
from restow.migration.preflight.values import (
    ClusterView,
    PreflightFinding,
    Reason,
    ResourceView,
    TargetRelease,
    TargetResource,
)
from restow.migration.store_scan import StoreScan, resource_of

READABLE_ENCODINGS: Final = frozenset({"json", "protobuf"})
KUBERNETES_ENCODINGS: Final = frozenset({"json", "protobuf", "yaml"})
EXAMPLES_SHOWN_MAX: Final = 3
SAME_SCOPE: Final = (
    "choose a release in which the kind has the same scope: restow preflight --to RELEASE; to"
    " change the scope, give the kind another name"
)


@dataclass(frozen=True, slots=True)
class _Owner:
    """The resource of the target that reads the values under a prefix."""

    decodable: tuple[str, ...]
    is_namespaced: bool | None
    """None: not known."""
    kind: str
    """Empty: not known."""
    what: str
    """The reason why it can read only these versions, for messages."""
    built_in: TargetResource | None = None
    """None: a CRD."""


def stored_findings(
    view: ClusterView, scan: StoreScan, target: TargetRelease
) -> Iterator[PreflightFinding]:
    """Return the findings of the raw values for a target."""
    custom = {each.custom_prefix: each for each in view.resources if each.custom_prefix}
    names = {each.resource: each for each in view.resources}
    by_prefix: dict[str, list[StoredCount]] = {}
    for row in scan.rows:
        by_prefix.setdefault(row.prefix, []).append(row)
    for prefix, rows in sorted(by_prefix.items()):
        resource = resource_of(rows[0])
        known, crd = target.at(prefix, resource), custom.get(prefix)
        found = None if resource is None else names.get(resource)
        if known is not None and (crd is None or crd.is_built_in):
            yield from _readable(rows, _builtin(known, target), target, found)
        elif crd is not None:
            yield from _of_crd(rows, crd, scan, target)
        else:
            yield from _without_owner(prefix, rows, target, view)
    for resource, stored in _contradictions(scan).items():
        yield _contradiction(resource, stored)


def _builtin(known: TargetResource, target: TargetRelease) -> _Owner:
    return _Owner(
        known.decodable,
        known.is_namespaced if known.prefix else None,
        known.kind,
        f"{target.name} can read {', '.join(known.decodable)}",
        known,
    )


def _of_crd(
    rows: Sequence[StoredCount], crd: ResourceView, scan: StoreScan, target: TargetRelease
) -> Iterator[PreflightFinding]:
    listed = crd.custom_versions or ()
    owner = _Owner(
        listed,
        crd.is_namespaced,
        crd.kind,
        f"its CRD lists only {', '.join(listed)}",
    )
    yield from _readable(rows, owner, target, crd)
    yield from _recreated(rows, crd, scan)
    # Stock Kubernetes reports no StorageVersions of custom resources.
    if not crd.entries and target.kubernetes_minor is None:
        yield PreflightFinding(
            resource=crd.resource,
            reason=Reason.NOT_SERVED,
            what=f"{_values(rows)} stored, and no server serves the resource",
            why="no server has registered its CRD",
            advice=f"see why (kubectl describe crd {crd.resource}), and correct the CRD:"
            f" kubectl edit crd {crd.resource}",
        )


def _readable(
    rows: Sequence[StoredCount], owner: _Owner, target: TargetRelease, view: ResourceView | None
) -> Iterator[PreflightFinding]:
    """Check the location, version, encoding and key of each row."""
    resource = resource_of(rows[0])
    expected = {True: "Namespaced", False: "Cluster", None: ""}[owner.is_namespaced]
    misplaced = [row for row in rows if expected and row.scope != expected]
    if misplaced:
        yield _misplaced(resource, misplaced, expected, target, view)
    undecodable = [
        row for row in rows if row.api_version and row.api_version not in owner.decodable
    ]
    for version in dict.fromkeys(row.api_version for row in undecodable):
        alike = [row for row in undecodable if row.api_version == version]
        yield _undecodable(alike, owner, view, target)
    is_kubernetes = target.kubernetes_minor is not None
    encodings = KUBERNETES_ENCODINGS if is_kubernetes else READABLE_ENCODINGS
    broken = [row for row in rows if row.problem == "NotDecodable"]
    broken += [row for row in rows if not row.problem and row.encoding not in encodings]
    broken += [row for row in rows if owner.kind and row.kind not in ("", owner.kind)]
    if broken:
        yield _broken(resource, broken)
    for row in rows:
        if row.encryption_key or row.problem == "NotDecrypted" or target.readable_keys is not None:
            yield from _key(resource, row, target, view)


def _undecodable(
    rows: Sequence[StoredCount], owner: _Owner, view: ResourceView | None, target: TargetRelease
) -> PreflightFinding:
    """Report values of one version that the owner does not decode."""
    version, remedy = rows[0].api_version, _remedy(rows, owner, view, target)
    return PreflightFinding(
        resource=resource_of(rows[0]),
        reason=Reason.UNDECODABLE,
        what=f"{_values(rows)} stored as {version}",
        why=f"{owner.what}; for example {_examples(rows)}",
        advice=str(remedy),
        intermediate=remedy if isinstance(remedy, Intermediate) else None,
    )


def _remedy(
    rows: Sequence[StoredCount], owner: _Owner, view: ResourceView | None, target: TargetRelease
) -> str | Intermediate:
    """Advise a migration if the running servers can read the version and write a readable one."""
    resource, version = resource_of(rows[0]), rows[0].api_version
    entries = () if view is None else view.entries
    if owner.built_in is None:
        return (
            f"add {version.rpartition('/')[2]} to the CRD with served: false (kubectl edit crd"
            f" {resource}), then: restow migrate {resource} --force; or {_deleting(rows)}"
        )
    if view is None or not entries or any(version not in each.readable for each in entries):
        return f"{_deleting(rows)}; then create the objects again, in a version that servers read"
    if all(each.encodes in owner.decodable for each in entries):
        return f"migrate them first: restow migrate {resource} --force"
    return intermediate(view, owner.built_in, target, stored=version)


def _misplaced(
    resource: GroupResource | None,
    rows: Sequence[StoredCount],
    expected: str,
    target: TargetRelease,
    view: ResourceView | None,
) -> PreflightFinding:
    """Report values at keys that the target does not read."""
    found = " and ".join(sorted({row.scope for row in rows}))
    # Running servers do not find them either, so the API cannot return them.
    if view is not None and view.scopes.issuperset(row.scope for row in rows):
        advice = SAME_SCOPE
    else:
        advice = f"{_deleting(rows)}; then create the objects again"
    return PreflightFinding(
        resource=resource,
        reason=Reason.MISPLACED,
        what=f"{_values(rows)} stored at keys of scope {found}",
        why=f"with {target.name} its scope is {expected}, so servers look for them at other keys;"
        f" for example {_examples(rows)}",
        advice=advice,
    )


def _broken(resource: GroupResource | None, rows: Sequence[StoredCount]) -> PreflightFinding:
    forms = ", ".join(sorted({f"{row.encoding} {row.kind}".strip() for row in rows}))
    return PreflightFinding(
        resource=resource,
        reason=Reason.UNREADABLE,
        what=f"{_values(rows)} stored that servers cannot read ({forms})",
        why=f"for example {_examples(rows)}",
        advice=f"{_deleting(rows)}; then create the objects again from a backup",
    )


def _key(
    resource: GroupResource | None,
    row: StoredCount,
    target: TargetRelease,
    view: ResourceView | None,
) -> Iterator[PreflightFinding]:
    """Check that the target can decrypt the values of a row."""
    name = row.encryption_key or IDENTITY
    if row.problem == "NotDecrypted":
        yield _not_decrypted(resource, row, target)
        return
    if target.keeps_keys or resource is None:
        known = [] if view is None else list(view.readable_keys)
        if resource is not None and all(is_readable(row.encryption_key, each) for each in known):
            return
    elif target.readable_keys is None:
        yield keys_not_known(resource, f"{_values([row])} encrypted with {name}")
        return
    elif is_readable(row.encryption_key, target.readable_keys(resource)):
        return
    what = f"{_values([row])} {_encrypted(name)}"
    yield key_unreadable(resource, what, name, f"; for example {_examples([row])}")


def _not_decrypted(
    resource: GroupResource | None, row: StoredCount, target: TargetRelease
) -> PreflightFinding:
    """Report values that the scanning server could not decrypt."""
    name = row.encryption_key or IDENTITY
    why = "they cannot be decrypted: the key is missing, or the values are damaged"
    missing = f"the key {name}"
    if name == IDENTITY:
        why = "the servers do not read values of the resource that are not encrypted"
        missing = f"the provider {IDENTITY}"
    advice = (
        f"add {missing} to the encryption configuration of all servers; or {_deleting([row])};"
        " then create the objects again from a backup"
    )
    if target.kubernetes_minor is not None:
        advice = "name the configuration of the servers: --encryption-provider-config FILE"
    return PreflightFinding(
        resource=resource,
        reason=Reason.UNREADABLE,
        what=f"{_values([row])} {_encrypted(name)}",
        why=f"{why}; for example {_examples([row])}",
        advice=advice,
    )


def key_unreadable(
    resource: GroupResource | None, what: str, name: str, example: str = ""
) -> PreflightFinding:
    """Report an encryption key that the target does not have."""
    return PreflightFinding(
        resource=resource,
        reason=Reason.KEY_UNREADABLE,
        what=what,
        why=f"the target does not have this key{example}",
        advice=f"add {name} to the encryption configuration of the target; or put a key that it has"
        f" first in the encryption configuration of all servers, then: restow migrate {resource}"
        " --force",
    )


def keys_not_known(resource: GroupResource, what: str) -> PreflightFinding:
    """Report a key of which it is not known whether the target has it."""
    return PreflightFinding(
        resource=resource,
        reason=Reason.UNKNOWN,
        what=what,
        why="it is not known whether the target has this key",
        advice="repeat it with the configuration of the target: --encryption-provider-config FILE",
    )


def _recreated(
    rows: Sequence[StoredCount], crd: ResourceView, scan: StoreScan
) -> Iterator[PreflightFinding]:
    """Report objects older than their CRD: they belong to an earlier CRD with another uid."""
    stored = scan.definitions.get(str(crd.resource))
    created = 0 if stored is None else stored.create_revision
    older = [row for row in rows if 0 < row.first_create_revision < created]
    place = "" if crd.is_namespaced is False else " -n NAMESPACE"
    if older:
        yield PreflightFinding(
            resource=crd.resource,
            reason=Reason.RECREATED,
            what="objects are stored that are older than the CRD",
            why="the CRD was deleted while objects remained, and created again;"
            f" for example {_examples(older)}",
            advice="list the objects with the oldest first: kubectl get"
            f" {crd.resource} -A --sort-by=.metadata.creationTimestamp; delete those that you"
            f" do not need: kubectl delete {crd.resource} NAME{place}; or save all of them"
            f" (kubectl get {crd.resource} -A -o yaml) and create them again: kubectl replace"
            " --force -f FILE",
            is_blocking=False,
        )


def _without_owner(
    prefix: str, rows: Sequence[StoredCount], target: TargetRelease, view: ClusterView
) -> Iterator[PreflightFinding]:
    """Report values that nothing in the target reads."""
    if target.kubernetes_minor is not None:
        return  # the table of releases does not have every prefix: see `rules`
    resource = resource_of(rows[0])
    served = next((each for each in view.resources if each.resource == resource), None)
    is_served = served is not None and (served.entries or served.common)
    if served is not None and is_served and prefix in (served.prefixes or (prefix,)):
        yield PreflightFinding(
            resource=resource,
            reason=Reason.VANISHING,
            what=f"has {_sum(rows):,} object{'s' * (_sum(rows) != 1)}",
            why=f"{target.name} has no such resource, so they could be neither read nor deleted",
            advice=f"save what is needed (kubectl get {resource} -A -o yaml), then: kubectl"
            f" delete {resource} --all -A",
        )
        return
    where = prefix if prefix != OBJECTS_PREFIX else _examples(rows)
    yield PreflightFinding(
        resource=resource,
        reason=Reason.UNOWNED,
        what=f"{_values(rows)} stored under {where}",
        why=f"no resource and no CRD owns the prefix; for example {_examples(rows)}",
        advice=f"create the CRD again: kubectl create -f FILE; or {_deleting(rows)}",
    )


def _contradictions(scan: StoreScan) -> dict[GroupResource, list[str]]:
    found: dict[GroupResource, list[str]] = {}
    for each in scan.contradictions:
        resource = GroupResource(each.group, each.resource)
        found.setdefault(resource, []).append(each.text)
    return found


def _contradiction(resource: GroupResource, stored: Sequence[str]) -> PreflightFinding:
    return PreflightFinding(
        resource=resource,
        reason=Reason.CONTRADICTION,
        what="objects are stored in versions or under encryption keys that its StorageState does"
        f" not list: {'; '.join(stored)}",
        why="the StorageState is wrong, which is a defect of restow or the work of another writer;"
        ' the servers add "Unknown" to it, and migrate',
        advice=f"wait for that, or migrate now: restow migrate {resource} --force",
    )


def _sum(rows: Sequence[StoredCount]) -> int:
    return sum(row.values for row in rows)


def _values(rows: Sequence[StoredCount]) -> str:
    many = _sum(rows)
    return "1 value is" if many == 1 else f"{many:,} values are"


def _examples(rows: Sequence[StoredCount]) -> str:
    return ", ".join([key for row in rows for key in row.examples][:EXAMPLES_SHOWN_MAX])


def _encrypted(key: str) -> str:
    return "not encrypted" if key == IDENTITY else f"encrypted with {key}"


def _deleting(rows: Sequence[StoredCount]) -> str:
    """Instructions to save and delete values that only the store itself returns."""
    keys = [shlex.quote(key) for row in rows for key in row.examples][:EXAMPLES_SHOWN_MAX]
    if not keys:
        return "save what is needed, and delete the values from the store"
    more = _sum(rows) - len(keys)
    commands = [f"restow store delete {key}" for key in keys]
    if more > 0:
        commands.append(f"{more:,} more: restow store list {rows[0].prefix}")
    saving = ", ".join(f"restow store get {key}" for key in keys)
    return f"save what is needed ({saving}), and delete: {'; '.join(commands)}"
