"""Paths and queries."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.names import GroupVersionResource
from restow.client import ListOptions, WriteOptions
from restow.client.paths import resource_path, with_query

DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
NODES = GroupVersionResource("", "v1", "nodes")


def test_paths() -> None:
    """The core group has its own prefix; namespace, name and subresource follow."""
    assert resource_path(NODES) == "/api/v1/nodes"
    assert resource_path(NODES, name="system:a") == "/api/v1/nodes/system:a"
    assert resource_path(DEPLOYMENTS, namespace="n", name="d", subresource="scale") == (
        "/apis/apps/v1/namespaces/n/deployments/d/scale"
    )


@given(st.text(min_size=1, max_size=20))
def test_a_name_stays_one_part_of_the_path(name: str) -> None:
    """A name is rejected, or is exactly the last segment of the path."""
    try:
        path = resource_path(NODES, name=name)
    except ValueError:
        assert name in {".", ".."} or "/" in name or not name.isprintable()
        return
    parts = urlsplit(path).path.split("/")
    assert parts[:4] == ["", "api", "v1", "nodes"]
    assert [unquote(part) for part in parts[4:]] == [name]


@pytest.mark.parametrize("name", ["..", "a/b", "x" * 2_000])
def test_names_that_are_none(name: str) -> None:
    """Parent directories, slashes and long names are rejected."""
    with pytest.raises(ValueError, match="invalid name"):
        resource_path(NODES, name=name)
    with pytest.raises(ValueError, match="subresource without an object name"):
        resource_path(NODES, subresource="status")


def test_queries() -> None:
    """Empty parameters are omitted; a later page has its token and no version."""
    options = ListOptions(label_selector="a in (b,c)", limit=5, resource_version="7")
    assert with_query("/x", options.query()) == (
        "/x?labelSelector=a%20in%20%28b%2Cc%29&limit=5&resourceVersion=7"
    )
    assert "resourceVersion" not in options.query("token")
    assert with_query("/x", WriteOptions().query()) == "/x"
    assert with_query("/x", WriteOptions(dry_run=True, force=True).query()) == (
        "/x?dryRun=All&force=true"
    )
