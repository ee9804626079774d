"""Converts API objects to the values that `restow status` shows.

Objects are untrusted input: every type is checked. Not here: which objects are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from restow.apimachinery.errors import MachineryError
from restow.apimachinery.names import GroupResource, GroupVersion
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.encryption_keys import IDENTITY
from restow.apis.internal_v1alpha1 import StorageVersion, name_of, resource_of_name
from restow.apis.migration_v1alpha1 import persisted_hashes
from restow.apis.names import HOSTNAME_LABEL, IDENTITY_LABEL, IDENTITY_LABEL_VALUE
from restow.apis.storage_scan import StoredCount
from restow.client import ApiResource, DiscoveredResources, Object, key_of, metadata_of
from restow.client.lease_record import LeaseRecord
from restow.migration import migration_objects
from restow.migration.encryption_keys import ReportedKeys, persisted_keys, reported_keys
from restow.migration.migration_values import MigrationPhase
from restow.migration.overview_keys import keys_seen
from restow.migration.overview_values import (
    Hash,
    LeaderSeen,
    MigrationRow,
    ResourceSeen,
    ResourceStatus,
    ServerSeen,
    StoredSeen,
)
from restow.migration.readability import Unread
from restow.migration.store_scan import version_hash
from restow.migration.times import read_time
from restow.migration.trigger.eligibility import NEEDED_VERBS
from restow.migration.trigger.readings import reading_of
from restow.migration.trigger.values import UNKNOWN

_LEASE_SECONDS_DEFAULT: Final = 3_600
NAMES_SHOWN_MAX: Final = 5
_USUAL_VERSIONS: Final = ("v1", "v1beta1", "v1alpha1", "v1beta2", "v1alpha2", "v2", "v2beta1")
_PLURALS: Final = (("ies", "y"), ("es", ""), ("s", ""))


def resources_seen(
    discovered: DiscoveredResources,
    states: list[Object],
    reports: list[Object],
    migrations: list[MigrationRow],
    wanted: frozenset[GroupResource],
    *,
    remote: Mapping[GroupVersion, str] | None = None,
    servers: Iterable[ServerSeen] = (),
) -> list[ResourceSeen]:
    """Return the status of each resource. `remote` are the APIs of aggregated servers."""
    behind = {each.id: each.component for each in servers if each.is_aggregated}
    by_resource = {str(migration_objects.resource_of(state)): state for state in states}
    by_report = {key_of(report).name: report for report in reports}
    versions, stored_as = _versions(discovered), _stored_as(discovered)
    migrating = {each.resource for each in migrations if each.is_open}
    found: list[ResourceSeen] = []
    seen: set[str] = set()
    for each in discovered.preferred():
        stored = each
        if str(each.group_resource) not in by_resource:
            stored = stored_as.get(each.group_resource, each)
        name = str(stored.group_resource)
        state = by_resource.get(name)
        seen.add(name)
        is_stored = bool(each.storage_version_hash) or each.verbs >= NEEDED_VERBS
        if (wanted and each.group_resource not in wanted) or not (is_stored or state):
            continue
        report = by_report.get(name_of(stored.group_resource))
        known = versions.get(each.kind, ())
        resource = _resource(each, state, report, known, is_migrating=name in migrating)
        is_remote = each.resource.group_version in (remote or {})
        if (
            is_remote
            and not resource.is_reported
            and resource.verdict is not ResourceStatus.MIGRATING
        ):
            resource = replace(resource, verdict=ResourceStatus.LEFT_ALONE)
        components = sorted({behind[each] for each, _ in resource.servers if each in behind})
        found.append(replace(resource, components=tuple(components)))
    if not wanted:
        of_group = _group_versions(discovered, remote or {})
        groups = {each.group for each in remote or {}}
        for name in by_resource.keys() - seen:
            place = migration_objects.resource_of(by_resource[name])
            report = by_report.get(name_of(place))
            gone = _vanished(name, by_resource[name], report, of_group.get(place.group, ()))
            if place.group in groups and not gone.is_reported:
                gone = replace(gone, verdict=ResourceStatus.LEFT_ALONE)
            found.append(gone)
    return sorted(found, key=lambda each: each.resource)


def with_evidence(
    resources: Iterable[ResourceSeen], unread: Iterable[Unread], stored: StoredSeen
) -> list[ResourceSeen]:
    """A resource is ok only if it can be listed and its raw values match its StorageState."""
    by_resource = {each.resource: each for each in unread}

    def judged(seen: ResourceSeen) -> ResourceSeen:
        if seen.verdict in (ResourceStatus.LEFT_ALONE, ResourceStatus.GONE):
            return seen
        found = by_resource.get(seen.resource)
        if found is not None and found.is_damaged:
            return replace(seen, verdict=ResourceStatus.UNREADABLE)
        if seen.verdict is ResourceStatus.OK:
            if found is not None:
                return replace(seen, verdict=ResourceStatus.UNKNOWN)
            verdict, remark = _verdict_of_values(seen, stored)
            return replace(seen, verdict=verdict, remark=remark)
        return seen

    return [judged(each) for each in resources]


def _verdict_of_values(seen: ResourceSeen, stored: StoredSeen) -> tuple[ResourceStatus, str]:
    """Compare the raw values with a StorageState that is ok: the status, and the reason and remedy
    if it is not ok, unless the notes contain them."""
    if not stored.is_expected or seen.stores:
        return ResourceStatus.OK, ""  # no server scans the store, or it is a store of their own
    if stored.scan is None:
        return ResourceStatus.UNKNOWN, ""
    resource = GroupResource.parse(seen.resource)
    rows = stored.scan.rows_of(resource)
    scope = {True: "Namespaced", False: "Cluster", None: ""}[stored.namespaced.get(resource)]
    unread = [row for row in rows if row.problem or (scope and row.scope != scope)]
    unread += [row for row in rows if seen.prefixes and row.prefix not in seen.prefixes]
    if unread:
        many, example = unread[0].values, _example(unread[0])
        remark = f"servers cannot read {many:,} of its values, such as {example}: restow doctor"
        return ResourceStatus.UNREADABLE, remark
    key = IDENTITY if seen.keys is None else seen.keys.agreed
    if rows and not (seen.written.hash and key):
        return ResourceStatus.UNKNOWN, ""  # servers do not agree: there is nothing to compare
    for row in rows:
        if seen.written.hash != version_hash(row):
            return ResourceStatus.TO_MIGRATE, _to_migrate(
                seen, row, f"as {row.api_version}", "version"
            )
        if (row.encryption_key or IDENTITY) != key:
            how = f"under the encryption key {row.encryption_key}"
            return (
                ResourceStatus.TO_MIGRATE,
                _to_migrate(seen, row, how if row.encryption_key else "without encryption", "key"),
            )
    return ResourceStatus.OK, ""


def _to_migrate(seen: ResourceSeen, row: StoredCount, how: str, other: str) -> str:
    return (
        f"{row.values:,} of its values {'is' if row.values == 1 else 'are'} stored {how}, such as"
        f" {_example(row)}, and servers write with another {other}: restow migrate {seen.resource}"
    )


def _example(row: StoredCount) -> str:
    return row.examples[0] if row.examples else row.prefix


def unread_notes(unread: Iterable[Unread]) -> list[str]:
    """Notes on the resources that could not be listed; of many only the first is explained."""
    notes = [
        f"{each.resource} cannot be listed: {each.why}: `restow doctor` says what to do"
        for each in unread
        if each.is_damaged
    ]
    others = [each for each in unread if not each.is_damaged]
    if others:
        names = ", ".join(each.resource for each in others[:NAMES_SHOWN_MAX])
        more = f" and {len(others) - NAMES_SHOWN_MAX} more" * (len(others) > NAMES_SHOWN_MAX)
        notes.append(
            f"whether the objects of {names}{more} can be read is not known: {others[0].why}"
        )
    return notes


def silent_apis(
    remote: Mapping[GroupVersion, str], reports: Iterable[Object]
) -> dict[GroupVersion, str]:
    """Return the remote APIs of groups whose servers report no StorageVersions."""
    told = {
        resource_of_name(key_of(each).name).group
        for each in reports
        if (found := _read_report(each)) is not None and found.status.storage_versions
    }
    return {place: name for place, name in remote.items() if place.group not in told}


def groups_stored(states: Iterable[Object]) -> frozenset[str]:
    """Return the groups with a StorageState that lists versions."""
    found = {
        migration_objects.resource_of(state).group
        for state in states
        if _hashes(migration_objects.mapping(state, "status"))
    }
    return frozenset(found)


def _group_versions(
    discovered: DiscoveredResources, remote: Mapping[GroupVersion, str]
) -> dict[str, set[GroupVersion]]:
    """The versions of each group, including those whose servers do not respond."""
    found = {
        group.name: {GroupVersion(group.name, version) for version in group.versions}
        for group in discovered.groups
    }
    for place in remote:
        found.setdefault(place.group, set()).add(place)
    return found


def _versions(discovered: DiscoveredResources) -> dict[str, set[GroupVersion]]:
    """The versions that a storage version hash of a kind may stand for.

    All versions of its group, since objects outlive served versions; and those of other groups with
    a kind of this name, since two resources may share a store.
    """
    of_group = {group.name: group.versions for group in discovered.groups}
    found: dict[str, set[GroupVersion]] = {}
    for each in discovered.resources:
        versions = {GroupVersion(each.group, version) for version in of_group.get(each.group, ())}
        found.setdefault(each.kind, set()).update(versions)
    return found


def _stored_as(discovered: DiscoveredResources) -> dict[GroupResource, ApiResource]:
    """Resources that share their objects with another one, such as the two of events.

    They have the same hash, which is computed from the stored kind.
    """
    first: dict[tuple[str, str], ApiResource] = {}
    found: dict[GroupResource, ApiResource] = {}
    for each in discovered.preferred():
        place = (each.name, each.storage_version_hash)
        if each.storage_version_hash and first.setdefault(place, each) is not each:
            found[each.group_resource] = first[place]
    return found


def _resource(
    found: ApiResource,
    state: Object | None,
    report: Object | None,
    versions: Iterable[GroupVersion],
    *,
    is_migrating: bool,
) -> ResourceSeen:
    reported = _read_report(report)
    entries = [] if reported is None else reported.status.storage_versions
    texts = {str(each) for each in versions}
    texts.update(
        each for entry in entries for each in (entry.encoding_version, *entry.decodable_versions)
    )
    name = _namer(found.kind, texts)
    status = migration_objects.mapping(state or {}, "status")
    written = found.storage_version_hash or migration_objects.text(
        status, "currentStorageVersionHash"
    )
    if reported is not None and entries:
        written = reading_of(reported, kind=found.kind, follows=False).common
    persisted = () if state is None else tuple(name(each) for each in _hashes(status))
    said = ReportedKeys() if reported is None else reported_keys(reported)
    keys = keys_seen(said, persisted_keys(status))
    return ResourceSeen(
        resource=str(found.group_resource),
        written=name(written),
        persisted=persisted,
        heartbeat=read_time(status.get("lastHeartbeatTime")),
        servers=tuple((each.api_server_id, each.encoding_version) for each in entries),
        is_reported=bool(entries),
        stores=tuple(sorted({*said.stores.values()})),
        prefixes=tuple(sorted({each.partition("{")[0] for each in said.locations.values()})),
        keys=keys,
        verdict=_verdict(
            written,
            persisted,
            keys_left=keys is not None and keys.is_left,
            is_reported=bool(entries),
            is_migrating=is_migrating,
        ),
    )


def _verdict(
    written: str,
    persisted: tuple[Hash, ...],
    *,
    keys_left: bool,
    is_reported: bool,
    is_migrating: bool,
) -> ResourceStatus:
    if is_reported and not written:
        return ResourceStatus.DISAGREEING
    if is_migrating:
        return ResourceStatus.MIGRATING
    if not persisted or not written:
        return ResourceStatus.UNKNOWN
    is_right = {each.hash for each in persisted} == {written} and not keys_left
    return ResourceStatus.OK if is_right else ResourceStatus.TO_MIGRATE


def _vanished(
    name: str, state: Object, report: Object | None = None, versions: Iterable[GroupVersion] = ()
) -> ResourceSeen:
    """The status of a StorageState whose resource is not served, or not visible now.

    Its kind is not known, but it is often derivable from the plural: if the hash of a derived kind
    matches, the version is known.
    """
    status = migration_objects.mapping(state, "status")
    reported = _read_report(report)
    entries = [] if reported is None else reported.status.storage_versions
    resource = migration_objects.resource_of(state)
    texts = {str(each) for each in versions}
    texts.update(str(GroupVersion(resource.group, each)) for each in _USUAL_VERSIONS)
    texts.update(entry.encoding_version for entry in entries)
    namers = [_namer(kind, texts) for kind in _likely_kinds(resource.resource)]

    def named(text: str) -> Hash:
        return next((found for namer in namers if (found := namer(text)).version), Hash(text))

    written = {entry.encoding_version for entry in entries}
    return ResourceSeen(
        resource=name,
        written=Hash("", written.pop()) if len(written) == 1 else Hash(""),
        persisted=tuple(named(each) for each in _hashes(status)),
        heartbeat=read_time(status.get("lastHeartbeatTime")),
        servers=tuple((each.api_server_id, each.encoding_version) for each in entries),
        is_reported=bool(entries),
        keys=keys_seen(ReportedKeys(), persisted_keys(status)),
        # A resource that servers still report is only unavailable now.
        verdict=ResourceStatus.UNKNOWN if entries else ResourceStatus.GONE,
    )


def _likely_kinds(plural: str) -> list[str]:
    """Derive kinds from a plural: `policies` is a `Policy`; `boxes` a `Box` or a `Boxe`."""
    found = [plural.removesuffix(end) + more for end, more in _PLURALS if plural.endswith(end)]
    return [each[:1].upper() + each[1:] for each in (*found, plural)]


def _hashes(status: Mapping[str, Any]) -> tuple[str, ...]:
    return persisted_hashes(status.get("persistedStorageVersionHashes"))


def _namer(kind: str, api_versions: Iterable[str]) -> Callable[[str], Hash]:
    """Return a function that maps hashes of a kind to versions."""
    known: dict[str, str] = {}
    for each in api_versions:
        try:
            known[storage_version_hash(GroupVersion.parse(each).with_kind(kind))] = each
        except MachineryError:
            continue  # a server reports an invalid version
    return lambda text: Hash(text, "" if text == UNKNOWN else known.get(text, ""))


def _read_report(report: Object | None) -> StorageVersion | None:
    try:
        return None if report is None else msgspec.convert(report, StorageVersion)
    except msgspec.ValidationError:
        return None


def migrations_seen(found: Iterable[Object], states: Iterable[Object] = ()) -> list[MigrationRow]:
    """Convert migrations of either API, in the order of the list, with the StorageStates."""
    by_name = {key_of(each).name: each for each in states}
    seen = [
        migration_seen(each, by_name.get(str(migration_objects.resource_of(each))))
        for each in found
    ]
    succeeded: dict[str, list[MigrationRow]] = {}
    for each in seen:
        if each.phase == MigrationPhase.SUCCEEDED.value:
            succeeded.setdefault(each.resource, []).append(each)
    return [
        replace(each, is_superseded=True)
        if each.phase == MigrationPhase.FAILED.value
        and any(_is_later(other, each) for other in succeeded.get(each.resource, ()))
        else each
        for each in seen
    ]


def _is_later(one: MigrationRow, other: MigrationRow) -> bool:
    """Whether one ended after the other; times are in whole seconds."""
    if one.finished is None or other.finished is None or one.created is None:
        return False
    if one.finished != other.finished:
        return one.finished > other.finished
    return other.created is not None and one.created > other.created


def migration_seen(migration: Object, state: Object | None = None) -> MigrationRow:
    phase = migration_objects.phase_of(migration)
    condition = migration_objects.condition(migration, phase.value) or {}
    status = migration_objects.mapping(migration, "status")
    failed = status.get("failedObjects")
    is_paused = migration_objects.is_paused(migration) and phase in (
        MigrationPhase.PENDING,
        MigrationPhase.RUNNING,
    )
    return MigrationRow(
        name=key_of(migration).name,
        api_version=migration_objects.text(migration, "apiVersion"),
        resource=str(migration_objects.resource_of(migration)),
        phase="Paused" if is_paused else phase.value,
        is_proven=migration_objects.is_verified(migration, state),
        message=migration_objects.text(condition, "message"),
        progress=dict(migration_objects.mapping(status, "progress")),
        failed_objects=[each for each in failed or () if isinstance(each, dict)]
        if isinstance(failed, list)
        else [],
        created=read_time(metadata_of(migration).get("creationTimestamp")),
        finished=migration_objects.finished_at(migration),
    )


def server_seen(lease: Object, now: datetime) -> ServerSeen:
    record = LeaseRecord.read(lease)
    labels = migration_objects.mapping(metadata_of(lease), "labels")
    renewed = read_time(record.renew_time)
    return ServerSeen(
        id=key_of(lease).name,
        host=migration_objects.text(labels, HOSTNAME_LABEL),
        renewed=renewed,
        is_live=_is_live(renewed, record, now),
        component=migration_objects.text(labels, IDENTITY_LABEL) or IDENTITY_LABEL_VALUE,
    )


def leader_seen(lease: Object, now: datetime) -> LeaderSeen:
    record = LeaseRecord.read(lease)
    renewed = read_time(record.renew_time)
    return LeaderSeen(
        name=key_of(lease).name,
        namespace=key_of(lease).namespace,
        holder=record.holder,
        renewed=renewed,
        is_live=bool(record.holder) and _is_live(renewed, record, now),
    )


def _is_live(renewed: datetime | None, record: LeaseRecord, now: datetime) -> bool:
    seconds = record.lease_seconds or _LEASE_SECONDS_DEFAULT
    return renewed is not None and now - renewed <= timedelta(seconds=seconds)
