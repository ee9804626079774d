"""Servers that end: their entries are removed, and the others agree again."""

from __future__ import annotations

import time
from typing import Final

from tests.e2e.storageversion.clusters import (
    LEASE_SECONDS,
    POLL_SECONDS,
    V1,
    V2,
    Cluster,
    add_widget,
    common,
    entries,
    reports,
    wait_for,
)
from tests.support.server_process import ServerProcess

GONE_SECONDS_MAX: Final = LEASE_SECONDS + 2.0
"""After a kill, the time until no entry of a server is left, and the others agree."""
POLL_NOISE_SECONDS: Final = 1.0
"""Tolerance for a late check on a busy machine."""
STOP_SECONDS_MAX: Final = 5.0


def test_entries_of_a_killed_server_are_removed(cluster: Cluster) -> None:
    """All entries of a killed server are removed within its lease and two seconds, in every
    StorageVersion, and the others agree again."""
    doomed, *others = cluster.start("x+1", "x+2", "x+2", short_leases=1)
    lost = cluster.id_of(doomed)
    assert all(lost in servers for servers in reports(others[0]).values())
    assert [common(server) for server in others] == [None, None]
    add_widget(doomed, "last-will")
    killed_at = time.monotonic()
    doomed.kill()
    wait_for(lambda: not cluster.records_of(lost), "nothing is left of it", servers=others)
    gone_seconds = time.monotonic() - killed_at
    assert gone_seconds <= GONE_SECONDS_MAX + POLL_SECONDS + POLL_NOISE_SECONDS
    assert [common(server) for server in others] == [V2, V2]
    assert all(len(servers) == 2 for servers in reports(others[1]).values())
    add_widget(others[0], "life-goes-on")
    assert cluster.audit() >= 2


def test_stopped_server_withdraws(cluster: Cluster) -> None:
    """A stopping server removes its entries, membership record and lease before it exits; the
    last one leaves only the persisted versions."""
    one, two = cluster.start("x+1", "x+2")
    assert set(entries(one).values()) == {V1, V2}
    left = cluster.id_of(two)
    assert cluster.encoders(left) == set(reports(one))
    stop_in_time(two)
    assert cluster.records_of(left) == []
    assert common(one) == V1
    last = cluster.id_of(one)
    stop_in_time(one)
    assert cluster.members() == set()
    assert cluster.identity_leases() == set()
    assert [key for key in cluster.keys("/") if "/apiserver-" in key] == []
    assert cluster.records_of(last) == []
    assert cluster.keys("/registry/storageversions/") == []
    assert cluster.keys("/restow/epoch/") != []


def stop_in_time(server: ServerProcess) -> None:
    assert server.stop(seconds_max=STOP_SECONDS_MAX) == 0
    assert "could not withdraw" not in server.log_tail()
