"""Real servers with a KMS plug-in each: one that hangs, and one with a different vault."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import pytest

from tests.e2e.storageversion.clusters import wait_for
from tests.support.child_process import ProcessFailed
from tests.support.server_process import ServerProcess
from tests.unit.encryption.keys_for_tests import IDENTITY, document, kms

pytestmark = pytest.mark.area("encryption")

SECRETS: Final = "/api/v1/namespaces/default/secrets"
VAULT, OTHER_VAULT = "00", "01"


class Vault:
    """A plug-in in a process of its own, and the configuration file of its server."""

    def __init__(self, directory: Path, name: str, secret: str = VAULT) -> None:
        self.socket = directory / f"{name}.sock"
        self.file = directory / f"{name}.json"
        endpoint = f"unix://{self.socket}"
        self.file.write_bytes(document(("secrets", [kms(endpoint, timeout="500ms"), IDENTITY])))
        self.file.chmod(0o600)
        command = [sys.executable, "-m", "tests.support.kms_plugin", str(self.socket)]
        self._process = subprocess.Popen(
            [*command, "--secret", secret],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._hear() == "ready"

    @property
    def flags(self) -> tuple[str, str]:
        return "--encryption-provider-config", str(self.file)

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._hear() == "ok"

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # it ends when its stdin is closed


@pytest.fixture(scope="module")
def vaults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vault, Vault]]:
    directory = tmp_path_factory.mktemp("v")
    with Vault(directory, "a") as one, Vault(directory, "b") as two:
        yield one, two


@pytest.fixture(scope="module")
def servers(
    vaults: tuple[Vault, Vault], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    directory = tmp_path_factory.mktemp("servers")
    with (
        ServerProcess(directory / "a", arguments=vaults[0].flags) as one,
        one.sibling(directory / "b", arguments=vaults[1].flags) as two,
    ):
        yield one, two


def write(server: ServerProcess, name: str) -> None:
    data = {"word": base64.b64encode(b"hush").decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
    status, body = server.request("POST", SECRETS, secret)
    assert status == 201, body


def test_another_vault_behind_the_same_name(
    servers: tuple[ServerProcess, ServerProcess], tmp_path: Path
) -> None:
    """A server whose plug-in cannot decrypt the others' values ends at once with the reason."""
    write(servers[0], "first")
    assert servers[1].get(f"{SECRETS}/first")[0] == 200
    with Vault(tmp_path, "c", OTHER_VAULT) as other:
        third = servers[0].sibling(tmp_path / "data", arguments=other.flags)
        with pytest.raises(ProcessFailed, match="does not have the keys that other servers have"):
            third.start()


def test_a_plugin_that_hangs(
    vaults: tuple[Vault, Vault], servers: tuple[ServerProcess, ServerProcess]
) -> None:
    """Requests that need the plug-in get 503 until it responds, and the health check reports it;
    no value is reported as damaged."""
    one, two = servers
    write(one, "before")
    assert two.get(f"{SECRETS}/before")[0] == 200
    vaults[1].tell("hang")
    one.restart()  # with a new seed, which the other server cannot have cached
    write(one, "after")

    def silent() -> bool:
        return two.get(f"{SECRETS}/after")[0] != 404

    wait_for(silent, "the other server has observed it", servers=servers)
    for path in (f"{SECRETS}/after", SECRETS):
        status, body = two.get(path)
        assert status == 503, body
        assert "KMS plug-in vault" in json.loads(body)["message"]
    assert two.get("/readyz/kms-providers")[0] == 500
    assert two.get(f"{SECRETS}/before")[0] == 200, "what is known is read"
    vaults[1].tell("heal")
    wait_for(lambda: two.get(f"{SECRETS}/after")[0] == 200, "it answers", servers=servers)
    wait_for(
        lambda: two.get("/readyz/kms-providers")[0] == 200, "all is well again", servers=servers
    )
    assert two.get(SECRETS)[0] == 200
