"""Servers that end: what is left of them goes, and the others agree again."""

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
"""After a kill nothing of a server is left, and those who remain agree."""
POLL_NOISE_SECONDS: Final = 1.0
"""How late the look at it may be, on a busy machine."""
STOP_SECONDS_MAX: Final = 5.0


def test_killed_server_is_forgotten(cluster: Cluster) -> None:
    """What stood for a killed server is gone within its lease and two seconds, in every report, and
    those who remain agree again."""
    doomed, *others = cluster.start("x+1", "x+2", "x+2", mortals=1)
    lost = cluster.id_of(doomed)
    assert all(lost in servers for servers in reports(others[0]).values())
    assert [common(server) for server in others] == [None, None]
    add_widget(doomed, "last-will")
    killed_at = time.monotonic()
    doomed.kill()
    wait_for(lambda: not cluster.traces(lost), "nothing is left of it", servers=others)
    gone_seconds = time.monotonic() - killed_at
    assert gone_seconds <= GONE_SECONDS_MAX + POLL_SECONDS + POLL_NOISE_SECONDS
    assert [common(server) for server in others] == [V2, V2]
    assert all(len(servers) == 2 for servers in reports(others[1]).values())
    add_widget(others[0], "life-goes-on")
    assert cluster.audit() >= 2


def test_stopped_server_withdraws(cluster: Cluster) -> None:
    """A server that is asked to stop takes out its entries, keys and lease before it exits; the
    last one leaves only what tells what may be stored."""
    one, two = cluster.start("x+1", "x+2")
    assert set(entries(one).values()) == {V1, V2}
    left = cluster.id_of(two)
    assert cluster.encoders(left) == set(reports(one))
    stop_in_time(two)
    assert cluster.traces(left) == []
    assert common(one) == V1
    last = cluster.id_of(one)
    stop_in_time(one)
    assert cluster.members() == set()
    assert cluster.identity_leases() == set()
    assert [key for key in cluster.keys("/") if "/apiserver-" in key] == []
    assert cluster.traces(last) == []
    assert cluster.keys("/registry/storageversions/") == []
    assert cluster.keys("/restow/epoch/") != []


def stop_in_time(server: ServerProcess) -> None:
    assert server.stop(seconds_max=STOP_SECONDS_MAX) == 0
    assert "could not withdraw" not in server.log_tail()
