"""Rules on raw values: safe means that the target decodes each value, at the key where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.storage_scan import Contradiction, ScannedDefinition, ScannedServer, StoredCount
from restow.migration.preflight import (
    ClusterView,
    Reason,
    ResourceView,
    ServerEntry,
    TargetRelease,
    TargetResource,
    blockers,
    judge,
)
from restow.migration.preflight.targets import running_target
from restow.migration.store_scan import StoreScan

WIDGETS = GroupResource("example.com", "widgets")
PREFIX = "/registry/example.com/widgets/"
V1, V2, V9 = "example.com/v1", "example.com/v2", "example.com/v9"


def hash_of(version: str) -> str:
    return storage_version_hash(GroupVersionKind.of(version, "Widget"))


def target(*decodable: str, is_namespaced: bool = True, **rest: object) -> TargetRelease:
    row = TargetResource(
        kind="Widget",
        storage=decodable[0],
        decodable=decodable,
        prefix=PREFIX,
        is_namespaced=is_namespaced,
    )
    return TargetRelease(name="next", resources={WIDGETS: row}, **rest)  # type: ignore[arg-type]


NOTHING = TargetRelease(name="next", resources={})


def row(version: str = V1, **fields: object) -> StoredCount:
    usual = {
        "prefix": PREFIX,
        "group": "example.com",
        "resource": "widgets",
        "scope": "Namespaced",
        "api_version": version,
        "kind": "Widget",
        "encoding": "json",
        "values": 3,
        "examples": [f"{PREFIX}default/a"],
    }
    return StoredCount(**usual | fields)  # type: ignore[arg-type]


BUILTIN = ResourceView(
    resource=WIDGETS,
    kind="Widget",
    persisted=(hash_of(V1),),
    entries=(ServerEntry(server="a", encodes=V1, decodes=(V1, V2)),),
    common=V1,
    readable_keys=(("identity", "aesgcm:key1:f"),),
)
CUSTOM = replace(
    BUILTIN,
    custom_versions=(V1, V2),
    custom_prefix=PREFIX,
    entries=(ServerEntry(server="a", encodes=V1, decodes=(V1, V2), is_custom=True),),
)


def view(*rows: StoredCount, resource: ResourceView = BUILTIN, **scan: object) -> ClusterView:
    found = StoreScan(revision=100, rows=rows, **scan)  # type: ignore[arg-type]
    return ClusterView(resources=(resource,), scan=found)


def reasons(cluster: ClusterView, wanted: TargetRelease) -> list[Reason]:
    return [each.reason for each in blockers(cluster, wanted)]


def test_values_that_the_target_reads() -> None:
    """Right version, right scope, no encryption: safe."""
    assert reasons(view(row(V1), row(V2)), target(V2, V1)) == []


@pytest.mark.parametrize("resource", [BUILTIN, CUSTOM])
def test_a_version_that_the_target_cannot_decode(resource: ResourceView) -> None:
    """A value in the store blocks, whatever the StorageState lists; the remedy depends on which
    servers
    can decode it."""
    wanted = target(V1, V2) if resource is BUILTIN else NOTHING
    (found,) = blockers(view(row(V9), resource=resource), wanted)
    assert found.reason is Reason.UNDECODABLE
    assert "3 values are stored as example.com/v9" in found.what
    assert f"restow store delete {PREFIX}default/a" in found.advice
    if resource is CUSTOM:
        assert "add v9 to the CRD with served: false" in found.advice
        return
    old = replace(resource, entries=(ServerEntry(server="a", encodes=V1, decodes=(V1, V9)),))
    (found,) = blockers(view(row(V9), resource=old), wanted)
    assert found.advice == "migrate them first: restow migrate widgets.example.com --force"


@pytest.mark.parametrize(("is_namespaced", "scope"), [(True, "Cluster"), (False, "Namespaced")])
def test_values_at_keys_of_another_scope(is_namespaced: bool, scope: str) -> None:
    """A target that changes the scope of a kind reads its objects at other keys."""
    cluster = view(row(V1, scope=scope))
    assert reasons(cluster, target(V1, is_namespaced=is_namespaced)) == [Reason.MISPLACED]
    custom = view(row(V1, scope=scope), resource=replace(CUSTOM, is_namespaced=is_namespaced))
    assert reasons(custom, NOTHING) == [Reason.MISPLACED]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"api_version": "", "encoding": "unreadable", "problem": "NotDecodable"}, "unreadable"),
        ({"encoding": "yaml"}, "unreadable"),
        ({"kind": "Gadget"}, "unreadable"),
        ({"api_version": "", "encryption_key": "k", "problem": "NotDecrypted"}, "unreadable"),
        ({"problem": "NotDecrypted"}, "unreadable"),
        ({"encryption_key": "aesgcm:key1:f"}, "unknown"),
    ],
)
def test_undecodable_or_encrypted_values(fields: dict[str, object], reason: str) -> None:
    """Undecodable values block; encrypted values are unknown without the target's keys."""
    assert reasons(view(row(**fields)), target(V1)) == [reason]  # type: ignore[arg-type]


