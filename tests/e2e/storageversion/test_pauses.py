"""A server that is paused for longer than its lease, with writes in flight."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from restow.storageversion.identity import ServerId
from tests.e2e.api.kubectl import Kubectl, binaries
from tests.e2e.storageversion.clusters import (
    V1,
    V2,
    WIDGETS,
    WIDGETS_NAME,
    Cluster,
    add_widget,
    call,
    common,
    entries,
    is_ready,
    reports,
    wait_for,
    widget,
)
from tests.e2e.storageversion.hammer import CONFIG_MAPS, Client, Hammer
from tests.support.server_process import ServerProcess

WRITERS: Final = 3
GAP_SECONDS: Final = 0.03
"""Seconds between two writes, so that at some time none of them is in a transaction."""
HALF_SENT: Final = 6
PAUSES_MAX: Final = 30
PROBE_SECONDS: Final = 1.5


def test_paused_server(cluster: Cluster, tmp_path: Path) -> None:
    """A server that was paused for longer than its lease writes nothing under its old identity,
    though writes were in flight; it takes a new identity and serves them again."""
    paused, *others = cluster.start("x+1", "x+2", "x+2", short_leases=1)
    ids = {cluster.id_of(server) for server in (paused, *others)}
    assert all(servers == ids for servers in reports(others[0]).values())
    check_kubectl(Kubectl.found(binaries()[0], others[1], tmp_path / "home"), ids)
    assert entries(others[0])[cluster.id_of(paused)] == V1
    assert common(others[0]) is None

    with ExitStack() as stack:
        hammer = stack.enter_context(Hammer(paused, writers=WRITERS, gap_seconds=GAP_SECONDS))
        clients = [stack.enter_context(Client(paused)) for _ in range(HALF_SENT)]
        rests = [
            client.begin(WIDGETS, widget(f"half-sent-{number}"))
            for number, client in enumerate(clients)
        ]
        hammer.wait_for_successes(20)
        old = pause_between_transactions(cluster, paused, hammer, witness=others[0])
        ids = cluster.members()
        for client, rest in zip(clients, rests, strict=True):
            client.finish(rest)
        wait_for(lambda: not cluster.records_of(old), "the paused one is forgotten", servers=others)
        assert [common(server) for server in others] == [V2, V2]
        add_widget(others[0], "meanwhile")
        before = len(hammer.answers)
        paused.resume()
        wait_for(
            lambda: len(cluster.members() - ids) == 1, "it has a new identity", servers=[paused]
        )
        wait_for(lambda: is_ready(paused), "it is ready again", servers=[paused])
        hammer.wait_for_successes(20)
        answers = [client.answer(WIDGETS) for client in clients] + hammer.answers[before:]

    unfair = [answer for answer in hammer.answers + answers if not answer.is_fair]
    assert not unfair, f"{unfair[:3]}\n{paused.log_tail()}"
    new = cluster.id_of(paused)
    assert new not in ids
    assert cluster.records_of(old) == []
    assert entries(others[0])[new] == V1
    assert common(others[1]) is None
    done = [answer for answer in answers if answer.method == "POST" and answer.status == 201]
    assert done
    assert cluster.audit() >= len([answer for answer in done if "half-sent" in answer.text])
    assert call(paused, "GET", f"{WIDGETS}/meanwhile")


def check_kubectl(kubectl: Kubectl, ids: set[ServerId]) -> None:
    """kubectl shows each server's entry."""
    found = kubectl.json("get", "storageversions", WIDGETS_NAME, "-o", "json")
    assert {entry["apiServerID"] for entry in found["status"]["storageVersions"]} == ids
    [head, line] = kubectl.run("get", "storageversions", WIDGETS_NAME).splitlines()
    assert head.split()[:3] == ["NAME", "COMMONENCODINGVERSION", "STORAGEVERSIONS"]
    assert line.split()[0] == WIDGETS_NAME
    leases = kubectl.json("get", "leases", "-n", "kube-system", "-o", "json")["items"]
    assert {lease["metadata"]["name"] for lease in leases} >= ids


def pause_between_transactions(
    cluster: Cluster, server: ServerProcess, hammer: Hammer, *, witness: ServerProcess
) -> ServerId:
    """Pauses a busy server at a moment when others can write; returns its identity at that moment.

    A server paused in a transaction of SQLite holds the lock of the file, and all others wait until
    it is resumed: nothing can be garbage collected then, and nothing goes wrong.
    """
    for number in range(PAUSES_MAX):
        server.pause()
        found = cluster.find_id(server) if can_write(witness, f"probe-{number}") else None
        if found is not None:
            return found
        server.resume()
        hammer.wait_for_successes(5)
    raise AssertionError("it is always in the middle of a transaction")


def can_write(server: ServerProcess, name: str) -> bool:
    """Returns whether a write succeeds in time."""
    with Client(server, seconds_max=PROBE_SECONDS) as client:
        try:
            return client.send("POST", CONFIG_MAPS, widget(name)).status == 201
        except TimeoutError:
            return False
