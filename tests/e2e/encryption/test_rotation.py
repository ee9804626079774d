"""A key is rotated on three real servers under load, while one is killed and one stands still."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from restow.aio import Runtime
from restow.census.values import read_value
from restow.encryption.configuration import read_configuration
from restow.encryption.keyring import Keyring
from restow.storage.interface import Span, Storage
from tests.e2e.storageversion.clusters import (
    IMMORTAL,
    MORTAL,
    STATES,
    Cluster,
    call,
    is_ready,
    wait_for,
)
from tests.e2e.storageversion.hammer import CONFIG_MAPS, Hammer
from tests.e2e.storageversion.test_pauses import pause_between_transactions
from tests.support.controllers_process import ControllersProcess
from tests.support.encryption_files import write_encryption_file
from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.area("encryption")

WRITERS: Final = 2
GAP_SECONDS: Final = 0.02
UNKNOWN_SHARE_MAX: Final = 0.1
OLD, NEW = "secretbox:old", "aesgcm:new"
WATCHED: Final = ("configmaps", "widgets.example.com", "namespaces")
"""Resources that the test waits for: with objects, and with load."""


class Encrypted:
    """Three servers, each with a file of its own. The first may not be taken for dead."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.files: list[Path] = []
        self.servers: list[ServerProcess] = []

    def start(self, *specs: str) -> None:
        for number in range(3):
            file = write_encryption_file(self.cluster.directory / f"keys-{number}", *specs)
            flags = ("--encryption-provider-config", str(file))
            self.files.append(file)
            lease = MORTAL if number else IMMORTAL
            self.servers.append(self.cluster.server("x+1", *flags, *lease))
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    def give(self, number: int, *specs: str) -> None:
        write_encryption_file(self.files[number], *specs)

    def stored_under(self) -> Counter[str]:
        """How many values are stored under which key, as they are in the store itself."""

        async def read(storage: Storage) -> Counter[str]:
            found = (await storage.range(Span.of_prefix("/registry/"))).items
            values = [read_value(item.value) for item in found]
            return Counter(f"{value.provider}:{value.key}" for value in values)

        return self.cluster.look(read)

    def unreadable(self, *specs: str) -> list[str]:
        """What a server that has only these keys could not open."""
        file = write_encryption_file(self.cluster.directory / "audit", *specs)
        keyring = Keyring(read_configuration(file.read_bytes()), Runtime.system(), plugins={})

        async def read(storage: Storage) -> list[str]:
            failed = []
            for item in (await storage.range(Span.of_prefix("/registry/"))).items:
                try:
                    json.loads(keyring.open(item.key, item.value).value)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                    failed.append(f"{item.key}: {error}")
            return failed

        return self.cluster.look(read)


def test_a_key_is_rotated_under_load(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody writes with the new key before all can read it; who is killed or stands still holds
    nobody back for long and writes nothing with the old one afterwards; in the end nothing is left
    under the old key, all is readable with the new one alone, and no request has failed; of a
    delete whose answer etcd owes, one finds out by asking again."""
    it = Encrypted(cluster)
    it.start(OLD, "identity")
    first, second, third = it.servers
    controllers = ControllersProcess(tmp_path / "controllers", kubeconfig=first.kubeconfig)
    with ExitStack() as stack:
        stack.enter_context(controllers)
        steady = stack.enter_context(Hammer(first, writers=WRITERS, gap_seconds=GAP_SECONDS))
        other = stack.enter_context(
            Hammer(third, writers=1, gap_seconds=GAP_SECONDS, prefix="third-")
        )
        steady.wait_for_successes(20)
        it.give(0, NEW, OLD, "identity")
        it.give(1, NEW, OLD, "identity")
        wait_for(lambda: _waits(first), "the first waits for the third", servers=it.servers)
        steady.wait_for_successes(20)
        assert it.stored_under()[NEW] == 0, "nobody may write what the third cannot read"
        assert _drop_key(first, cluster) == 1, "the old key is in use"
        # One stands still and is taken for dead, one is killed: the rest goes on without them.
        pause_between_transactions(cluster, third, other, witness=first)
        second.kill()
        wait_for(lambda: it.stored_under()[NEW] > 0, "the new key is used", servers=[first])
        steady.wait_for_successes(20)
        third.resume()
        second.start()
        # It has nothing that opens the new values. It must say so, and write nothing.
        wait_for(lambda: not is_ready(third), "the third is not ready", servers=[third])
        it.give(2, NEW, OLD, "identity")
        wait_for(lambda: is_ready(third), "the third is ready", servers=[third])
        wait_for(lambda: _is_complete(first), "all is rewritten", servers=it.servers)
        # There are more resources than those: only then nobody needs the old key.
        wait_for(lambda: _drop_key(first, cluster) == 0, "it may go", servers=it.servers)
        steady.wait_for_successes(20)
        other.wait_for_successes(5)
    answers = steady.answers + other.answers
    assert not [answer for answer in answers if not answer.is_fair][:3]
    assert not [answer for answer in steady.answers if answer.status >= 300], "none has failed"
    assert steady.unknown + other.unknown < len(answers) * UNKNOWN_SHARE_MAX
    assert it.stored_under()["secretbox:old"] == 0
    assert it.unreadable(NEW, "identity") == []
    for number in range(3):
        it.give(number, NEW, "identity")
    ids = [cluster.id_of(server) for server in it.servers]
    wait_for(lambda: _read_only_new(first, ids), "the old key is given up", servers=it.servers)
    assert call(third, "GET", CONFIG_MAPS)["items"]


def _annotation(server: ServerProcess, name: str) -> dict[str, Any]:
    path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/core.configmaps"
    found = call(server, "GET", path)["metadata"]["annotations"]
    return json.loads(found.get(f"coordination.restow.dev/{name}", "{}"))  # type: ignore[no-any-return]


def _waits(server: ServerProcess) -> bool:
    return len(_annotation(server, "preferred-encryption-keys")) == 2


def _read_only_new(server: ServerProcess, ids: Sequence[str]) -> bool:
    keys = _annotation(server, "readable-encryption-keys")
    read = [[key.rpartition(":")[0] or key for key in keys[server_id]] for server_id in ids]
    return all(each == [NEW, "identity"] for each in read)


def _is_complete(server: ServerProcess) -> bool:
    for resource in WATCHED:
        keys = call(server, "GET", f"{STATES}/{resource}")["status"].get("persistedEncryptionKeys")
        if [key.rpartition(":")[0] for key in keys or []] != [NEW]:
            return False
    return True


def _drop_key(server: ServerProcess, cluster: Cluster) -> int:
    """What `restow preflight` says of giving up the old key."""
    words = ["preflight", "--kubeconfig", str(server.kubeconfig), "--store", cluster.store]
    command = [sys.executable, "-m", "restow", *words, "--drop-key", "old"]
    return subprocess.run(command, capture_output=True, check=False).returncode
