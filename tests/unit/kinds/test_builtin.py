"""The tables of built-in kinds: consistent with each other, with the types, and with Kubernetes."""

import subprocess
import sys

import pytest

from restow.apimachinery.names import GroupVersionKind, version_priority
from restow.apimachinery.types import ListOf, StructRef
from restow.apimachinery.version_hash import storage_version_hash
from restow.kinds.builtin import all_kinds, find_kind, find_resource
from restow.kinds.derived_types import all_types
from restow.kinds.kind import Kind, SelectableField
from restow.kinds.releases import shipped_release

KINDS = {str(kind.group_kind): kind for kind in all_kinds()}


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_row(kind: Kind) -> None:
    """Each row is consistent."""
    assert kind.storage_version in kind.versions
    assert set(kind.served_versions) <= set(kind.versions)
    assert kind.served_versions
    assert kind.plural == kind.plural.lower()
    assert kind.singular == kind.kind.lower()
    assert kind.versions[0] in kind.served_versions
    if kind.cohabits_with is None and kind.group != "autoscaling":
        assert list(kind.versions) == sorted(kind.versions, key=version_priority)
    assert find_kind(kind.group, kind.kind) is kind
    assert find_resource(kind.group, kind.plural) is kind
    assert kind.has_status == any(each.name == "status" for each in kind.subresources)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_types(kind: Kind) -> None:
    """Each version of each kind has a type with the name in the row."""
    for version in kind.versions:
        struct = all_types().of_kind(kind.group, version, kind.kind)
        assert struct is not None
        assert struct.name == kind.type_name(version)
        assert {"kind", "apiVersion", "metadata"} <= set(struct.by_name)
        if kind.persisted:
            items = all_types().of_kind(kind.group, version, kind.list_kind)
            assert items is not None
            assert items.by_name["items"].type == ListOf(StructRef(struct.name))
        if kind.has_status and version == kind.storage_version:
            assert "status" in struct.by_name


def test_keys_are_not_shared() -> None:
    """No prefix of a kind contains another one, except for kinds that share a prefix
    intentionally."""
    prefixes = [
        kind.key_prefix for kind in all_kinds() if kind.persisted and not kind.cohabits_with
    ]
    assert len(prefixes) == len(set(prefixes))
    for prefix in prefixes:
        assert not any(other.startswith(f"{prefix}/") for other in prefixes)


@pytest.mark.parametrize(
    ("group", "plural", "prefix"),
    [
        ("", "configmaps", "configmaps"),
        ("", "services", "services/specs"),
        ("", "endpoints", "services/endpoints"),
        ("", "nodes", "minions"),
        ("", "replicationcontrollers", "controllers"),
        ("networking.k8s.io", "ingresses", "ingress"),
        ("events.k8s.io", "events", "events"),
        ("apps", "deployments", "deployments"),
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "apiextensions.k8s.io/customresourcedefinitions",
        ),
        ("apiregistration.k8s.io", "apiservices", "apiregistration.k8s.io/apiservices"),
        ("internal.apiserver.k8s.io", "storageversions", "storageversions"),
        ("storagemigration.k8s.io", "storageversionmigrations", "storageversionmigrations"),
        ("migration.k8s.io", "storagestates", "migration.k8s.io/storagestates"),
        (
            "kube-apiserver.internal.k8s.io",
            "storageversions",
            "kube-apiserver.internal.k8s.io/storageversions",
        ),
    ],
)
def test_key_prefixes(group: str, plural: str, prefix: str) -> None:
    """Keys are the same as in Kubernetes."""
    kind = find_resource(group, plural)
    assert kind is not None
    assert kind.key_prefix == prefix


@pytest.mark.parametrize(
    ("group", "kind", "hash_text"),
    [
        ("", "Pod", "xPOwRZ+Yhw8="),
        ("apps", "Deployment", "8aSe+NMegvE="),
        ("autoscaling", "HorizontalPodAutoscaler", "qwQve8ut294="),
        ("apiregistration.k8s.io", "APIService", "InPBPD7+PqM="),
        ("internal.apiserver.k8s.io", "StorageVersion", "c8YZt5U0nPk="),
        ("storagemigration.k8s.io", "StorageVersionMigration", "pCjmmKOkLy4="),
    ],
)
def test_storage_version_hashes(group: str, kind: str, hash_text: str) -> None:
    """The default storage version has the hash of a real server."""
    found = find_kind(group, kind)
    assert found is not None
    stored = GroupVersionKind(found.store.group, found.storage_version, found.store.kind)
    assert storage_version_hash(stored) == hash_text


def test_bare_names_find_the_expected_group() -> None:
    """The first group with a resource wins, so the order of groups determines the result."""
    groups: dict[str, str] = {}
    for kind in all_kinds():
        groups.setdefault(kind.plural, kind.group)
    assert groups["events"] == ""
    assert groups["storageversionmigrations"] == "storagemigration.k8s.io"
    assert groups["storageversions"] == "internal.apiserver.k8s.io"


