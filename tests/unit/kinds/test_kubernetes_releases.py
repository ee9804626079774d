"""The table of real Kubernetes releases: known facts, and invariants of every row."""

import pytest

from restow.apimachinery.names import GroupResource, GroupVersion
from restow.kinds.kubernetes_releases import (
    is_known,
    known_minors,
    kubernetes_release,
    minor_of,
    stored_before,
)
from restow.kinds.releases import ReleaseError, shipped_release, shipped_releases

CRON_JOBS = GroupResource("batch", "cronjobs")
BUDGETS = GroupResource("policy", "poddisruptionbudgets")
INGRESSES = GroupResource("networking.k8s.io", "ingresses")


@pytest.mark.parametrize(
    ("text", "minor"),
    [
        ("kubernetes-1.29", 29),
        ("1.29", 29),
        ("v1.29.3", 29),
        ("v1.29.3-gke.100", 29),
        ("x+1", None),
        ("kubernetes-2.0", None),
        ("1.", None),
        ("", None),
    ],
)
def test_names(text: str, minor: int | None) -> None:
    """A release is found by the forms of its name that users and servers use."""
    assert minor_of(text) == minor


def test_unknown_releases_are_rejected() -> None:
    """An unknown release is rejected with a list of the known ones."""
    with pytest.raises(ReleaseError, match=r"1\.14 to 1\.\d+"):
        kubernetes_release(13)


def test_known_storage_version_changes() -> None:
    """Cron jobs, disruption budgets and autoscalers changed their storage versions in the known
    releases."""
    stored = {minor: kubernetes_release(minor).resources for minor in known_minors()}
    assert stored[20][CRON_JOBS].storage == "batch/v1beta1"
    assert stored[22][CRON_JOBS].storage == "batch/v1"
    assert "batch/v1beta1" in stored[22][CRON_JOBS].versions
    assert stored[25][BUDGETS].storage == "policy/v1beta1"
    assert stored[36][BUDGETS].versions == ("policy/v1",)
    assert stored_before(CRON_JOBS, 24) == ("batch/v1beta1", "batch/v1")
    assert stored_before(GroupResource("example.com", "widgets"), 30) == ()


def test_groups_that_share_objects_read_each_other() -> None:
    """Objects of an older group are decodable while both groups exist."""
    assert "extensions/v1beta1" in kubernetes_release(21).resources[INGRESSES].versions
    assert "extensions/v1beta1" not in kubernetes_release(30).resources[INGRESSES].versions
    events = kubernetes_release(30).resources
    assert events[GroupResource("events.k8s.io", "events")].storage == "v1"


def test_every_row_is_consistent() -> None:
    """A release decodes what it encodes, and every version belongs to a group."""
    for minor in known_minors():
        release = kubernetes_release(minor)
        assert len(release.resources) > 40
        for name, row in release.resources.items():
            assert row.resource == name
            assert row.storage in row.versions
            assert row.kind[0].isupper()
            assert all(GroupVersion.parse(each).version for each in row.versions)
            assert is_known(name)


def test_shipped_releases_agree_with_the_table() -> None:
    """A restow server of a real release uses the storage versions of that release."""
    for name in shipped_releases():
        minor = minor_of(name)
        if minor is None:
            continue
        table = kubernetes_release(minor).resources
        for kind in shipped_release(name).kinds:
            row = table.get(kind.definition.group_resource)
            if row is not None and not kind.definition.pinned:
                assert (name, kind.storage_api_version) == (name, row.storage)
