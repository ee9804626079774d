"""A key is rotated on three real servers under load, while one is killed and one is paused."""

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
    ENDLESS_LEASE,
    SHORT_LEASE,
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
    """Three servers, each with its own configuration file. The first one's lease must not
    expire."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.files: list[Path] = []
        self.servers: list[ServerProcess] = []

    def start(self, *specs: str) -> None:
        for number in range(3):
            file = write_encryption_file(self.cluster.directory / f"keys-{number}", *specs)
            flags = ("--encryption-provider-config", str(file))
            self.files.append(file)
            lease = SHORT_LEASE if number else ENDLESS_LEASE
            self.servers.append(self.cluster.server("x+1", *flags, *lease))
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    def give(self, number: int, *specs: str) -> None:
        write_encryption_file(self.files[number], *specs)

    def stored_under(self) -> Counter[str]:
        """Counts the values by key, in the store itself."""

        async def read(storage: Storage) -> Counter[str]:
            found = (await storage.range(Span.of_prefix("/registry/"))).items
            values = [read_value(item.value) for item in found]
            return Counter(f"{value.provider}:{value.key}" for value in values)

        return self.cluster.look(read)

    def unreadable(self, *specs: str) -> list[str]:
        """Returns the values that a server with only these keys could not decrypt."""
        file = write_encryption_file(self.cluster.directory / "audit", *specs)
        keyring = Keyring(read_configuration(file.read_bytes()), Runtime.system(), plugins={})

        async def read(storage: Storage) -> list[str]:
            failed = []
            for item in (await storage.range(Span.of_prefix("/registry/"))).items:
                try:
                    json.loads(keyring.open(item.key, item.value).value)
                except Exception as error:  # noqa: BLE001 - any error is reported
                    failed.append(f"{item.key}: {error}")
            return failed

        return self.cluster.look(read)


def test_a_key_is_rotated_under_load(cluster: Cluster, tmp_path: Path) -> None:
    """No server writes with the new key before all can read it; a killed or paused server delays
    the others only until its lease expires and writes nothing with the old key afterwards; in
    the end no value uses the old key, all are readable with the new one alone, and no request
    has failed; the outcome of a delete without an answer from etcd is found by another request."""
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
        # One is paused until its lease expires, one is killed: the others continue.
        pause_between_transactions(cluster, third, other, witness=first)
        second.kill()
        wait_for(lambda: it.stored_under()[NEW] > 0, "the new key is used", servers=[first])
        steady.wait_for_successes(20)
        third.resume()
        second.start()
        # It has no key for the new values. It must report that, and write nothing.
        wait_for(lambda: not is_ready(third), "the third is not ready", servers=[third])
        it.give(2, NEW, OLD, "identity")
        wait_for(lambda: is_ready(third), "the third is ready", servers=[third])
        wait_for(lambda: _is_complete(first), "all is rewritten", servers=it.servers)
        # There are more resources than those: the old key is needed until all are migrated.
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
    """Returns the result of `restow preflight` for dropping the old key."""
    words = ["preflight", "--kubeconfig", str(server.kubeconfig), "--store", cluster.store]
    command = [sys.executable, "-m", "restow", *words, "--drop-key", "old"]
    return subprocess.run(command, capture_output=True, check=False).returncode
