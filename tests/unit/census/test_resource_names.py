"""Names of resources from keys, and from user input."""

import pytest

from restow.census.resource_names import ResourceSelection, canonical, means, name_of, root_of
from restow.kinds.builtin import all_kinds


@pytest.mark.parametrize(
    ("rest", "api_version", "name"),
    [
        ("pods/default/a", "v1", "pods"),
        ("minions/n1", "v1", "nodes"),
        ("controllers/default/a", "v1", "replicationcontrollers"),
        ("services/specs/default/kubernetes", "v1", "services"),
        ("services/endpoints/default/kubernetes", "v1", "endpoints"),
        ("ingress/default/a", "extensions/v1beta1", "ingresses.networking.k8s.io"),
        ("events/default/a.1", "v1", "events"),
        ("deployments/default/a", "", "deployments.apps"),
        ("storageversions/core.pods", "", "storageversions.internal.apiserver.k8s.io"),
        (
            "apiextensions.k8s.io/customresourcedefinitions/a.b",
            "",
            "customresourcedefinitions.apiextensions.k8s.io",
        ),
        ("example.com/widgets/default/a", "", "widgets.example.com"),
        ("example.com/widgets/a", "other.org/v1", "widgets.example.com"),
        (
            "clustertrustbundles/a",
            "certificates.k8s.io/v1beta1",
            "clustertrustbundles.certificates.k8s.io",
        ),
        ("clustertrustbundles/a", "", None),
        ("masterleases/10.0.0.1", "v1", None),
        ("ranges/serviceips", "v1", None),
        ("services/other/a", "v1", None),
        ("example.com/a", "v1", None),
        ("alone", "v1", None),
        ("", "", None),
        ("//", "", None),
        ("example.com//a", "", None),
    ],
)
def test_names(rest: str, api_version: str, name: str | None) -> None:
    """Special prefixes, custom resources, and kinds that only another server builds in."""
    found = name_of(root_of(rest), api_version)
    assert (None if found is None else str(found)) == name


def test_all_builtin_kinds() -> None:
    """Every persisted kind is recognised from its own key."""
    for kind in all_kinds():
        if kind.persisted and kind.cohabits_with is None:
            assert name_of(root_of(f"{kind.key_prefix}/a/b"), "") == kind.group_resource
            assert name_of(root_of(f"{kind.key_prefix}/a"), "") == kind.group_resource


def test_means() -> None:
    """A bare plural selects that resource in any group; a full name selects one resource."""
    assert means("widgets", "widgets.example.com")
    assert means("widgets.example.com", "widgets.example.com")
    assert means("/registry/ranges/", "/registry/ranges/")
    assert not means("widgets.example.org", "widgets.example.com")
    assert not means("widget", "widgets.example.com")


def test_canonical() -> None:
    """Events of the newer group are stored with those of the core group."""
    assert canonical("events.events.k8s.io") == "events"
    assert canonical("pods") == "pods"
    assert canonical("a.") == "a."


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["pods"], ["/registry/pods/"]),
        (["services", "endpoints"], ["/registry/services/endpoints/", "/registry/services/specs/"]),
        (["widgets.example.com"], ["/registry/example.com/widgets/", "/registry/widgets/"]),
        (["/registry/ranges/"], ["/registry/ranges/"]),
        (["storageversions"], ["/registry/kube-apiserver.internal.k8s.io/storageversions/"]),
    ],
)
def test_only_needed_prefixes_are_read(words: list[str], own: list[str]) -> None:
    """Only the prefixes of selected resources are read, and those of the targets."""
    targets = [
        "/registry/apiextensions.k8s.io/customresourcedefinitions/",
        "/registry/migration.k8s.io/storagestates/",
        "/registry/storageversions/",
    ]
    assert list(ResourceSelection.of(words).prefixes("/registry/")) == sorted([*own, *targets])


def test_unknown_plural_needs_all() -> None:
    """A bare plural that is not built in may be in any group, so everything is read."""
    assert ResourceSelection.of(["pods", "widgets"]).prefixes("/registry/") == ("/registry/",)
    assert ResourceSelection().prefixes("/kubernetes.io/") == ("/kubernetes.io/",)
