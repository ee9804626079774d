"""@kubernetes/client-node, in a program of its own: see `node/program.js` for its checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.crds.building import Family
from tests.e2e.clients import programs
from tools.node_packages import INSTALLED, NODE, PACKAGES

WHO = "certified"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": VERBS},
    {
        "apiGroups": ["apps"],
        "resources": ["deployments", "deployments/scale"],
        "verbs": ["get", "create", "update"],
    },
    {
        "apiGroups": ["client-node.example.org"],
        "resources": ["widgets", "widgets/status"],
        "verbs": ["get", "list", "create", "patch", "delete"],
    },
]
CLUSTER_RIGHTS: list[dict[str, Any]] = []
CHECKS = [
    *("typedObject", "errors", "pages", "workloads", "watches", "informers"),
    *("anyObject", "customResource", "whoAndWhat"),
]


def test_program(
    kubeconfig: Path, namespace: str, family: Family, old_version: str, tmp_path: Path
) -> None:
    """Typed and untyped objects, patches, pages, errors, watches and informers all work."""
    assert INSTALLED.is_dir(), "`make setup` installs the packages of Node"
    words: list[str | Path] = [kubeconfig, namespace, family.group, old_version]
    checked = programs.passed([NODE, PACKAGES / "program.js", *words], home=tmp_path)
    assert checked == CHECKS