def test_keys_of_the_target() -> None:
    """With its configuration, the target decrypts values under its keys, and no others."""
    wanted = target(V1, readable_keys=lambda _: ("aesgcm:key1:f",))
    sealed = replace(BUILTIN, persisted_keys=("aesgcm:key1:f",))
    assert reasons(view(row(encryption_key="aesgcm:key1:f"), resource=sealed), wanted) == []
    other = row(encryption_key="aesgcm:key1:other")
    assert reasons(view(other, resource=sealed), wanted) == [Reason.KEY_UNREADABLE]
    assert reasons(view(row()), wanted) == [Reason.KEY_UNREADABLE], "plain values are not read"
    keeps = target(V1, keeps_keys=True)
    assert reasons(view(row(encryption_key="aesgcm:key1:f")), keeps) == []
    assert reasons(view(row(encryption_key="aesgcm:key2:f")), keeps) == [Reason.KEY_UNREADABLE]


def test_keys_that_servers_write_with() -> None:
    """A key that the target lacks blocks even before a value is stored under it."""
    writes = replace(BUILTIN, written_keys=("aesgcm:key1:f",), persisted_keys=("aesgcm:key1:f",))
    assert reasons(view(resource=writes), target(V1)) == [Reason.UNKNOWN]
    lacks = target(V1, readable_keys=lambda _: ("identity",))
    assert reasons(view(resource=writes), lacks) == [Reason.KEY_UNREADABLE]
    custom = replace(writes, custom_versions=(V1, V2), custom_prefix=PREFIX)
    custom = replace(custom, entries=(replace(custom.entries[0], is_custom=True),))
    assert reasons(view(resource=custom), replace(NOTHING, readable_keys=lacks.readable_keys)) == [
        Reason.KEY_UNREADABLE
    ]
    has = target(V1, readable_keys=lambda _: ("identity", "aesgcm:key1:f"))
    assert reasons(view(resource=writes), has) == []
    assert reasons(view(resource=writes), target(V1, keeps_keys=True)) == []


def test_keys_that_servers_may_have_written_with() -> None:
    """Keys used between the scan and a key change are in the StorageState."""
    moved = replace(BUILTIN, written_keys=("identity",), persisted_keys=("identity", "aesgcm:a:f"))
    assert reasons(view(resource=moved), target(V1)) == [Reason.UNKNOWN]
    plain = target(V1, readable_keys=lambda _: ("aesgcm:a:f",))
    assert reasons(view(resource=moved), plain) == [Reason.KEY_UNREADABLE], "plain writes"


def test_a_resource_that_the_target_does_not_have() -> None:
    """It must have no stored objects."""
    assert reasons(view(row()), NOTHING) == [Reason.VANISHING]
    assert reasons(view(), NOTHING) == []


def test_values_outside_the_prefix_of_a_served_resource() -> None:
    """They have its group and version, but servers do not read this prefix: deleting the objects of
    the
    resource would not help."""
    entry = replace(BUILTIN.entries[0], location=PREFIX + "{namespace}/{name}")
    served = replace(BUILTIN, entries=(entry,))
    unowned = row(prefix="/registry/widgets/", examples=["/registry/widgets/default/a"])
    for rows in ((unowned,), (row(), unowned)):
        cluster = view(*rows, resource=served)
        (found,) = blockers(cluster, target(V1))
        assert found.reason is Reason.UNOWNED
        assert "restow store delete" in found.advice
        assert [each.reason for each in blockers(cluster, running_target(cluster))] == [
            Reason.UNOWNED
        ]


