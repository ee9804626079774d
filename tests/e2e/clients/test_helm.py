"""helm: a chart is installed, changed, rolled back and removed, and its releases are stored."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crds.building import CRDS
from tests.e2e.clients import programs
from tests.support.server_process import ServerProcess

WHO = "certified"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["configmaps", "secrets", "services"], "verbs": VERBS},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": VERBS},
    {"apiGroups": ["helm.example.org"], "resources": ["shelves"], "verbs": VERBS},
]
CLUSTER_RIGHTS = [
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["get", "create"],
    }
]
CHART: Final = Path(__file__).parent / "chart"
HELM: Final = Path(sys.executable).parent / "helm"
"""From the locked packages; if they have none, the one on PATH."""


class Helm:
    """helm, in one namespace, with a home directory of its own."""

    def __init__(self, binary: Path, kubeconfig: Path, home: Path) -> None:
        self._words: list[str | Path] = [binary, "--kubeconfig", kubeconfig]
        self._home = home

    def run(self, *words: str | Path) -> str:
        return programs.run([*self._words, *words], home=self._home)

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))


@pytest.fixture
def helm(kubeconfig: Path, tmp_path: Path) -> Helm:
    found = str(HELM) if HELM.exists() else shutil.which("helm")
    assert found, "the locked packages have no helm for this platform: put one on PATH"
    return Helm(Path(found), kubeconfig, tmp_path)


def test_chart(helm: Helm, server: ServerProcess, namespace: str) -> None:
    """Every object of a chart is created, changed and deleted with it; a hook runs; history is
    stored."""

    def read(kind: str, name: str, *, group: str = "api/v1") -> tuple[int, Any]:
        code, answer = server.get(f"/{group}/namespaces/{namespace}/{kind}/{name}")
        return code, json.loads(answer)

    said = helm.run("install", "shop", CHART, "--set", "extra=true")
    assert "STATUS: deployed" in said
    assert read("configmaps", "shop-extra")[0] == 200
    assert read("configmaps", "shop-before")[1]["data"] == {"revision": "1"}
    assert read("shelves", "shop", group="apis/helm.example.org/v1")[1]["spec"] == {"size": 1}
    helm.run("upgrade", "shop", CHART, "--set", "colour=blue,size=2")
    assert read("configmaps", "shop")[1]["data"] == {"colour": "blue"}
    assert read("shelves", "shop", group="apis/helm.example.org/v1")[1]["spec"] == {"size": 2}
    assert read("configmaps", "shop-extra")[0] == 404
    deployed = read("deployments", "shop", group="apis/apps/v1")[1]
    (container,) = deployed["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "COLOUR", "value": "blue"}]
    assert deployed["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Helm"}
    (listed,) = helm.json("list")
    assert (listed["name"], listed["revision"], listed["status"]) == ("shop", "2", "deployed")
    helm.run("rollback", "shop", "1")
    assert read("configmaps", "shop")[1]["data"] == {"colour": "red"}
    assert read("configmaps", "shop-extra")[0] == 200
    history = [(each["revision"], each["status"]) for each in helm.json("history", "shop")]
    assert history == [(1, "superseded"), (2, "superseded"), (3, "deployed")]
    helm.run("uninstall", "shop", "--wait")
    assert read("deployments", "shop", group="apis/apps/v1")[0] == 404
    assert helm.json("list", "--all") == []
    assert server.get(f"{CRDS}/shelves.helm.example.org")[0] == 200


def test_refusals(helm: Helm, server: ServerProcess, namespace: str) -> None:
    """A dry run stores nothing; an upgrade that the schema refuses fails, and a valid one
    succeeds after it."""
    assert "colour: green" in helm.run("template", "shop", CHART, "--set", "colour=green")
    helm.run("install", "shop", CHART, "--dry-run=server")
    assert helm.json("list", "--all") == []
    with pytest.raises(AssertionError, match=r"spec\.size: Invalid value: -1"):
        helm.run("install", "shop", CHART, "--set", "size=-1")
    (listed,) = helm.json("list", "--all")
    assert listed["status"] == "failed"
    helm.run("upgrade", "--install", "--reset-values", "shop", CHART)
    (listed,) = helm.json("list")
    assert (listed["revision"], listed["status"]) == ("2", "deployed")
    helm.run("uninstall", "shop")
