"""The plan of a cluster: options merged with the stored state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import SeededRandomness
from restow.localcluster.cluster_plan import PORT_DEFAULT, ClusterOptions, ClusterPlan, plan_cluster
from restow.localcluster.errors import ClusterRefused
from restow.localcluster.etcd import store_address
from restow.localcluster.layout import Layout
from restow.localcluster.state import ClusterState, EtcdState, Upgrade
from restow.storage.etcd.options import parse_address


def plan(
    found: ClusterState | None = None,
    *,
    is_free: Callable[[int], bool] = lambda _: True,
    requested: ClusterOptions | None = None,
) -> ClusterPlan:
    return plan_cluster(requested or ClusterOptions(), found, is_free, SeededRandomness(7))


def ports(state: ClusterState) -> list[int]:
    members = [
        port
        for member in state.etcd
        for port in (member.client_port, member.peer_port, member.health_port)
    ]
    return [state.front_port, *(server.port for server in state.servers), *members]


def test_the_first_start_needs_no_options() -> None:
    """Without options there are three servers on SQLite and the default port."""
    state = plan().state
    assert (state.store, state.bind, state.front_port) == ("sqlite", "127.0.0.1", PORT_DEFAULT)
    assert [server.port for server in state.servers] == [6444, 6445, 6446]
    assert {server.release for server in state.servers} == {"builtin"}


def test_a_second_start_is_the_same() -> None:
    """The stored state is used, without a notice."""
    requested = ClusterOptions(
        servers=2, store="etcd", etcd_members=3, release="x", server_options=("-v=4",)
    )
    first = plan(requested=requested).state
    again = plan(first)
    assert (again.state, again.notices) == (first, ())


def test_a_busy_port_is_replaced_and_said() -> None:
    """Ports that were not requested are replaced if busy, at the first start and later."""
    first = plan(is_free=lambda port: port != PORT_DEFAULT)
    assert first.state.front_port != PORT_DEFAULT
    assert "6443 is in use" in first.notices[0]
    taken = first.state.servers[1].port
    second = plan(first.state, is_free=lambda port: port != taken)
    assert second.state.servers[1].port != taken
    assert second.state.servers[0] == first.state.servers[0]
    assert f"port {taken} is in use; server 1" in second.notices[0]


def test_a_busy_port_that_was_asked_for_is_refused() -> None:
    """A requested port is not replaced."""
    with pytest.raises(ClusterRefused, match="port 7000 is in use"):
        plan(is_free=lambda port: port != 7000, requested=ClusterOptions(port=7000))


def test_port_0_is_any() -> None:
    """Port 0 selects a free port, which is stored."""
    first = plan(requested=ClusterOptions(port=0)).state
    assert first.front_port not in (0, PORT_DEFAULT)
    assert plan(first).state.front_port == first.front_port


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        (ClusterOptions(store="memory:"), "its own store"),
        (ClusterOptions(store="sqlite:other.db"), "another --data-dir"),
        (ClusterOptions(release="x+1"), "restow upgrade --to x.1"),
        (ClusterOptions(etcd_members=3), "requires --store etcd"),
        (ClusterOptions(servers=0), "not between 1 and"),
        (ClusterOptions(servers=33), "not between 1 and"),
    ],
)
def test_conflicting_options_are_rejected(requested: ClusterOptions, words: str) -> None:
    """Each option that conflicts with the state is refused with a remedy."""
    found = plan(requested=ClusterOptions(release="x")).state
    with pytest.raises(ClusterRefused, match=words):
        plan(found, requested=requested)


def test_the_members_of_etcd_stay() -> None:
    """The number of etcd members cannot be changed later."""
    found = plan(requested=ClusterOptions(store="etcd")).state
    with pytest.raises(ClusterRefused, match="has 1 members, not 3"):
        plan(found, requested=ClusterOptions(etcd_members=3))


def test_an_etcd_of_an_earlier_release_goes_over_to_tls() -> None:
    """Once: it gets another peer port; peers may use the old one until they are updated."""
    old = EtcdState(client_port=1, peer_port=2, health_port=3)
    found = msgspec.structs.replace(plan(requested=ClusterOptions(store="etcd")).state, etcd=(old,))
    [member] = plan(found).state.etcd
    assert (member.client_port, member.health_port, member.plain_peer_port) == (1, 3, 2)
    assert member.is_tls
    assert member.peer_port not in (1, 2, 3)
    again = plan(msgspec.structs.replace(found, etcd=(member,))).state
    assert again.etcd == (member,), "a start that did not get so far goes on where it was"


def test_how_the_own_etcd_is_reached(tmp_path: Path) -> None:
    """With the certificate of the cluster; over plain HTTP until it was restarted."""
    layout = Layout(tmp_path / "a b&c")
    members = plan(requested=ClusterOptions(store="etcd", etcd_members=3)).state.etcd
    options = parse_address(store_address(members, layout))
    assert options.endpoints == tuple(f"127.0.0.1:{each.client_port}" for each in members)
    assert options.tls
    assert options.ca_file == layout.pki / "etcd-ca.crt"
    assert options.cert_file == layout.pki / "etcd-client.crt"
    assert options.key_file == layout.pki / "etcd-client.key"
    old = EtcdState(client_port=1, peer_port=2, health_port=3)
    assert store_address([old], layout) == "etcd://127.0.0.1:1"


def test_servers_come_and_go() -> None:
    """A new server gets the release of the last one, and the rollback data is adapted."""
    found = plan(requested=ClusterOptions(servers=2, release="x")).state
    upgrade = Upgrade(target="x+1", origins=("x", "x"))
    found = found.with_release(0, "x+1", upgrade)
    more = plan(found, requested=ClusterOptions(servers=4)).state
    assert [server.release for server in more.servers] == ["x+1", "x", "x", "x"]
    assert more.upgrade == Upgrade(target="x+1", origins=("x",) * 4)
    fewer = plan(more, requested=ClusterOptions(servers=1)).state
    assert [server.release for server in fewer.servers] == ["x+1"]
    assert fewer.upgrade == Upgrade(target="x+1", origins=("x",))


@given(
    servers=st.integers(1, 12),
    members=st.sampled_from([None, 1, 3]),
    busy=st.sets(st.integers(6443, 6460)),
    front=st.sampled_from([None, 0]),
)
def test_no_port_is_given_twice(
    servers: int, members: int | None, busy: set[int], front: int | None
) -> None:
    """Whatever is busy, all ports of a cluster are different and free."""
    requested = ClusterOptions(
        servers=servers,
        store="etcd" if members else None,
        etcd_members=members,
        port=front,
    )
    state = plan(is_free=lambda port: port not in busy, requested=requested).state
    found = ports(state)
    assert len(set(found)) == len(found)
    assert not busy & set(found)


@pytest.mark.parametrize("store", ["banana", "postgres://127.0.0.1:5432", "etcd:", "sqlite:", ""])
def test_a_store_that_is_none_is_refused(store: str) -> None:
    """An invalid store is reported before anything is started or stored."""
    with pytest.raises(ClusterRefused, match="--store"):
        plan(requested=ClusterOptions(store=store))


@pytest.mark.parametrize(
    "store", ["sqlite:/var/store.db", "etcd://127.0.0.1:1,[::1]:2", "etcds://a:1?ca=x"]
)
def test_addresses_of_stores_are_taken_as_they_are(store: str) -> None:
    """A cluster accepts every store that a server accepts."""
    assert plan(requested=ClusterOptions(store=store)).state.store == store


def test_an_etcd_without_tls_on_another_machine_has_to_be_accepted() -> None:
    """Also by a cluster that an earlier release created, which can be started with the flag."""
    store = "etcd://192.0.2.1:2379"
    accepted = f"{store}?insecure=true"
    with pytest.raises(ClusterRefused, match="--etcd-insecure"):
        plan(requested=ClusterOptions(store=store))
    state = plan(requested=ClusterOptions(store=accepted)).state
    assert state.store == accepted
    assert plan(found=state).state.store == accepted
    earlier = msgspec.structs.replace(state, store=store)
    with pytest.raises(ClusterRefused, match=f"restow up --store {store} --etcd-insecure"):
        plan(found=earlier)
    assert plan(found=earlier, requested=ClusterOptions(store=accepted)).state.store == accepted


def test_an_address_of_another_machine_is_refused_by_its_name() -> None:
    """If no port can be opened, the address is wrong, not the ports."""
    with pytest.raises(ClusterRefused, match=r"--bind 192\.0\.2\.1"):
        plan(is_free=lambda _: False, requested=ClusterOptions(bind="192.0.2.1"))
