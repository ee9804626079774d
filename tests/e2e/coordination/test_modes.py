"""Coordination switched off, on again, and servers that would not do as the others."""

from __future__ import annotations

import pytest

from restow.testing.child_process import ProcessFailed
from restow.testing.server_process import ServerProcess
from tests.e2e.coordination.clusters import (
    LEASES,
    MORTAL,
    REPORTS,
    STATES,
    V1,
    WIDGETS_NAME,
    Cluster,
    add_widget,
    call,
    common,
    entries,
    report,
    wait_for,
)

OFF = ("--feature-gates", "StorageVersionAPI=false,APIServerIdentity=false")
CHANGE = "--change-coordination-mode"
# Where nobody else is there who could take a slow server for a dead one.
BRIEF = (
    *("--identity-lease-duration-seconds", "1"),
    *("--identity-lease-renew-interval-seconds", "0.4"),
)


def count(server: ServerProcess, path: str) -> int:
    return len(call(server, "GET", path)["items"])


def test_gates_off_and_on(cluster: Cluster) -> None:
    """With the gates off a server writes at once, and no reports and leases; what was there of them
    stays. With the gates on again it reports as ever."""
    with cluster.server("x+1") as server:
        add_widget(server, "with-fence")
        states = count(server, STATES)
        assert states == count(server, REPORTS)
        assert server.stop() == 0
        server.arguments = (*server.arguments, *OFF)
        server.start()
        assert (count(server, REPORTS), count(server, LEASES)) == (0, 0)
        assert count(server, STATES) == states
        add_widget(server, "without-fence")
        assert server.get("/readyz")[0] == 200
        assert cluster.keys("/restow/encoders/") == []
        assert server.stop() == 0
        assert (cluster.members(), cluster.identity_leases()) == (set(), set())
        server.arguments = server.arguments[: -len(OFF)]
        server.start()
        assert common(server) == V1
        add_widget(server, "with-fence-again")
        assert cluster.identity_leases() == {cluster.id_of(server)}


def test_gates_off_after_a_kill(cluster: Cluster) -> None:
    """What a killed server has left does not keep one with the gates off from starting, if it is
    told to change modes, and is not touched by it."""
    killed = cluster.server("x+1", *BRIEF).start()
    lost = cluster.id_of(killed)
    killed.kill()
    before = cluster.traces(lost)
    with cluster.server("x+1", *BRIEF, *OFF, CHANGE) as server:
        add_widget(server, "without-fence")
        assert cluster.traces(lost) == before
        assert server.stop() == 0
    [again] = cluster.start("x+1")
    wait_for(lambda: not cluster.traces(lost), "the dead one is collected", servers=[again])
    assert common(again) == V1


def test_another_mode(cluster: Cluster) -> None:
    """A server that would write without a fence beside others is refused in one clear line; told
    to change modes it comes up, and nothing is agreed upon while it runs."""
    [fenced] = cluster.start("x+1")
    with pytest.raises(ProcessFailed) as refused:
        cluster.server("x+1", *OFF).start()
    [line] = [each for each in str(refused.value).splitlines() if each.startswith("restow serve: ")]
    assert "this server would coordinate in mode 'off', but others run in report" in line
    assert CHANGE in line
    assert "Traceback" not in str(refused.value)
    assert common(fenced) == V1

    with cluster.server("x+1", *MORTAL, *OFF, CHANGE) as careless:
        # Not afterwards: a server without a fence waits for this before it writes.
        [condition] = report(fenced)["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "UnfencedServer")
        assert cluster.id_of(careless) in condition["message"]
        assert common(fenced) is None
        assert set(entries(careless)) == {cluster.id_of(fenced)}
        for server in (fenced, careless):
            add_widget(server, f"by-{server.port}")
        careless.kill()
    wait_for(lambda: common(fenced) == V1, "they agree again", servers=[fenced])
    assert report(fenced, WIDGETS_NAME)["conditions"][0]["status"] == "True"
