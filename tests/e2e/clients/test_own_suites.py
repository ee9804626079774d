"""The tests in the packages of clients that need a server, run against restow.

The other tests need no server, or pods that run. Skipped tests are listed here with the reason;
they fail on a current Kubernetes too, or need nodes.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.clients import programs
from tests.sizes import SIZES
from tests.support.server_process import ServerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Files of a package, and the skipped tests in them, with the reason."""

    package: str
    files: tuple[str, ...]
    without: tuple[tuple[str, str], ...] = ()

    def words(self) -> list[str]:
        """Arguments for pytest."""
        found = importlib.util.find_spec(self.package)
        assert found is not None
        assert found.submodule_search_locations is not None
        folder = Path(found.submodule_search_locations[0])
        left_out = " and ".join(f"not {name}" for name, _ in self.without)
        return [*(str(folder / file) for file in self.files), "-k", left_out]


GONE: Final = "asks for apiextensions.k8s.io/v1beta1, which is gone since 1.22"
MISSENT: Final = "applies a Deployment at the path of a Pod, and takes no refusal"
SUITES: Final = {
    "kubernetes": Suite(
        package="kubernetes",
        files=("dynamic/test_client.py", "dynamic/test_discovery.py"),
        without=(
            ("test_cluster_custom_resources", GONE),
            ("test_namespaced_custom_resources", GONE),
            ("test_async_namespaced_custom_resources", GONE),
            ("test_cache_decoder_resource_and_subresource", "takes kinds to have one version"),
        ),
    ),
    "kubernetes.aio": Suite(
        package="kubernetes.aio",
        files=("dynamic/client_test.py",),
        without=(("test_server_side_apply_api", MISSENT),),
    ),
    "kubernetes_asyncio": Suite(
        package="kubernetes_asyncio",
        files=("dynamic/client_test.py",),
        without=(("test_server_side_apply_api", MISSENT),),
    ),
    "discovery": Suite(package="kubernetes_asyncio", files=("dynamic/discovery_test.py",)),
}


@pytest.mark.parametrize("name", SIZES.client_suites)
def test_suite(name: str, server: ServerProcess, tmp_path: Path) -> None:
    """A client's own tests pass on this server."""
    suite = SUITES[name]
    settings = ["-p", "tests.e2e.clients.suite_plugin", "-p", "no:cacheprovider", "-p", "no:anyio"]
    settings += ["-p", "no:schemathesis", "-c", "/dev/null", "--rootdir", str(tmp_path), "-q"]
    printed = programs.run(
        [sys.executable, "-m", "pytest", *settings, *suite.words()],
        home=tmp_path,
        environment={
            "KUBECONFIG": str(server.kubeconfig),
            "PYTHONPATH": str(programs.ROOT),
            "TMPDIR": str(tmp_path),
        },
    )
    assert " passed" in printed
