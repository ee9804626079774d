"""kr8s, in a program of its own: see `kr8s_program.py` for its checks."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.crds.building import Family
from tests.e2e.clients import programs

WHO = "account"
VERBS = ["get", "list", "watch", "create", "patch", "delete"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": VERBS},
    {
        "apiGroups": ["apps"],
        "resources": ["deployments", "deployments/scale", "deployments/status"],
        "verbs": ["get", "list", "watch", "create", "patch"],
    },
    {
        "apiGroups": ["kr8s.example.org"],
        "resources": ["widgets", "widgets/status"],
        "verbs": ["get", "list", "create", "patch"],
    },
]
CLUSTER_RIGHTS = [
    # It finds its own username by a TokenReview.
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
]
CHECKS = [
    *("one_object", "lists", "errors", "watch", "workloads"),
    *("custom_resource", "discovery", "with_asyncio"),
]


def test_program(kubeconfig: Path, namespace: str, family: Family, tmp_path: Path) -> None:
    """Objects, pages, errors, watches, waiting, discovery and a custom kind all work."""
    program = [sys.executable, "-m", "tests.e2e.clients.kr8s_program"]
    checked = programs.passed([*program, kubeconfig, namespace, family.group], home=tmp_path)
    assert checked == CHECKS
