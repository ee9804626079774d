"""Targets: what a name means, and what a release reads and writes."""

from pathlib import Path

import pytest

from restow.apimachinery.names import GroupResource
from restow.kinds.releases import ReleaseError, shipped_release, shipped_releases
from restow.migration.preflight import find_target, target_of_release
from restow.registry.catalog import release_catalog

WIDGETS = GroupResource("example.com", "widgets")


def test_a_name_means_what_the_cluster_is() -> None:
    """The same name is a restow release on restow, and the real one on real Kubernetes."""
    assert find_target("kubernetes-1.27", is_restow=True).kubernetes_minor is None
    assert find_target("kubernetes-1.27", is_restow=False).kubernetes_minor == 27
    assert find_target("kubernetes-1.29", is_restow=True).kubernetes_minor == 29
    assert find_target("x+1", is_restow=True).name == "x+1"
    assert find_target("builtin", is_restow=True).name == "builtin"


def test_files(tmp_path: Path) -> None:
    """A release may be a file; what is wrong with it is said."""
    path = tmp_path / "mine.yaml"
    path.write_text("release: mine\nkinds: []\n")
    assert find_target(str(path), is_restow=True).name == "mine"
    with pytest.raises(ReleaseError, match="cannot be read"):
        find_target(str(tmp_path / "other.yaml"), is_restow=True)


def test_unknown_names_are_refused_with_what_there_is() -> None:
    """A name that means nothing is answered with those that do."""
    with pytest.raises(ReleaseError, match=r"x\+1.*kubernetes-1\.14 to"):
        find_target("nothing", is_restow=True)


def test_versions_of_the_walk_through() -> None:
    """The shipped releases x to x+3 read and write as their table says."""
    found = {name: find_target(name, is_restow=True).resources[WIDGETS] for name in ("x", "x+3")}
    assert (found["x"].storage, found["x"].decodable) == ("example.com/v1", ("example.com/v1",))
    assert (found["x+3"].storage, found["x+3"].decodable) == ("example.com/v2", ("example.com/v2",))


@pytest.mark.parametrize("name", ["builtin", *shipped_releases()])
def test_the_same_as_the_catalogue(name: str) -> None:
    """What preflight believes of a release is what its servers will do."""
    release = shipped_release(name)
    resources = target_of_release(release).resources
    for hosted in release_catalog(release).persisted():
        row = resources[hosted.kind.group_resource]
        assert row.kind == hosted.kind.store.kind
        assert row.storage == hosted.storage_api_version
        assert set(row.decodable) == {*hosted.decodable, hosted.storage_api_version}
