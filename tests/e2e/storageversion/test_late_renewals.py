"""A server that could not renew its lease in time refuses the writes that are queued in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from tests.e2e.storageversion.clusters import (
    LEASE_SECONDS,
    Cluster,
    call,
    is_ready,
    wait_for,
    widget,
)
from tests.e2e.storageversion.hammer import CONFIG_MAPS, Answer, Client
from tests.e2e.storageversion.test_pauses import can_write
from tests.support.server_process import ServerProcess

HALF_SENT: Final = 4
WHOLE: Final = 6
READS: Final = 2
PAUSES_MAX: Final = 10


def test_a_paused_server_refuses_its_queue(cluster: Cluster) -> None:
    """A server is paused for longer than its lease, and removed by another one, with writes queued
    in its sockets. When it goes on, it refuses them with 503 until it has joined again, and answers
    reads. Every acknowledged write is in the store, and none that was refused."""
    paused, other = cluster.start("x+1", "x+1", short_leases=1)
    old = cluster.id_of(paused)
    is_removed = lambda: old not in cluster.members()  # noqa: E731 - the condition, by name
    writes = play_pause(paused, other, until=is_removed)
    check_refused(cluster, writes)
    check_stored(other, writes)
    wait_for(lambda: is_ready(paused), "it is ready again", servers=[paused])
    assert cluster.id_of(paused) != old
    assert call(paused, "POST", CONFIG_MAPS, widget("afterwards"))
    assert call(other, "GET", f"{CONFIG_MAPS}/afterwards")


def test_a_server_that_was_not_removed_refuses_its_queue(cluster: Cluster) -> None:
    """A server that is alone refuses the writes queued in a long pause as well, because it cannot
    know that no other server has removed it; it keeps its identity, and writes after it has renewed
    its lease."""
    [paused] = cluster.start("x+1", short_leases=1)
    old = cluster.id_of(paused)
    resumes_at = time.monotonic() + LEASE_SECONDS
    writes = play_pause(paused, None, until=lambda: time.monotonic() > resumes_at)
    check_refused(cluster, writes)
    check_stored(paused, writes)
    wait_for(lambda: is_ready(paused), "it is ready again", servers=[paused])
    assert cluster.id_of(paused) == old
    assert call(paused, "POST", CONFIG_MAPS, widget("afterwards"))


def play_pause(
    paused: ServerProcess, witness: ServerProcess | None, *, until: Callable[[], bool]
) -> dict[str, Answer]:
    """Pauses a server until a condition holds, with requests queued in it; returns the answers to
    the writes, by name. The queue contains reads, whole writes, and the rests of writes whose first
    half it had read before."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(paused)) for _ in range(HALF_SENT + WHOLE + READS)]
        for client in clients:
            assert client.send("GET", CONFIG_MAPS).status == 200
        half, whole, reads = clients[:HALF_SENT], clients[HALF_SENT:-READS], clients[-READS:]
        rests = [client.begin(CONFIG_MAPS, widget(f"half-{n}")) for n, client in enumerate(half)]
        pause(paused, witness)
        for number, client in enumerate(whole):
            client.queue("POST", CONFIG_MAPS, widget(f"whole-{number}"))
        for client, rest in zip(half, rests, strict=True):
            client.finish(rest)
        for client in reads:
            client.queue("GET", CONFIG_MAPS)
        wait_for(until, "the pause is long enough", servers=[witness or paused])
        paused.resume()
        answers = {f"whole-{n}": client.answer(CONFIG_MAPS) for n, client in enumerate(whole)}
        answers |= {f"half-{n}": client.answer(CONFIG_MAPS) for n, client in enumerate(half)}
        assert all(answer.is_fair for answer in answers.values()), answers
        assert [client.answer(CONFIG_MAPS, "GET").status for client in reads] == [200] * READS
    return answers


def check_refused(cluster: Cluster, writes: dict[str, Answer]) -> None:
    """The first writes were refused because of the lease. On etcd a write first reads the revision
    of the store, so the server may have renewed its lease, or joined again, before it commits."""
    if cluster.store.startswith("sqlite:"):
        assert any("identity lease" in each.text for each in writes.values()), writes


def check_stored(server: ServerProcess, writes: dict[str, Answer]) -> None:
    """What was acknowledged is in the store, and nothing else."""
    names = {item["metadata"]["name"] for item in call(server, "GET", CONFIG_MAPS)["items"]}
    assert names & writes.keys() == {name for name, each in writes.items() if each.status == 201}


def pause(server: ServerProcess, witness: ServerProcess | None) -> None:
    """Pauses an idle server outside of a transaction of SQLite, which would block the others."""
    for number in range(PAUSES_MAX):
        server.pause()
        if witness is None or can_write(witness, f"probe-{number}"):
            return
        server.resume()
    raise AssertionError("it is always in the middle of a transaction")
