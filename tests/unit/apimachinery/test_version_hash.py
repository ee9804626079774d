"""The storage version hash, against hashes recorded from Kubernetes."""

import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash


@pytest.mark.parametrize(
    ("group", "version", "kind", "wanted"),
    [
        ("", "v1", "Pod", "xPOwRZ+Yhw8="),
        ("apps", "v1", "Deployment", "8aSe+NMegvE="),
        ("autoscaling", "v2", "HorizontalPodAutoscaler", "qwQve8ut294="),
        ("apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition", "jfWCUB31mvA="),
        ("apiregistration.k8s.io", "v1", "APIService", "InPBPD7+PqM="),
        ("internal.apiserver.k8s.io", "v1alpha1", "StorageVersion", "c8YZt5U0nPk="),
        ("storagemigration.k8s.io", "v1beta1", "StorageVersionMigration", "pCjmmKOkLy4="),
        ("stable.example.com", "v1", "testcrd", "+cop03nbRYA="),
        ("stable.example.com", "v2", "testcrd", "fVyh85z3l1I="),
    ],
)
def test_known_hashes(group: str, version: str, kind: str, wanted: str) -> None:
    """Each kind has the hash that Kubernetes computes."""
    assert storage_version_hash(GroupVersionKind(group, version, kind)) == wanted
