"""For the clients' own tests: modules that are in their repositories, but not in their packages.

Loaded by pytest with `-p`, in a process of its own. KUBECONFIG names the server.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SECONDS_MAX = 60


def plain_configuration() -> Any:
    """The configuration of the official client."""
    made = importlib.import_module("kubernetes.client").Configuration()
    config = importlib.import_module("kubernetes.config")
    config.load_kube_config(os.environ["KUBECONFIG"], client_configuration=made)
    return made


def asyncio_configuration(package: str) -> Any:
    """The configuration of a client for asyncio."""
    made = importlib.import_module(f"{package}.client").Configuration()
    config = importlib.import_module(f"{package}.config")
    loading = config.load_kube_config(os.environ["KUBECONFIG"], client_configuration=made)
    asyncio.run(loading)
    return made


def stand_in(package: str, make: Any) -> None:
    """Replaces `e2e_test.base` by a module with the one function that tests import from it."""
    folder, base = ModuleType(f"{package}.e2e_test"), ModuleType(f"{package}.e2e_test.base")
    folder.__path__ = []
    base.__dict__["get_e2e_configuration"] = make
    folder.__dict__["base"] = base
    sys.modules[folder.__name__], sys.modules[base.__name__] = folder, base


stand_in("kubernetes", plain_configuration)
for _package in ("kubernetes.aio", "kubernetes_asyncio"):
    stand_in(_package, lambda package=_package: asyncio_configuration(package))


class Cluster:
    """What kr8s calls a cluster: a kubeconfig, and a kubectl for it."""

    kubeconfig_path = Path(os.environ["KUBECONFIG"])
    kubectl_path = "kubectl"

    def kubectl(self, *words: str) -> str:
        command = [self.kubectl_path, "--kubeconfig", str(self.kubeconfig_path), *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=SECONDS_MAX
        ).stdout


@pytest.fixture(scope="session", autouse=True)
def k8s_cluster() -> Cluster:
    return Cluster()
