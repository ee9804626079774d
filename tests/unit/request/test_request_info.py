"""The attributes of a path may be derived from a similar path if that is unambiguous."""

import pytest

from restow.request.request_info import has_siblings, parse_request, sibling

FOLDER = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize("folder", [FOLDER, "/api/v1/nodes", "/apis/apps/v1/namespaces/n/x"])
@pytest.mark.parametrize("name", ["b", "b.c-d", "0", "status", "watch"])
@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_siblings_have_equal_attributes(method: str, folder: str, name: str) -> None:
    """A derived result equals that of parsing the path."""
    first = parse_request(method, f"{folder}/a?dryRun=All")
    assert has_siblings(first, "a")
    path = f"{folder}/{name}"
    assert sibling(first, path, name) == parse_request(method, f"{path}?dryRun=All")


@pytest.mark.parametrize("name", ["", ".", "..", "a%2fb", "%2e", "A", "a\0", "a\n", "..a"])
def test_special_names_are_parsed(name: str) -> None:
    """An ambiguous path is parsed."""
    assert sibling(parse_request("PUT", f"{FOLDER}/a"), f"{FOLDER}/{name}", name) is None


@pytest.mark.parametrize(
    "path",
    [
        FOLDER,
        f"{FOLDER}/a/status",
        f"{FOLDER}/a/",
        "/api/v1/namespaces/default",
        "/api/v1/namespaces/default/status",
        "/api/v1/watch/nodes/a",
        "/healthz",
    ],
)
def test_some_have_no_siblings(path: str) -> None:
    """Collections, subresources, namespaces and non-resource paths have no siblings."""
    assert not has_siblings(parse_request("DELETE", path), path.rpartition("/")[2])


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/metrics/", "/metrics"),
        ("/metrics", "/metrics"),
        ("/", "/"),
        ("//", "/"),
        ("/a/b/?c=/", "/a/b"),
    ],
)
def test_paths_without_a_trailing_slash(target: str, path: str) -> None:
    """Authorization rules are matched with the path that is served."""
    assert parse_request("GET", target).path == path
