"""The overview of encryption keys and of resources of other servers; on values."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersion, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.names import (
    IDENTITY_LABEL,
    KEYS_ANNOTATION,
    PREFERRED_KEYS_ANNOTATION,
    READABLE_KEYS_ANNOTATION,
    STORES_ANNOTATION,
)
from restow.apis.storage_scan import StoredCount
from restow.cli import status_tables
from restow.cli.hints import Hints
from restow.client import ApiResource, DiscoveredResources
from restow.client.discovery import ApiGroup
from restow.migration.overview_keys import key_problems
from restow.migration.overview_reader import (
    groups_stored,
    resources_seen,
    server_seen,
    silent_apis,
    with_evidence,
)
from restow.migration.overview_values import (
    ClusterOverview,
    ResourceSeen,
    ResourceStatus,
    StoredSeen,
)
from restow.migration.remote_apis import left_alone_text, remote_apis
from restow.migration.store_scan import StoreScan

K1, K2 = "aesgcm:key1:11", "aesgcm:key2:22"
HASH = storage_version_hash(GroupVersionKind("", "v1", "Secret"))
SECRETS = ApiResource(
    group="",
    version="v1",
    name="secrets",
    kind="Secret",
    is_namespaced=True,
    verbs=frozenset({"get", "list", "update"}),
    storage_version_hash=HASH,
)
THEIRS = ApiResource(
    group="theirs.example.com",
    version="v1",
    name="things",
    kind="Thing",
    is_namespaced=True,
    verbs=frozenset({"get", "list", "update"}),
)
FOUND = DiscoveredResources(
    groups=(
        ApiGroup("", ("v1",), "v1"),
        ApiGroup("theirs.example.com", ("v1",), "v1"),
    ),
    resources=(SECRETS, THEIRS),
)


def report(
    writes: dict[str, str], *, prefers: dict[str, str] | None = None, reads: Any = None
) -> dict[str, Any]:
    said = {
        KEYS_ANNOTATION: writes,
        PREFERRED_KEYS_ANNOTATION: prefers or {},
        READABLE_KEYS_ANNOTATION: reads or {},
    }
    entries = [
        {"apiServerID": each, "encodingVersion": "v1", "decodableVersions": ["v1"]}
        for each in ("a", "b")
    ]
    return {
        "metadata": {
            "name": "core.secrets",
            "annotations": {name: json.dumps(each) for name, each in said.items() if each},
        },
        "status": {"storageVersions": entries, "commonEncodingVersion": "v1"},
    }


def state(*keys: str) -> dict[str, Any]:
    more = {"persistedEncryptionKeys": list(keys)} if keys else {}
    return {
        "metadata": {"name": "secrets"},
        "spec": {"resource": {"resource": "secrets"}},
        "status": {"persistedStorageVersionHashes": [HASH], **more},
    }


def seen(report: dict[str, Any], state: dict[str, Any]) -> ResourceSeen:
    (found,) = (
        each
        for each in resources_seen(FOUND, [state], [report], [], frozenset())
        if each.resource == "secrets"
    )
    return found


def printed(*resources: ResourceSeen) -> str:
    sheet = io.StringIO()
    view = ClusterOverview(
        "https://there", Runtime.system().clock.wall(), resources=list(resources)
    )
    console = Console(file=sheet, width=300, highlight=False, markup=False)
    status_tables.print_all(view, console, hints=Hints())
    return sheet.getvalue()


def test_no_keys_are_shown_without_encryption() -> None:
    """Without encryption there is no column, no text, and null in the JSON output."""
    found = seen(report({}), state())
    assert (found.keys, found.verdict) == (None, ResourceStatus.OK)
    assert "WRITTEN WITH" not in printed(found)


def test_one_key_for_all() -> None:
    """After a rotation, all values are written with one key and stored under this key only."""
    found = seen(report({"a": K1, "b": K1}), state(K1))
    assert found.verdict is ResourceStatus.OK
    text = printed(found)
    assert "WRITTEN WITH" in text
    assert "aesgcm:key1" in text
    assert K1 not in text
    fields = status_tables._resource_fields(found)["encryption"]
    assert (fields["key"], fields["persisted"], fields["problem"]) == (K1, [K1], None)
    assert fields["servers"] == [{"id": "a", "key": K1}, {"id": "b", "key": K1}]


@pytest.mark.parametrize("stored", [(), (K1,), (K1, K2)])
def test_an_old_key_is_to_be_migrated(stored: tuple[str, ...]) -> None:
    """Also if the version is current, and also if only unencrypted values remain."""
    found = seen(report({"a": K2, "b": K2}), state(*stored))
    assert found.verdict is ResourceStatus.TO_MIGRATE


def test_servers_with_different_keys() -> None:
    """The servers disagree; the text names each server's key and the remedy."""
    found = seen(report({"a": K1, "b": K2}), state(K1, K2))
    assert found.verdict is ResourceStatus.DISAGREEING
    text = printed(found)
    assert "1 aesgcm:key1, 1 aesgcm:key2" in text
    assert "keys differ" in text
    assert "a writes with aesgcm:key1; b writes with aesgcm:key2" in text
    assert "the same encryption configuration" in text
    plain = seen(report({"a": K1}), state("identity", K1))
    assert plain.verdict is ResourceStatus.DISAGREEING
    assert "b writes with identity" in printed(plain)


