"""What a path is about may be told from a path beside it, if that is beyond doubt."""

import pytest

from restow.request.request_info import has_siblings, parse_request, sibling

FOLDER = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize("folder", [FOLDER, "/api/v1/nodes", "/apis/apps/v1/namespaces/n/x"])
@pytest.mark.parametrize("name", ["b", "b.c-d", "0", "status", "watch"])
@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_siblings_are_read_alike(method: str, folder: str, name: str) -> None:
    """A sibling is what reading its path gives."""
    first = parse_request(method, f"{folder}/a?dryRun=All")
    assert has_siblings(first, "a")
    path = f"{folder}/{name}"
    assert sibling(first, path, name) == parse_request(method, f"{path}?dryRun=All")


@pytest.mark.parametrize("name", ["", ".", "..", "a%2fb", "%2e", "A", "a\0", "a\n", "..a"])
def test_odd_names_are_read(name: str) -> None:
    """Whatever could mean something else is not guessed at."""
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
    """Collections, subresources, namespaces and what is no resource stand for themselves."""
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
    """The path that rules are compared with is the one that is served."""
    assert parse_request("GET", target).path == path
