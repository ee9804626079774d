"""Counting raw values by location."""

import pytest

from restow.census.counter import Counter, Scope
from restow.census.values import Stored

WIDGET = Stored("json", "example.com/v1", "Widget")


def placed(*keys: str) -> list[tuple[str, Scope]]:
    counter = Counter("/registry/", samples_max=1)
    return [(place.root, place.scope) for place in (counter.add_as(key, WIDGET) for key in keys)]


@pytest.mark.parametrize(
    ("rest", "scope"),
    [
        ("a", "Cluster"),
        ("default/a", "Namespaced"),
        ("default/a/b", "Other"),
        ("/a", "Other"),
        ("default/", "Other"),
        ("", "Other"),
    ],
)
def test_scope(rest: str, scope: Scope) -> None:
    """A key with an empty name or namespace is one that no server reads."""
    for root in ("configmaps", "example.com/widgets"):
        assert placed(f"/registry/{root}/{rest}") == [(root, scope)]


@pytest.mark.parametrize(
    ("extra", "key", "root"),
    [
        (
            "/registry/example.com/a",
            "/registry/example.com/widgets/default/a",
            "example.com/widgets",
        ),
        ("/registry/services/a", "/registry/services/specs/default/a", "services/specs"),
        ("/registry/a", "/registry/configmaps/default/a", "configmaps"),
    ],
)
def test_a_value_beside_resources(extra: str, key: str, root: str) -> None:
    """A value directly under a group does not hide the resources of that group."""
    (_, (found, scope)) = placed(extra, key)
    assert (found, scope) == (root, "Namespaced")
    assert placed(key, extra, key)[2] == (root, "Namespaced")