def test_a_preferred_key_that_is_not_used_yet() -> None:
    """The servers that cannot read it are named, with the remedy; the resource itself is ok."""
    reads = {"a": [K1, K2], "b": [K1]}
    found = seen(report({"a": K1, "b": K1}, prefers={"a": K2}, reads=reads), state(K1))
    assert found.verdict is ResourceStatus.OK
    text = printed(found)
    assert "aesgcm:key1, aesgcm:key2 pending" in text
    assert "a would write with aesgcm:key2, but b cannot read aesgcm:key2" in text
    assert "add aesgcm:key2 to the encryption configuration of those servers" in text
    fields = status_tables._resource_fields(found)["encryption"]
    assert fields["blockedBy"] == [{"id": "b", "key": K2}]
    assert fields["waiting"] == [{"id": "a", "key": K2}]
    soon = report(
        {"a": K1, "b": K1}, prefers={"a": K2, "b": K2}, reads={"a": [K1, K2], "b": [K1, K2]}
    )
    assert "by themselves" in printed(seen(soon, state(K1)))


def test_a_problem_of_several_resources_is_printed_once() -> None:
    """One entry names all resources with the same problem."""
    found = seen(report({"a": K1, "b": K2}), state(K1, K2))
    ((names, _),) = key_problems([("secrets", found.keys), ("configmaps", found.keys)])
    assert names == "secrets, configmaps"


def test_aggregated_servers_are_identified_by_component_and_store() -> None:
    """An aggregated server's entry is attributed by its lease, or by the store that it names."""
    moment = Runtime.system().clock.wall()
    lease = {"metadata": {"name": "b", "labels": {IDENTITY_LABEL: "aggregated-x"}}}
    servers = [server_seen({"metadata": {"name": "a"}}, moment), server_seen(lease, moment)]
    assert [each.is_aggregated for each in servers] == [False, True]
    said: dict[str, Any] = {"status": {"storageVersions": [entry("b")]}}
    shared: dict[str, Any] = {**said, "metadata": {"name": "theirs.example.com.things"}}
    annotations = {STORES_ANNOTATION: json.dumps({"b": "0f"})}
    own = {**said, "metadata": {**shared["metadata"], "annotations": annotations}}
    for report, components, stores in ((shared, ("aggregated-x",), ()), (own, (), ("0f",))):
        known = servers if components else ()
        found = resources_seen(FOUND, [], [report], [], frozenset(), servers=known)
        [secrets, things] = found
        assert (things.components, things.stores) == (components, stores)
        assert (secrets.components, secrets.stores) == ((), ())


def entry(server_id: str) -> dict[str, Any]:
    version = "theirs.example.com/v1"
    return {
        "apiServerID": server_id,
        "encodingVersion": version,
        "decodableVersions": [version],
        "servedVersions": [version],
    }


def service(name: str, *, is_remote: bool = True) -> dict[str, Any]:
    version, _, group = name.partition(".")
    spec = {"group": group, "version": version}
    return {
        "metadata": {"name": name},
        "spec": {**spec, "service": {"name": "x", "namespace": "y"} if is_remote else None},
    }