def test_advice_for_misplaced_values() -> None:
    """Values that running servers find are kept; the others are deleted in the store."""
    entry = replace(BUILTIN.entries[0], location=PREFIX + "{namespace}/{name}")
    served = replace(BUILTIN, entries=(entry,))
    (_, found) = blockers(view(row(), resource=served), target(V1, is_namespaced=False))
    assert "choose a release in which the kind has the same scope" in found.advice
    (found,) = blockers(view(row(scope="Other"), resource=served), target(V1))
    assert f"restow store delete {PREFIX}default/a" in found.advice
    assert "kubectl" not in found.advice


def test_values_that_no_resource_owns() -> None:
    """Values of a CRD that was removed by force are not read by any server."""
    cluster = ClusterView(scan=StoreScan(revision=1, rows=(row(),)))
    (found,) = blockers(cluster, NOTHING)
    assert found.reason is Reason.UNOWNED
    assert PREFIX in found.what


def test_a_kind_that_changes_between_crd_and_built_in() -> None:
    """Servers that have a kind as a CRD and as built-in cannot run concurrently."""
    assert reasons(view(resource=CUSTOM), target(V1, V2)) == [Reason.CHANGED_OWNER]
    shadowed = replace(CUSTOM, entries=BUILTIN.entries)
    unserved = replace(CUSTOM, entries=())
    assert reasons(view(resource=unserved), target(V1, V2)) == [Reason.CHANGED_OWNER]
    assert reasons(view(resource=shadowed), target(V1, V2)) == []
    back = judge(view(row(), resource=shadowed), NOTHING)
    assert back.is_safe, "the CRD reads what the built-in kind has stored"
    assert [each.reason for each in back.warnings] == [Reason.CHANGED_OWNER]
    assert reasons(view(row(V9), resource=shadowed), NOTHING) == [Reason.UNDECODABLE]


def test_servers_that_store_objects_at_other_keys() -> None:
    """A release with another scope cannot run concurrently with the servers, with or without
    objects."""
    here = ServerEntry(
        server="a", encodes=V1, decodes=(V1,), location=f"{PREFIX}{{namespace}}/{{name}}"
    )
    cluster = view(resource=replace(BUILTIN, entries=(here,)))
    assert reasons(cluster, target(V1)) == []
    assert reasons(cluster, target(V1, is_namespaced=False)) == [Reason.MISPLACED]


def test_objects_older_than_their_crd() -> None:
    """A CRD that was recreated serves objects of an earlier one: a warning."""
    crd = ScannedDefinition(name="widgets.example.com", uid="u", create_revision=50)
    cluster = view(row(first_create_revision=10), resource=CUSTOM, definitions={crd.name: crd})
    report = judge(cluster, NOTHING)
    assert report.is_safe
    assert [each.reason for each in report.warnings] == [Reason.RECREATED]


def test_a_crd_that_no_server_serves() -> None:
    """Without server entries its objects cannot be read."""
    closed = replace(CUSTOM, entries=(), common="")
    assert Reason.NOT_SERVED in reasons(view(row(), resource=closed), NOTHING)


def test_a_conversion_webhook_that_does_not_answer() -> None:
    """Objects that cannot be converted cannot be read."""
    broken = replace(CUSTOM, unconvertible="default/a as example.com/v2: connection refused")
    assert reasons(view(row(), resource=broken), NOTHING) == [Reason.CONVERSION]


def test_a_failed_migration_is_a_warning() -> None:
    """The stored values decide; the failed migration is a warning."""
    failed = replace(BUILTIN, failed_migration="widgets-1: 3 objects failed")
    report = judge(view(row(), resource=failed), target(V1))
    assert report.is_safe
    assert [each.reason for each in report.warnings] == [Reason.FAILED_MIGRATION]
    advice = report.warnings[0].advice
    assert "restow migrate --force widgets.example.com" in advice, "without --force it is skipped"