def test_rules_of_update() -> None:
    """Kinds that reject unconditional updates, and kinds that an update creates, are as in
    Kubernetes."""
    assert {kind.plural for kind in all_kinds() if kind.create_on_update} == {
        "clusterrolebindings",
        "clusterroles",
        "endpoints",
        "events",
        "leases",
        "limitranges",
        "rolebindings",
        "roles",
        "runtimeclasses",
        "services",
    }
    for plural in ("leases", "customresourcedefinitions", "apiservices", "poddisruptionbudgets"):
        assert not next(k for k in all_kinds() if k.plural == plural).unconditional_update
    for plural in ("configmaps", "secrets", "deployments", "services", "roles", "events"):
        assert next(k for k in all_kinds() if k.plural == plural).unconditional_update
    without = ("ConfigMap", "Secret", "Namespace", "Lease", "Role", "Event", "ResourceQuota")
    assert not any(kind.tracks_generation for kind in all_kinds() if kind.kind in without)


def test_reviews_are_created_and_never_stored() -> None:
    """Reviews support only create, and are not stored; the same for actions and lookups."""
    unstored = [kind for kind in all_kinds() if not kind.persisted]
    reviews = [kind for kind in unstored if kind.kind.endswith(("Review", "Scan"))]
    assert len(reviews) == 7
    assert {kind.kind for kind in unstored if kind not in reviews} == {"Binding", "ComponentStatus"}
    assert all(kind.verbs == ("create",) for kind in reviews)
    namespaces = find_kind("", "Namespace")
    assert namespaces is not None
    assert "deletecollection" not in namespaces.verbs


def test_names() -> None:
    """Each kind has the name validation of Kubernetes."""
    role, service, pod = (
        find_kind("rbac.authorization.k8s.io", "Role"),
        find_kind("", "Service"),
        find_kind("", "Pod"),
    )
    assert role is not None
    assert service is not None
    assert pod is not None
    assert role.name_problem("system:node") is None
    assert service.name_problem("1a") is None
    assert service.name_problem("a.b") is not None
    assert pod.name_problem("a.b") is None


def test_values_of_selectable_fields() -> None:
    """A selector compares text, whatever the type of the field, and has a default for a missing
    field."""
    event = find_kind("events.k8s.io", "Event")
    assert event is not None
    fields = {field.label: field for field in event.selectable_fields}
    stored = {"involvedObject": {"kind": "Pod"}, "reportingComponent": "c"}
    assert fields["regarding.kind"].value_of(stored) == "Pod"
    assert fields["involvedObject.kind"].value_of(stored) == "Pod"
    assert fields["source"].value_of(stored) == "c"
    assert fields["source"].value_of({"source": {"component": "s"}}) == "s"
    host = SelectableField("h", ("spec", "hostNetwork"), absent="false")
    assert host.value_of({}) == "false"
    assert host.value_of({"spec": {"hostNetwork": True}}) == "true"
    assert host.value_of({"spec": 1}) == "false"
    assert SelectableField("r", ("n",)).value_of({"n": 0}) == "0"


def test_importing_the_model_loads_no_tables() -> None:
    """The tables, and the libraries for files, are loaded on first use."""
    code = (
        "import sys, restow.kinds.kind, restow.kinds.builtin\n"
        "print([m for m in ('yaml', 'restow.kinds.builtin.core') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_types_of_old_versions() -> None:
    """A type that the tables no longer contain is derived from another one with a few changed
    fields."""
    older = all_types().of_kind("autoscaling", "v2beta1", "HorizontalPodAutoscaler")
    assert older is not None
    spec = older.child(older.by_name["spec"].type)
    assert spec is not None
    assert "behavior" not in spec.by_name
    metric = spec.child(spec.by_name["metrics"].type)
    assert metric is not None
    assert metric.name == "io.k8s.api.autoscaling.v1.MetricSpec"
    job = all_types().of_kind("batch", "v2alpha1", "CronJob")
    assert job is not None
    assert job.fields == all_types().struct("io.k8s.api.batch.v1beta1.CronJob").fields


def test_types_of_our_own() -> None:
    """Kinds that Kubernetes does not build in have the fields that their clients use."""
    state = all_types().of_kind("migration.k8s.io", "v1alpha1", "StorageState")
    assert state is not None
    status = state.child(state.by_name["status"].type)
    assert status is not None
    assert list(status.by_name) == [
        "persistedStorageVersionHashes",
        "persistedEncryptionKeys",
        "currentStorageVersionHash",
        "lastHeartbeatTime",
        "currentStorageVersionHashes",
    ]
    assert all_types().of_kind("migration.k8s.io", "v1alpha1", "StorageStateSpec") is None
    assert all_types().of_kind("migration.k8s.io", "v9", "StorageState") is None
    assert all_types().of_kind("", "v1", "DeleteOptions") is not None


def test_versions_are_served_as_in_a_stock_release() -> None:
    """Discovery lists a kind in the versions of Kubernetes."""
    for kind in shipped_release("kubernetes-1.36").kinds:
        assert kind.definition.served_versions == kind.served_versions, kind.definition.group_kind
