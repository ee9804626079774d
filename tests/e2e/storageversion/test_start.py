"""Start of a server: nothing is written before it has reported its encoding versions."""

from __future__ import annotations

import http.client
import re
import socket
import threading
from pathlib import Path
from typing import Final, Self

from tests.e2e.storageversion.clusters import (
    V1,
    V2,
    WAIT_SECONDS_MAX,
    Cluster,
    entries,
    is_ready,
    reports,
)
from tests.e2e.storageversion.hammer import Answer, Client, Hammer
from tests.e2e.storageversion.releases import write_release
from tests.sizes import SIZES
from tests.support.server_process import ServerProcess

UPDATER: Final = "poststarthook/built-in-resources-storage-version-updater"
SLOW_START_KINDS: Final = 150
"""So many resources to report that a client can reach a server before it has done so."""
WRITERS: Final = 4
PROBES_MAX: Final = 100_000
REGISTER_SECONDS_MAX: Final = 10.0
_REGISTERED: Final = re.compile(r"registered (\d+) resources in (\S+) s$", re.MULTILINE)


def test_nothing_is_written_before_it_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    """Writes get 503 with Retry-After from the moment the port is open until the server has
    reported and is ready; no object is stored in a version that was not reported."""
    [first] = cluster.start("x+1")
    release = write_release(tmp_path / "many.yaml", others=SLOW_START_KINDS, widgets="v2")
    newcomer = cluster.server(str(release))
    newcomer.port = free_port()
    newcomer.launch()
    with Probe(newcomer) as probe, Hammer(newcomer, writers=WRITERS) as hammer:
        newcomer.wait_ready(seconds_max=WAIT_SECONDS_MAX)
        hammer.wait_for_successes(20)

    unfair = [answer for answer in hammer.answers if not answer.is_fair]
    assert not unfair, f"{unfair[:3]}\n{newcomer.log_tail()}"
    refused = [answer for answer in hammer.answers if answer.status == 503]
    assert refused
    assert all("wait for storage version registration" in each.text for each in refused)
    said = [(answer.status, f"[+]{UPDATER} ok" in answer.text) for answer in probe.answers]
    assert said[0] == (500, False), probe.answers[0]
    assert said[-1] == (200, True), probe.answers[-1]
    assert said == sorted(said, key=lambda each: each[1]), "once done, it stays done"
    assert f"[-]{UPDATER} failed: reason withheld" in probe.answers[0].text
    assert set(entries(first).values()) == {V1, V2}
    assert cluster.audit() > 0


def test_many_servers_start_together(cluster: Cluster, tmp_path: Path) -> None:
    """Servers that start at once with many kinds lose no entry, and each has reported in time."""
    kinds = SIZES.coordination_kinds
    release = write_release(tmp_path / "many.yaml", others=kinds)
    servers = cluster.start(*[str(release)] * SIZES.coordination_servers)
    ids = {cluster.id_of(server) for server in servers}
    assert len(ids) == SIZES.coordination_servers
    found = reports(servers[0])
    assert len(found) > kinds
    assert {name: who for name, who in found.items() if who != ids} == {}
    for server in servers:
        assert is_ready(server)
        [(resources, seconds)] = _REGISTERED.findall(server.log_file.read_text())
        assert int(resources) == len(found)
        assert float(seconds) <= REGISTER_SECONDS_MAX
        assert cluster.encoders(cluster.id_of(server)) == set(found)


class Probe:
    """Polls the readiness of a server from the moment it listens."""

    def __init__(self, server: ServerProcess) -> None:
        self._client = Client(server)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.answers: list[Answer] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_SECONDS_MAX)
        self._client.close()

    def _ask(self) -> None:
        for _ in range(PROBES_MAX):
            try:
                self.answers.append(self._client.send("GET", "/readyz?verbose"))
            except (OSError, http.client.HTTPException):
                self._client.close()
            if self._stop.wait(0.002):
                return


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
