"""Targets: what a name refers to, and what a release decodes and writes."""

from pathlib import Path

import pytest

from restow.apimachinery.names import GroupResource
from restow.kinds.releases import ReleaseError, shipped_release, shipped_releases
from restow.migration.preflight import find_target, target_of_release
from restow.registry.catalog import release_catalog

WIDGETS = GroupResource("example.com", "widgets")


def test_a_name_depends_on_the_cluster() -> None:
    """The same name is a restow release on restow, and the real release on stock Kubernetes."""
    assert find_target("kubernetes-1.27", is_restow=True).kubernetes_minor is None
    assert find_target("kubernetes-1.27", is_restow=False).kubernetes_minor == 27
    assert find_target("kubernetes-1.29", is_restow=True).kubernetes_minor == 29
    assert find_target("x+1", is_restow=True).name == "x+1"
    assert find_target("builtin", is_restow=True).name == "builtin"


def test_files(tmp_path: Path) -> None:
    """A release may be a file; errors in it are reported."""
    path = tmp_path / "mine.yaml"
    path.write_text("release: mine\nkinds: []\n")
    assert find_target(str(path), is_restow=True).name == "mine"
    with pytest.raises(ReleaseError, match="cannot be read"):
        find_target(str(tmp_path / "other.yaml"), is_restow=True)


def test_unknown_names_are_rejected_with_the_known_ones() -> None:
    """An unknown name is rejected with a list of the known ones."""
    with pytest.raises(ReleaseError, match=r"x\+1.*kubernetes-1\.14 to"):
        find_target("nothing", is_restow=True)


def test_versions_of_the_example_releases() -> None:
    """The shipped releases x to x+3 decode and write the documented versions."""
    found = {name: find_target(name, is_restow=True).resources[WIDGETS] for name in ("x", "x+3")}
    assert (found["x"].storage, found["x"].decodable) == ("example.com/v1", ("example.com/v1",))
    assert (found["x+3"].storage, found["x+3"].decodable) == ("example.com/v2", ("example.com/v2",))


@pytest.mark.parametrize("name", ["builtin", *shipped_releases()])
def test_targets_agree_with_the_catalog(name: str) -> None:
    """The target of a release has the versions that its servers use."""
    release = shipped_release(name)
    resources = target_of_release(release).resources
    for hosted in release_catalog(release).persisted():
        row = resources[hosted.kind.group_resource]
        assert row.kind == hosted.kind.store.kind
        assert row.storage == hosted.storage_api_version
        assert set(row.decodable) == {*hosted.decodable, hosted.storage_api_version}