def test_resources_of_non_reporting_servers_are_left_alone() -> None:
    """The text is given per group, and each resource is left alone; not those with a
    StorageVersion."""
    remote = remote_apis([service("v1.theirs.example.com"), service("v1.apps", is_remote=False)])
    assert remote == {GroupVersion("theirs.example.com", "v1"): "v1.theirs.example.com"}
    found = resources_seen(FOUND, [], [], [], frozenset(), remote=remote)
    assert [(each.resource, each.verdict) for each in found] == [
        ("secrets", ResourceStatus.UNKNOWN),
        ("things.theirs.example.com", ResourceStatus.LEFT_ALONE),
    ]
    (text,) = left_alone_text(silent_apis(remote, []))
    assert text == (
        "theirs.example.com: served by APIService v1.theirs.example.com;"
        " reports no storage versions: left alone"
    )
    reported = {
        "metadata": {"name": "theirs.example.com.things"},
        "status": {"storageVersions": [entry("a")]},
    }
    assert silent_apis(remote, [reported]) == {}
    withdrawn = {"metadata": {"name": "theirs.example.com.things"}, "status": {}}
    assert silent_apis(remote, [withdrawn]) == remote
    reporting = resources_seen(FOUND, [], [reported], [], frozenset(), remote=remote)
    assert ResourceStatus.LEFT_ALONE not in {each.verdict for each in reporting}


def gone_state(name: str, *hashes: str) -> dict[str, Any]:
    resource, _, group = name.partition(".")
    return {
        "metadata": {"name": name},
        "spec": {"resource": {"group": group, "resource": resource}},
        "status": {"persistedStorageVersionHashes": list(hashes)},
    }


def test_resources_that_are_no_longer_reported() -> None:
    """Row and note agree on resources that were reported earlier, with versions where known."""
    kind = GroupVersion("lost.example.com", "v1beta1").with_kind("Policy")
    states = [
        gone_state("policies.lost.example.com", "Unknown", storage_version_hash(kind), "x+y="),
        gone_state("ghosts.example.com", "x+y="),
    ]
    remote = remote_apis([service("v1.lost.example.com")])
    rows = resources_seen(FOUND, states, [], [], frozenset(), remote=remote)
    found = {each.resource: each for each in rows}
    lost, ghosts = found["policies.lost.example.com"], found["ghosts.example.com"]
    assert (lost.verdict, ghosts.verdict) == (ResourceStatus.LEFT_ALONE, ResourceStatus.GONE)
    unknown = "(unknown version)"
    assert [each.words for each in lost.persisted] == [
        unknown,
        "lost.example.com/v1beta1",
        unknown,
    ]
    (text,) = left_alone_text(silent_apis(remote, []), groups_stored(states))
    assert text == (
        "lost.example.com: served by APIService v1.lost.example.com;"
        " no server reports its storage versions any more: left alone"
    )


def test_reported_resources_without_discovery_are_unknown() -> None:
    """A resource that is reported but missing in discovery is neither gone nor left alone."""
    report = {
        "metadata": {"name": "lost.example.com.policies"},
        "status": {"storageVersions": [entry("a")]},
    }
    states = [gone_state("policies.lost.example.com", "x+y=")]
    remote = remote_apis([service("v1.lost.example.com")])
    rows = resources_seen(FOUND, states, [report], [], frozenset(), remote=remote)
    lost = next(each for each in rows if each.resource == "policies.lost.example.com")
    assert (lost.verdict, lost.servers) == (
        ResourceStatus.UNKNOWN,
        (("a", "theirs.example.com/v1"),),
    )
    assert silent_apis(remote, [report]) == {}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [(K2, ResourceStatus.OK), (K1, ResourceStatus.TO_MIGRATE), ("", ResourceStatus.TO_MIGRATE)],
)
def test_a_raw_value_under_another_key_is_not_ok(stored: str, expected: ResourceStatus) -> None:
    """The raw values are compared with the current key, whatever the StorageState records."""
    by_state = seen(report({"a": K2, "b": K2}), state(K2))
    assert by_state.verdict is ResourceStatus.OK
    row = StoredCount(
        prefix="/registry/secrets/",
        resource="secrets",
        scope="Namespaced",
        api_version="v1",
        kind="Secret",
        encoding="json",
        encryption_key=stored,
        values=2,
        examples=["/registry/secrets/default/a"],
    )
    scan = StoreScan(revision=1, rows=(row,))
    (found,) = with_evidence([by_state], [], StoredSeen(is_expected=True, scan=scan))
    assert found.verdict is expected
    text = printed(found)
    assert ("restow migrate secrets" in text) is (expected is ResourceStatus.TO_MIGRATE)
    if found.verdict is not ResourceStatus.OK:
        how = f"under the encryption key {stored}" if stored else "without encryption"
        assert f"2 of its values are stored {how}, such as /registry/secrets/default/a" in text
        assert status_tables._resource_fields(found)["remark"] == found.remark
