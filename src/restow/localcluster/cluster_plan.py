"""The plan of a cluster: the options of the command line, merged with the stored state.

Pure: free ports are queried through a function. Options that conflict with the state are rejected,
with a remedy; omitted options come from the state, and notices report deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from restow.aio import Randomness
from restow.localcluster.errors import ClusterRefused
from restow.localcluster.ports import IsFree, PortChooser
from restow.localcluster.release_files import release_label, releases_in_use, with_file
from restow.localcluster.state import ClusterState, EtcdState, ServerState, Upgrade
from restow.storage import plain_etcd

SERVERS_DEFAULT: Final = 3
SERVERS_MAX: Final = 32
PORT_DEFAULT: Final = 6443
BIND_DEFAULT: Final = "127.0.0.1"
STORE_DEFAULT: Final = "sqlite"
OWN_ETCD: Final = "etcd"
STORE_SCHEMES: Final = ("sqlite", "etcd", "etcds")
RELEASE_DEFAULT: Final = "builtin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The options of the command line; None: as stored, or the default."""

    servers: int | None = None
    store: str | None = None
    etcd_members: int | None = None
    bind: str | None = None
    port: int | None = None
    release: str | None = None
    """A shipped name, or the path of the kept copy."""
    release_file: str | None = None
    """The release file as given."""
    server_options: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The state to start with, and notices for the user."""

    state: ClusterState
    notices: tuple[str, ...] = ()


def plan_cluster(
    requested: ClusterOptions, found: ClusterState | None, is_free: IsFree, randomness: Randomness
) -> ClusterPlan:
    """Plan a cluster. Raises ClusterRefused. `is_free(0)`: whether the address can be used."""
    store = _store(requested, found)
    bind = requested.bind or (found.bind if found else BIND_DEFAULT)
    if not is_free(0):
        raise ClusterRefused(f"--bind {bind}: not an address of this machine")
    _check_release(requested, found)
    notices: list[str] = []
    chooser = PortChooser(is_free, randomness)
    front_port = _front_port(requested, found, chooser, notices)
    servers = _servers(requested, found, chooser, front_port, notices)
    etcd = _etcd(requested, found, chooser) if store == OWN_ETCD else ()
    options = requested.server_options
    if options is None:
        options = found.server_options if found else ()
    state = ClusterState(
        store=store,
        bind=bind,
        front_port=front_port,
        servers=servers,
        etcd=etcd,
        server_options=options,
        upgrade=_upgrade(found, len(servers)),
        release_files=with_file(
            found.release_files if found else {}, requested.release or "", requested.release_file
        ),
    )
    return ClusterPlan(state, tuple(notices))


def is_elsewhere(store: str) -> bool:
    """Whether the store is outside of the data directory."""
    return store not in (STORE_DEFAULT, OWN_ETCD)


def _store(requested: ClusterOptions, found: ClusterState | None) -> str:
    wanted = requested.store
    if wanted is not None and wanted.startswith("memory"):
        raise ClusterRefused(
            "--store memory: each process would have its own store; use sqlite or etcd"
        )
    if wanted is None:
        wanted = found.store if found else STORE_DEFAULT
    scheme, _, rest = wanted.partition(":")
    if wanted not in (STORE_DEFAULT, OWN_ETCD) and not (scheme in STORE_SCHEMES and rest):
        raise ClusterRefused(
            f"--store {wanted}: unknown store; use sqlite, etcd or etcd://HOST:PORT"
        )
    if (problem := plain_etcd.problem_of(wanted)) is not None:
        raise ClusterRefused(f"{problem}: restow up --store {wanted} {plain_etcd.FLAG}")
    # Acceptance can be added to a cluster of an earlier release, which did not ask for it.
    if found is not None and wanted not in (found.store, plain_etcd.accept(found.store)):
        raise ClusterRefused(
            f"this cluster is stored in {found.store}, not in {wanted}: use another --data-dir for"
            " another store"
        )
    if requested.etcd_members is not None and wanted != OWN_ETCD:
        raise ClusterRefused("--etcd-members requires --store etcd")
    return wanted


def _check_release(requested: ClusterOptions, found: ClusterState | None) -> None:
    if requested.release is None or found is None:
        return
    releases = releases_in_use(found)
    if releases != [requested.release]:
        names = ", ".join(release_label(each, found.release_files) for each in releases)
        raise ClusterRefused(
            f"the servers of this cluster run {names}: start it without --release, then run: restow"
            f" upgrade --to {requested.release_file or requested.release}"
        )


def _front_port(
    requested: ClusterOptions, found: ClusterState | None, chooser: PortChooser, notices: list[str]
) -> int:
    wanted = requested.port if requested.port is not None else (found.front_port if found else None)
    if requested.port == 0:
        return chooser.take()
    port = chooser.take(wanted or PORT_DEFAULT)
    if port == (wanted or PORT_DEFAULT):
        return port
    if requested.port is not None:
        raise ClusterRefused(f"port {requested.port} is in use: use another --port, or omit it")
    notices.append(f"port {wanted or PORT_DEFAULT} is in use; the front port is {port} instead")
    return port


def _servers(
    requested: ClusterOptions,
    found: ClusterState | None,
    chooser: PortChooser,
    front_port: int,
    notices: list[str],
) -> tuple[ServerState, ...]:
    known = found.servers if found else ()
    count = requested.servers if requested.servers is not None else (len(known) or SERVERS_DEFAULT)
    if not 1 <= count <= SERVERS_MAX:
        raise ClusterRefused(f"--servers {count} is not between 1 and {SERVERS_MAX}")
    servers = []
    for index in range(count):
        before = known[index] if index < len(known) else None
        port = chooser.take(before.port if before else front_port + 1 + index)
        if before is not None and port != before.port:
            notices.append(f"port {before.port} is in use; server {index} uses {port} instead")
        # A new server gets the release of the last one: the old release during an upgrade.
        release = known[-1].release if known else requested.release or RELEASE_DEFAULT
        servers.append(ServerState(port=port, release=before.release if before else release))
    return tuple(servers)


def _etcd(
    requested: ClusterOptions, found: ClusterState | None, chooser: PortChooser
) -> tuple[EtcdState, ...]:
    if found is not None and found.etcd:
        if requested.etcd_members not in (None, len(found.etcd)):
            raise ClusterRefused(
                f"the etcd of this cluster has {len(found.etcd)} members, not"
                f" {requested.etcd_members}: the number cannot be changed"
            )
        # Members find each other by port, so ports are kept; a port in use is reported by etcd.
        return tuple(
            each if each.is_tls else _migrated_to_tls(each, chooser.take()) for each in found.etcd
        )
    return tuple(
        EtcdState(
            client_port=chooser.take(),
            peer_port=chooser.take(),
            health_port=chooser.take(),
            is_tls=True,
        )
        for _ in range(requested.etcd_members or 1)
    )


def _migrated_to_tls(member: EtcdState, peer_port: int) -> EtcdState:
    """Add a TLS peer port to a member of an earlier release; peers use the old one meanwhile."""
    return msgspec.structs.replace(
        member, peer_port=peer_port, plain_peer_port=member.peer_port, is_tls=True
    )


def _upgrade(found: ClusterState | None, count: int) -> Upgrade | None:
    """Adapt the rollback information to a changed number of servers."""
    upgrade = found.upgrade if found else None
    if upgrade is None:
        return None
    origins = (*upgrade.origins[:count], *([upgrade.origins[-1]] * (count - len(upgrade.origins))))
    return msgspec.structs.replace(upgrade, origins=origins)
