"""`--runtime-config`: which built-in API versions are served, and rejected values."""

from __future__ import annotations

from pathlib import Path

import pytest

from restow.apiserver.feature_gates import FeatureGates
from restow.apiserver.options import ServeOptions
from restow.apiserver.runtime_config import RuntimeConfig, parse_runtime_config
from restow.apiserver.server import load_catalog
from restow.registry.catalog import Catalog

INTERNAL = "internal.apiserver.k8s.io"
MIGRATION = "storagemigration.k8s.io"


def catalog(*texts: str, gates: FeatureGates | None = None, release: str = "x+1") -> Catalog:
    options = ServeOptions(
        data_dir=Path("unused"),
        release=Path(release),
        feature_gates=gates or FeatureGates(),
        runtime_config=parse_runtime_config(texts),
    )
    return load_catalog(options)


def test_everything_is_served_by_default() -> None:
    """Alpha versions as well, like enabled feature gates."""
    assert parse_runtime_config([]) == RuntimeConfig()
    assert catalog().groups[INTERNAL] == ("v1alpha1",)


@pytest.mark.parametrize(
    ("texts", "group", "versions"),
    [
        ([f"{INTERNAL}/v1alpha1=false"], INTERNAL, ()),
        ([f"{INTERNAL}/v1alpha1=false,{INTERNAL}/v1alpha1=true"], INTERNAL, ("v1alpha1",)),
        ([f"{INTERNAL}/v1alpha1=false", f"{INTERNAL}/v1alpha1"], INTERNAL, ("v1alpha1",)),
        (["api/alpha=false"], INTERNAL, ()),
        (["api/alpha=false"], MIGRATION, ("v1", "v1beta1")),
        (["api/beta=false"], MIGRATION, ("v1",)),
        (["api/ga=false"], MIGRATION, ("v1beta1",)),
        ([f"{MIGRATION}/v1beta1=false"], MIGRATION, ("v1",)),
        (["api/all=false,v1=true"], "", ("v1",)),
        (["api/all=false,api/v1=true"], "", ("v1",)),
        (["api/all=false,v1=true"], "apps", ()),
        (["api/all=false,api/beta=true"], MIGRATION, ("v1beta1",)),
        (["apps/v1=true,api/all=false"], "apps", ("v1",)),
        (["api/alpha=0", f"{INTERNAL}/v1alpha1=T"], INTERNAL, ("v1alpha1",)),
    ],
)
def test_the_most_specific_key_decides(
    texts: list[str], group: str, versions: tuple[str, ...]
) -> None:
    """In any order of the keys; of a repeated key the last value counts."""
    assert catalog(*texts).groups.get(group, ()) == versions


def test_single_resources() -> None:
    """One resource of a version, enabled or disabled against the rest of it."""
    without = catalog("apps/v1/deployments=false")
    assert without.find("apps", "v1", "deployments") is None
    assert without.find("apps", "v1", "daemonsets") is not None
    only = catalog("apps/v1=false,apps/v1/deployments=true")
    assert [each.plural for each in only.in_version("apps", "v1")] == ["deployments"]
    core = catalog("api/v1/pods=false")
    assert core.find("", "v1", "pods") is None
    assert core.find("", "v1", "configmaps") is not None


def test_unserved_resources_are_hosted() -> None:
    """The server stores, registers and reads the resource for its own needs."""
    found = catalog("api/all=false,v1=true").named("apps", "deployments")
    assert found is not None
    assert (found.served, found.own_version) == ((), "v1")
    hosted = {each.root for each in catalog("api/all=false,v1=true").persisted()}
    assert hosted == {each.root for each in catalog().persisted()}


def test_the_storage_version_api_needs_its_gate() -> None:
    """With the feature gate disabled it is not served, whatever the flag says."""
    off = FeatureGates(storage_version_api=False, api_server_identity=False)
    assert INTERNAL not in catalog(gates=off).groups
    assert INTERNAL not in catalog(f"{INTERNAL}/v1alpha1=true", gates=off).groups


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "'nonsense' is not one of api/all"),
        ("api/stable=false", "'stable'"),
        ("a/b/c/d=false", "is not one of api/all"),
        ("/v1=false", "is not one of api/all"),
        ("apps/v1=maybe", "apps/v1 is set to 'maybe', which is neither true nor false"),
        ("api/all=false", "api/all=false alone would serve nothing"),
        ("example.org/v1=false", "names the group 'example.org', which this release does not have"),
        ("apps/v1beta1=false", "names the version 'v1beta1', and this release serves v1 of"),
        ("apps/v1/pods=false", "names the resource 'pods', and this release serves"),
        ("v7=true", "names the version 'v7', and this release serves v1 of"),
    ],
)
def test_invalid_keys_are_rejected(text: str, problem: str) -> None:
    """The message names the flag and the key."""
    with pytest.raises(ValueError, match=r"^--runtime-config: ") as refused:
        catalog(text)
    assert problem in str(refused.value)
