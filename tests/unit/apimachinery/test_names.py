"""Names of kinds and resources, and their string forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import (
    GroupKind,
    GroupResource,
    GroupVersion,
    GroupVersionKind,
    GroupVersionResource,
    version_priority,
)

words = st.text(st.sampled_from("abz1-"), min_size=1, max_size=6)
groups = st.lists(words, max_size=3).map(".".join)


@given(group=groups, version=words)
def test_group_version_round_trip(group: str, version: str) -> None:
    """Parsing a formatted group version returns the original."""
    name = GroupVersion(group, version)
    assert GroupVersion.parse(str(name)) == name


@given(group=groups, word=words)
def test_dotted_round_trip(group: str, word: str) -> None:
    """Parsing a formatted group resource or group kind returns the original."""
    assert GroupResource.parse(str(GroupResource(group, word))) == GroupResource(group, word)
    assert GroupKind.parse(str(GroupKind(group, word))) == GroupKind(group, word)


def test_texts() -> None:
    """Names are formatted as in Kubernetes; the core group has no prefix."""
    assert str(GroupVersion("apps", "v1")) == "apps/v1"
    assert str(GroupVersion("", "v1")) == "v1"
    assert str(GroupResource("apps", "deployments")) == "deployments.apps"
    assert str(GroupResource("", "pods")) == "pods"
    assert str(GroupKind("apps", "Deployment")) == "Deployment.apps"
    assert str(GroupVersionKind("apps", "v1", "Deployment")) == "apps/v1, Kind=Deployment"
    assert str(GroupVersionResource("", "v1", "pods")) == "/v1, Resource=pods"
    assert GroupVersion.parse("") == GroupVersion("", "")


def test_parts() -> None:
    """Names convert to their parts and back."""
    kind = GroupVersionKind.of("apps/v1", "Deployment")
    assert kind.group_version.with_kind("Deployment") == kind
    assert kind.group_kind == GroupKind("apps", "Deployment")
    assert kind.api_version == "apps/v1"
    assert GroupVersionKind.of("v1", "Pod").api_version == "v1"
    resource = GroupVersion("apps", "v1").with_resource("deployments")
    assert resource.group_resource == GroupResource("apps", "deployments")
    assert resource.group_version == GroupVersion("apps", "v1")


@pytest.mark.parametrize("text", ["a/b/c", "/v1", "apps/", "/", "//"])
def test_bad_group_versions(text: str) -> None:
    """A string with an empty part or too many parts is not a group version."""
    with pytest.raises(InvalidName):
        GroupVersion.parse(text)


@pytest.mark.parametrize("text", ["", ".", "a.", ".apps"])
def test_bad_dotted_names(text: str) -> None:
    """A string with an empty part is neither a resource nor a kind."""
    with pytest.raises(InvalidName):
        GroupResource.parse(text)
    with pytest.raises(InvalidName):
        GroupKind.parse(text)


def test_version_priority() -> None:
    """Versions sort by Kubernetes' preference, and other names come last."""
    wanted = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2"]
    wanted += ["foo1", "foo10", "v1gamma1", "v" + "9" * 30]
    backwards = wanted[::-1]
    assert sorted(backwards, key=version_priority) == wanted
