"""The storage version of a custom resource changes under constant writes, without a violation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.e2e.custom.switching import (
    DEFINITIONS,
    GROUP,
    NAME,
    REPORT,
    SWITCHES_MIN,
    VERSIONS,
    Audit,
    Hammer,
    audited,
    definition,
)
from tests.e2e.storageversion.clusters import ENDLESS_LEASE, Cluster, call, wait_for
from tests.e2e.storageversion.conftest import NewCluster
from tests.sizes import SIZES
from tests.support.server_process import ServerProcess

SERVERS = 3
VOTE = ("--coordination", "vote", "--guarantee", "strict")


@pytest.mark.parametrize(
    ("store", "arguments", "share"),
    [("sqlite", (), 1.0), ("sqlite", VOTE, 0.2), ("etcd", (), 0.2)],
    ids=["sqlite", "sqlite-vote", "etcd"],
)
def test_no_write_in_a_version_that_was_not_reported(
    new_cluster: NewCluster, store: str, arguments: tuple[str, ...], share: float
) -> None:
    """Each write during switches of the storage version is in the version that its server had
    reported at that revision, and that the CRD and the state listed by then."""
    cluster = new_cluster(store)
    hammer, audit = hammered(cluster, arguments, writes=int(SIZES.switch_writes * share))
    assert hammer.unexpected == []
    assert audit.broken == []
    assert sum(audit.written.values()) >= hammer.written >= SIZES.switch_writes * share
    # Without switches and writes in both versions the test would prove nothing.
    assert hammer.switches >= SWITCHES_MIN
    assert audit.registrations > hammer.switches
    assert audit.listings > hammer.switches
    written = [audit.written[f"{GROUP}/{version}"] for version in VERSIONS]
    assert min(written) > hammer.written * 0.1
    cluster.close()


def hammered(cluster: Cluster, arguments: tuple[str, ...], *, writes: int) -> tuple[Hammer, Audit]:
    # The writes contain identities, so each server has to keep its own.
    servers = [cluster.server("builtin", *ENDLESS_LEASE, *arguments) for _ in range(SERVERS)]
    for server in servers:
        server.launch()
    for server in servers:
        server.wait_ready()
    call(servers[0], "POST", DEFINITIONS, definition())
    wait_for(
        lambda: "Established" in established(call(servers[0], "GET", f"{DEFINITIONS}/{NAME}")),
        "it is established",
        servers=servers,
    )
    ids = [cluster.id_of(server) for server in servers]
    hammer = Hammer(servers, ids, writes)
    asyncio.run(hammer.run())
    wait_for(
        lambda: common_is_wanted(servers[0]),
        "all servers have made the last switch",
        servers=servers,
    )
    return hammer, cluster.look(audited)


def established(found: dict[str, Any]) -> set[str]:
    conditions = found["status"].get("conditions") or []
    return {each["type"] for each in conditions if each["status"] == "True"}


def common_is_wanted(server: ServerProcess) -> bool:
    found = call(server, "GET", f"{DEFINITIONS}/{NAME}")
    [wanted] = [each["name"] for each in found["spec"]["versions"] if each["storage"]]
    common = call(server, "GET", REPORT)["status"].get("commonEncodingVersion", "")
    return bool(common.endswith(f"/{wanted}"))