def test_a_state_that_lists_too_few_versions() -> None:
    """A contradiction between StorageState and store blocks, even if the target decodes all
    versions."""
    found = Contradiction(group="example.com", resource="widgets", api_version=V2, values=2)
    assert reasons(view(row(V2), contradictions=(found,)), target(V2, V1)) == [Reason.CONTRADICTION]


@pytest.mark.parametrize("mode", ["off", ""])
def test_servers_that_write_without_reporting(mode: str) -> None:
    """A server with the feature gate off, or of another restow, may write any version."""
    cluster = view(row(), servers=(ScannedServer(id="apiserver-a", mode=mode),))
    assert reasons(cluster, target(V1)) == [Reason.UNREPORTED_WRITER]
    reporting = view(row(), servers=(ScannedServer(id="apiserver-a", mode="report"),))
    assert reasons(reporting, target(V1)) == []


def test_a_server_that_rejected_its_encryption_configuration() -> None:
    """It runs with the old keys and would not restart with the file: this blocks."""
    refused = ScannedServer(
        id="apiserver-a", mode="report", encryption_problem="/etc/keys.yaml: it lacks aesgcm:one"
    )
    (found,) = blockers(view(row(), servers=(refused,)), target(V1))
    assert found.reason is Reason.ENCRYPTION_CONFIG
    assert "apiserver-a" in found.what
    assert found.why == "/etc/keys.yaml: it lacks aesgcm:one"
    assert "put the file back" in found.advice


def test_another_api_server_on_the_same_store() -> None:
    """A fence does not stop an API server that is not restow."""
    cluster = view(row(), unfenced=frozenset({"apiserver-k8s"}))
    (found,) = blockers(cluster, target(V1))
    assert found.reason is Reason.UNREPORTED_WRITER
    assert "restow store delete /registry/leases/kube-system/apiserver-k8s" in found.advice


def test_advice_names_keys_of_values_that_servers_do_not_find() -> None:
    """It names the first keys, and the command that lists the others."""
    keys = [f"{PREFIX}{name}" for name in ("a", "b c", "d", "e")]
    (found,) = blockers(view(row(scope="Cluster", values=9, examples=keys)), target(V1))
    assert found.reason is Reason.MISPLACED
    assert f"restow store delete {PREFIX}a; restow store delete '{PREFIX}b c'" in found.advice
    assert f"6 more: restow store list {PREFIX}" in found.advice
    assert f"{PREFIX}e" not in found.advice


def test_advice_for_values_that_only_the_target_does_not_find() -> None:
    """Their keys are right for the servers: another release must be chosen."""
    entry = replace(BUILTIN.entries[0], location=f"{PREFIX}{{namespace}}/{{name}}")
    cluster = view(row(), resource=replace(BUILTIN, entries=(entry,)))
    found = blockers(cluster, target(V1, is_namespaced=False))
    assert {each.reason for each in found} == {Reason.MISPLACED}
    assert all("restow store" not in each.advice for each in found)


rows = st.builds(
    row,
    st.sampled_from((V1, V2, V9)),
    scope=st.sampled_from(("Cluster", "Namespaced", "Other")),
    encoding=st.sampled_from(("json", "yaml")),
    prefix=st.sampled_from((PREFIX, "/registry/other/")),
)


@given(
    stored=st.lists(rows, max_size=4),
    readable=st.sets(st.sampled_from((V1, V2, V9)), min_size=1),
    is_namespaced=st.booleans(),
)
def test_safe_if_and_only_if_every_value_is_read(
    stored: list[StoredCount], readable: set[str], is_namespaced: bool
) -> None:
    """The rules agree with a reference implementation that checks each value."""
    wanted = target(*sorted(readable), is_namespaced=is_namespaced)
    resource = replace(BUILTIN, persisted=(), entries=(), common="")
    cluster = view(*stored, resource=resource)
    scope = "Namespaced" if is_namespaced else "Cluster"
    is_read = all(
        (each.prefix, each.scope, each.encoding) == (PREFIX, scope, "json")
        and each.api_version in readable
        for each in stored
    )
    assert (not blockers(cluster, wanted)) == is_read
