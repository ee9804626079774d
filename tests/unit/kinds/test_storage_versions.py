"""StorageVersions, votes and StorageStates: their fields, and every rule with its message."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.typed_json import check
from restow.apimachinery.types import Field, Struct
from restow.kinds.builtin import all_kinds, find_kind, group_order
from restow.kinds.defaults import prepare_create
from restow.kinds.derived_types import all_types
from restow.kinds.kind import Kind
from restow.kinds.releases import shipped_release, shipped_releases
from restow.kinds.validation import validate

Object = dict[str, Any]
REPORT = ("internal.apiserver.k8s.io", "StorageVersion")
VOTE = ("kube-apiserver.internal.k8s.io", "StorageVersion")
STATE = ("migration.k8s.io", "StorageState")
REPORTS = "io.k8s.api.apiserverinternal.v1alpha1"
VOTES = "io.k8s.internal.kube-apiserver.v1alpha1"
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
API_VERSION = (
    "an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters "
    "or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. "
    "'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an "
    "optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"
)
ENTRY = "status.storageVersions[0]"
CONDITION = {
    "type": "AllEncodingVersionsEqual",
    "status": "True",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "reason": "CommonEncodingVersionSet",
    "message": "Common encoding version set",
}


def kind_of(group: str, kind: str) -> Kind:
    found = find_kind(group, kind)
    assert found is not None
    return found


def struct_of(group: str, kind: str) -> Struct:
    found = all_types().of_kind(group, "v1alpha1", kind)
    assert found is not None
    return found


def entry(server: str = "a", version: str = "apps/v1", **changes: Any) -> Object:
    return {
        "apiServerID": server,
        "encodingVersion": version,
        "decodableVersions": [version, "apps/v9"],
        **changes,
    }


def status_causes(status: Object, before: Object | None = None) -> list[str]:
    new = {"metadata": {"name": "apps.deployments"}, "spec": {}, "status": status}
    causes = validate(*REPORT, new, {**new, "status": before or {}})
    return [str(cause) for cause in causes]


def name_causes(group: str, kind: str, name: str, **fields: Any) -> list[str]:
    causes = validate(group, kind, {"metadata": {"name": name}, **fields})
    return [str(cause) for cause in causes]


# Fields.


@pytest.mark.parametrize(
    ("name", "field", "number", "always", "list_type", "list_keys"),
    [
        (f"{REPORTS}.StorageVersion", "metadata", 1, False, None, ()),
        (f"{REPORTS}.StorageVersion", "spec", 2, True, None, ()),
        (f"{REPORTS}.StorageVersion", "status", 3, True, None, ()),
        (f"{REPORTS}.StorageVersionStatus", "storageVersions", 1, False, "map", ("apiServerID",)),
        (f"{REPORTS}.StorageVersionStatus", "commonEncodingVersion", 2, False, None, ()),
        (f"{REPORTS}.StorageVersionStatus", "conditions", 3, False, "map", ("type",)),
        (f"{REPORTS}.ServerStorageVersion", "apiServerID", 1, False, None, ()),
        (f"{REPORTS}.ServerStorageVersion", "encodingVersion", 2, False, None, ()),
        (f"{REPORTS}.ServerStorageVersion", "decodableVersions", 3, False, "set", ()),
        (f"{REPORTS}.ServerStorageVersion", "servedVersions", 4, False, "set", ()),
        (f"{REPORTS}.StorageVersionCondition", "type", 1, True, None, ()),
        (f"{REPORTS}.StorageVersionCondition", "status", 2, True, None, ()),
        (f"{REPORTS}.StorageVersionCondition", "observedGeneration", 3, False, None, ()),
        (f"{REPORTS}.StorageVersionCondition", "lastTransitionTime", 4, False, None, ()),
        (f"{REPORTS}.StorageVersionCondition", "reason", 5, True, None, ()),
        (f"{REPORTS}.StorageVersionCondition", "message", 6, False, None, ()),
        (f"{REPORTS}.StorageVersionList", "metadata", 1, False, None, ()),
        (f"{REPORTS}.StorageVersionList", "items", 2, True, None, ()),
        # Votes have no protobuf form.
        (f"{VOTES}.StorageVersion", "metadata", 0, False, None, ()),
        (f"{VOTES}.StorageVersion", "selectedVersion", 0, False, None, ()),
        (f"{VOTES}.StorageVersion", "candidateVersions", 0, False, "map", ("apiServerID",)),
        (f"{VOTES}.VersionCandidate", "apiServerID", 0, False, None, ()),
        (f"{VOTES}.VersionCandidate", "preferredVersion", 0, False, None, ()),
    ],
)
def test_fields(  # noqa: PLR0917 - the row of a table
    name: str,
    field: str,
    number: int,
    always: bool,
    list_type: str | None,
    list_keys: tuple[str, ...],
) -> None:
    """Each field has its protobuf tag, is written if required, and merges by its keys."""
    found: Field = all_types().struct(name).by_name[field]
    assert (found.number, found.omitempty, found.list_type, found.list_keys) == (
        number,
        not always,
        list_type,
        list_keys,
    )


def test_no_other_fields() -> None:
    """A spec has no fields; neither kind has more than the table above."""
    assert all_types().struct(f"{REPORTS}.StorageVersionSpec").fields == ()
    assert [field.json for field in struct_of(*VOTE)][2:] == [
        "metadata",
        "selectedVersion",
        "candidateVersions",
    ]
    assert struct_of(VOTE[0], "StorageVersionList").is_kind


def test_spec_and_status_are_always_there() -> None:
    """A StorageVersion that was sent without them gets them, also at its creation."""
    obj = check(struct_of(*REPORT), {"metadata": {"name": "apps.deployments"}}).value
    assert (obj["spec"], obj["status"]) == ({}, {})
    made: Object = {"metadata": {}}
    prepare_create(*REPORT, made)
    assert made == {"metadata": {}, "spec": {}, "status": {}}


@pytest.mark.parametrize("time", [None, "2026-01-02T03:04:05Z"])
def test_times_of_states_may_be_null(time: str | None) -> None:
    """Go clients send null for an unset time; it counts as absent."""
    obj = {"metadata": {"creationTimestamp": None}, "status": {"lastHeartbeatTime": time}}
    status = check(struct_of(*STATE), obj).value.get("status") or {}
    assert status == ({} if time is None else {"lastHeartbeatTime": time})


def test_times_of_reporters_may_be_null() -> None:
    """As in the state itself; the reporter ID is required, and is kept even if empty."""
    sent = {"reporterID": "a", "currentStorageVersionHash": "h", "lastHeartbeatTime": None}
    obj = {"metadata": {}, "status": {"currentStorageVersionHashes": [sent, {}]}}
    kept = check(struct_of(*STATE), obj).value["status"]["currentStorageVersionHashes"]
    assert kept[0] == {"reporterID": "a", "currentStorageVersionHash": "h"}
    assert set(kept[1]) <= {"reporterID"}


# Behavior.


@pytest.mark.parametrize(
    ("group", "kind", "prefix", "subresources"),
    [
        (*REPORT, "storageversions", ["status", "report"]),
        (*VOTE, "kube-apiserver.internal.k8s.io/storageversions", []),
        (*STATE, "migration.k8s.io/storagestates", ["status"]),
    ],
)
def test_behaviour(group: str, kind: str, prefix: str, subresources: list[str]) -> None:
    """Cluster scoped, without generation or unconditional updates, one version, in every
    release."""
    found = kind_of(group, kind)
    assert found.key_prefix == prefix
    assert [each.name for each in found.subresources] == subresources
    assert not found.namespaced
    assert not found.tracks_generation
    assert not found.unconditional_update
    assert not found.create_on_update
    assert (found.short_names, found.categories) == ((), ())
    assert found.versions == ("v1alpha1",)
    assert found.pinned
    assert found.status_keeps_metadata is bool(subresources)
    for release in shipped_releases():
        assert shipped_release(release).kind(group, kind) is not None, release


def test_the_bare_name_means_the_reports() -> None:
    """Of two groups with `storageversions`, clients use the first."""
    groups = [kind.group for kind in all_kinds() if kind.plural == "storageversions"]
    assert groups == [REPORT[0], VOTE[0]]
    assert group_order(REPORT[0]) < group_order(VOTE[0])


# Names.


@pytest.mark.parametrize(
    "name",
    ["core.pods", "apps.deployments", "apiextensions.k8s.io.customresourcedefinitions", "0.a"],
)
def test_good_names(name: str) -> None:
    """The last dot separates group and resource."""
    assert name_causes(*REPORT, name) == []


@pytest.mark.parametrize(
    ("name", "whys"),
    [
        ("pods", ["name must be in the form of <group>.<resource>"]),
        ("Apps.deployments", [f"the group segment {SUBDOMAIN}"]),
        (".deployments", [f"the group segment {SUBDOMAIN}"]),
        ("apps..deployments", [f"the group segment {SUBDOMAIN}"]),
        ("apps.1deployments", [f"the resource segment {LABEL}"]),
        ("apps.", [f"the resource segment {LABEL}"]),
        ("-.-", [f"the group segment {SUBDOMAIN}", f"the resource segment {LABEL}"]),
        (f"{'g' * 254}.pods", ["the group segment must be no more than 253 characters"]),
        (f"core.{'r' * 64}", ["the resource segment must be no more than 63 characters"]),
    ],
)
def test_bad_names(name: str, whys: list[str]) -> None:
    """The error is about the segment, with the whole name as the value."""
    expected = [f'metadata.name: Invalid value: "{name}": {why}' for why in whys]
    assert name_causes(*REPORT, name) == expected


@pytest.mark.parametrize(
    ("name", "whys"),
    [
        ("core.v1.pods", []),
        ("rbac.authorization.k8s.io.v1.roles", []),
        ("apps.deployments", ["name must be in the form of <group>.<version>.<resource>"]),
        ("deployments", ["name must be in the form of <group>.<version>.<resource>"]),
        ("A.v1.b", [f"the group segment {SUBDOMAIN}"]),
        ("apps.1.deployments", [f"the version segment {LABEL}"]),
        ("apps.v1.Deployments", [f"the resource segment {LABEL}"]),
    ],
)
def test_names_of_votes(name: str, whys: list[str]) -> None:
    """The last two dots separate group, version and resource of a vote."""
    expected = [f'metadata.name: Invalid value: "{name}": {why}' for why in whys]
    assert name_causes(*VOTE, name, selectedVersion="v1") == expected


@pytest.mark.parametrize(
    ("name", "resource", "expected"),
    [
        ("pods", {"resource": "pods"}, []),
        ("deployments.apps", {"group": "apps", "resource": "deployments"}, []),
        ("roles.rbac.x.io", {"group": "rbac.x.io", "resource": "roles"}, []),
        ("pods", {}, ["spec.resource.resource: Required value"]),
        (
            "apps.deployments",
            {"group": "apps", "resource": "deployments"},
            [
                (
                    'metadata.name: Invalid value: "apps.deployments": must be '
                    'spec.resource.resource+"."+spec.resource.group: deployments.apps'
                )
            ],
        ),
        (
            "pods.core",
            {"resource": "pods"},
            [
                (
                    'metadata.name: Invalid value: "pods.core": must be '
                    'spec.resource.resource+"."+spec.resource.group: pods'
                )
            ],
        ),
        (
            "a.b",
            {"resource": "a.b"},
            [f'spec.resource.resource: Invalid value: "a.b": {LABEL}'],
        ),
        (
            "a.B",
            {"resource": "a", "group": "B"},
            [f'spec.resource.group: Invalid value: "B": {SUBDOMAIN}'],
        ),
    ],
)
def test_names_of_states(name: str, resource: Object, expected: list[str]) -> None:
    """The name of a StorageState is that of its resource."""
    assert name_causes(*STATE, name, spec={"resource": resource}) == expected


def test_the_resource_of_a_state_stays() -> None:
    """It is in the name. An empty group equals a missing one; an existing wrong name is
    tolerated."""

    def state(**resource: str) -> Object:
        return {"metadata": {"name": "odd"}, "spec": {"resource": resource}}

    assert validate(*STATE, state(resource="pods"), state(resource="pods", group="")) == []
    (cause,) = validate(*STATE, state(resource="nodes"), state(resource="pods"))
    assert str(cause) == 'spec.resource: Invalid value: {"resource":"nodes"}: field is immutable'


def test_a_missing_name_is_told_once() -> None:
    """The check of the metadata reports it, not this one."""
    assert validate(*REPORT, {"metadata": {}}) == []
    assert validate(*VOTE, {"metadata": {}, "selectedVersion": "v1"}) == []


# Status.


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"storageVersions": [entry()], "commonEncodingVersion": "apps/v1"},
        {"storageVersions": [entry(), entry("b")], "commonEncodingVersion": "apps/v1"},
        {"storageVersions": [entry(), entry("b", "v2")]},
        {
            "storageVersions": [entry(version="v1", servedVersions=["v1", "apps/v9"])],
            "commonEncodingVersion": "v1",
            "conditions": [CONDITION, {**CONDITION, "type": "x.io/Other", "status": "Perhaps"}],
        },
    ],
)
def test_good_status(status: Object) -> None:
    """Statuses that servers write pass; a condition may have any status."""
    assert status_causes(status, {"commonEncodingVersion": "before"}) == []


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            [entry(), entry()],
            ['status.storageVersions[1].apiServerID: Duplicate value: "a"'],
        ),
        ([entry("A_")], [f'{ENTRY}.apiServerID: Invalid value: "A_": {SUBDOMAIN}']),
        ([entry("")], [f'{ENTRY}.apiServerID: Invalid value: "": {SUBDOMAIN}']),
        (
            [entry("x" * 254)],
            [
                (
                    f'{ENTRY}.apiServerID: Invalid value: "{"x" * 254}": '
                    "must be no more than 253 characters"
                )
            ],
        ),
        (
            [entry(decodableVersions=["apps/v1", "apps/V2", "apps/v3/x"])],
            [
                f'{ENTRY}.decodableVersions[1]: Invalid value: "apps/V2": version part: {LABEL}',
                f'{ENTRY}.decodableVersions[2]: Invalid value: "apps/v3/x": {API_VERSION}',
            ],
        ),
        (
            [entry(decodableVersions=["apps/v2"])],
            [
                (
                    f'{ENTRY}.decodableVersions: Invalid value: ["apps/v2"]: '
                    "decodableVersions must include encodingVersion apps/v1"
                )
            ],
        ),
        (
            [entry(servedVersions=["apps/v1", "/v2"])],
            [
                f'{ENTRY}.servedVersions[1]: Invalid value: "/v2": group part: must be non-empty',
                (
                    f'{ENTRY}.servedVersions[1]: Invalid value: "/v2": individual served version : '
                    "/v2 must be included in decodableVersions : [apps/v1 apps/v9]"
                ),
            ],
        ),
    ],
)
def test_bad_entries(entries: list[Object], expected: list[str]) -> None:
    """Every rule about an entry has its field, value and message."""
    status = {"storageVersions": entries, "commonEncodingVersion": "apps/v1"}
    assert status_causes(status) == expected


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("", "version part: must be non-empty"),
        ("V1", f"version part: {LABEL}"),
        ("v" * 64, "version part: must be no more than 63 characters"),
        ("apps/", "version part: must be non-empty"),
        ("/v1", "group part: must be non-empty"),
        ("/", "group part: must be non-empty,version part: must be non-empty"),
        ("Apps/v1", f"group part: {SUBDOMAIN}"),
        (f"{'g' * 254}/v1", "group part: must be no more than 253 characters"),
        ("Apps/V1", f"group part: {SUBDOMAIN},version part: {LABEL}"),
        ("a/b/c", API_VERSION),
    ],
)
def test_bad_encoding_versions(version: str, why: str) -> None:
    """An encoding version is a version, or a group and a version."""
    status = {"storageVersions": [entry(version=version)], "commonEncodingVersion": version}
    causes = [each for each in status_causes(status) if ".encodingVersion: " in each]
    assert causes == [f'{ENTRY}.encodingVersion: Invalid value: "{version}": {why}']


@pytest.mark.parametrize(
    ("versions", "given", "detail"),
    [
        ([], None, None),
        (
            [],
            "v1",
            (
                '"v1": should be nil if servers do not agree on the same encoding version, or if '
                "there is no server reporting the supported versions yet"
            ),
        ),
        (["v1", "v2"], None, None),
        (
            ["v1", "v2"],
            "v1",
            (
                '"v1": should be nil if servers do not agree on the same encoding version, or if '
                "there is no server reporting the supported versions yet"
            ),
        ),
        (["v1", "v1"], None, "null: the common encoding version is v1"),
        (["v1", "v1"], "v2", '"v2": the actual common encoding version is v1'),
        (["v1"], "v1", None),
    ],
)
def test_common_version(versions: list[str], given: str | None, detail: str | None) -> None:
    """The common version must follow from the entries."""
    entries = [entry(f"s{index}", version) for index, version in enumerate(versions)]
    status: Object = {"storageVersions": entries, "conditions": [CONDITION]}
    if given is not None:
        status["commonEncodingVersion"] = given
    expected = [] if detail is None else [f"status.commonEncodingVersion: Invalid value: {detail}"]
    assert status_causes(status) == expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (
            [CONDITION, {**CONDITION, "type": "Other"}, CONDITION],
            [
                (
                    'status[2].type: Invalid value: "AllEncodingVersionsEqual": the type of the '
                    "condition is not unique, it also appears in conditions[0]"
                )
            ],
        ),
        (
            [{**CONDITION, "reason": "", "message": ""}],
            [
                "status[0].reason: Required value: reason cannot be empty",
                "status[0].message: Required value: message cannot be empty",
            ],
        ),
        (
            [{**CONDITION, "type": "a b"}],
            ['status[0].type: Invalid value: "a b": name part must consist of'],
        ),
        (
            [{**CONDITION, "status": ""}],
            [
                (
                    'status[0].status: Invalid value: "AllEncodingVersionsEqual": name part must '
                    "be non-empty"
                )
            ],
        ),
    ],
)
def test_bad_conditions(conditions: list[Object], expected: list[str]) -> None:
    """Types are unique, types and statuses are qualified names, reason and message are required."""
    causes = status_causes({"conditions": conditions})
    assert len(causes) == len(expected)
    for cause, wanted in zip(causes, expected, strict=True):
        assert cause.startswith(wanted)


def test_an_unchanged_status_is_not_validated() -> None:
    """Servers may leave the common version unset for reasons that the rules do not cover."""
    status = {"storageVersions": [entry()]}
    assert status_causes(status, {}) != []
    assert status_causes(status, status) == []


# Votes.


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"selectedVersion": "apps/v1"}, []),
        (
            {
                "selectedVersion": "v1",
                "candidateVersions": [
                    {"apiServerID": "a", "preferredVersion": "v1"},
                    {"apiServerID": "b", "preferredVersion": "apps/v2"},
                ],
            },
            [],
        ),
        ({}, ["selectedVersion: Required value: a version is always selected"]),
        (
            {"selectedVersion": "V1"},
            [f'selectedVersion: Invalid value: "V1": version part: {LABEL}'],
        ),
        (
            {
                "selectedVersion": "v1",
                "candidateVersions": [
                    {"apiServerID": "a", "preferredVersion": "v1"},
                    {"apiServerID": "a", "preferredVersion": "v1"},
                    {"apiServerID": "B", "preferredVersion": "v1"},
                    {"apiServerID": "c"},
                ],
            },
            [
                'candidateVersions[1].apiServerID: Duplicate value: "a"',
                f'candidateVersions[2].apiServerID: Invalid value: "B": {SUBDOMAIN}',
                (
                    'candidateVersions[3].preferredVersion: Invalid value: "": '
                    "version part: must be non-empty"
                ),
            ],
        ),
    ],
)
def test_votes(fields: Object, expected: list[str]) -> None:
    """Each server votes once, for a version; one version is selected."""
    assert name_causes(*VOTE, "apps.v1.deployments", **fields) == expected


# The status of states.


def state_causes(status: Object, before: Object | None = None) -> list[str]:
    new = {"metadata": {"name": "pods"}, "spec": {"resource": {"resource": "pods"}}}
    causes = validate(*STATE, {**new, "status": status}, {**new, "status": before or {}})
    return [str(cause) for cause in causes]


HASHES = "status.currentStorageVersionHashes"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, []),
        ({"persistedStorageVersionHashes": ["Unknown", "a", "a"]}, []),
        ({"currentStorageVersionHashes": [{"reporterID": "a_b c"}, {"reporterID": "b"}]}, []),
        ({"currentStorageVersionHashes": [{}]}, [f"{HASHES}[0].reporterID: Required value"]),
        (
            {"currentStorageVersionHashes": [{"reporterID": "a"}, {"reporterID": "a"}]},
            [f'{HASHES}[1].reporterID: Duplicate value: "a"'],
        ),
        (
            {"currentStorageVersionHashes": [{"reporterID": str(n)} for n in range(257)]},
            [f"{HASHES}: Too many: 257: must have at most 256 items"],
        ),
        (
            {"persistedStorageVersionHashes": ["a"] * 1025},
            ["status.persistedStorageVersionHashes: Too many: 1025: must have at most 1024 items"],
        ),
        (
            {
                "persistedStorageVersionHashes": ["a", "b" * 254],
                "currentStorageVersionHash": "c" * 254,
                "currentStorageVersionHashes": [
                    {"reporterID": "r" * 1025, "currentStorageVersionHash": "d" * 254}
                ],
            },
            [
                f"{field}: Too long: may not be more than {length} bytes"
                for field, length in (
                    ("status.persistedStorageVersionHashes[1]", 253),
                    ("status.currentStorageVersionHash", 253),
                    (f"{HASHES}[0].reporterID", 1024),
                    (f"{HASHES}[0].currentStorageVersionHash", 253),
                )
            ],
        ),
    ],
)
def test_the_status_of_a_state(status: Object, expected: list[str]) -> None:
    """Each reporter has an ID and one report; every list has a limit."""
    assert state_causes(status) == expected
    assert state_causes(status, status) == []
