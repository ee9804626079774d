"""What a cluster remembers between two starts: its store, its ports, the release of each server.

One file, replaced whole. It also lists the processes that were started, so that the next start can
tell its own leftovers from other people's processes. Not here: what to make of it (`cluster_plan`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from restow.apiserver.pki import write_secret
from restow.localcluster.errors import ClusterRefused

VERSION: Final = 1
STATE_BYTES_MAX: Final = 1024 * 1024


class ServerState(msgspec.Struct, kw_only=True, frozen=True):
    """One server."""

    port: int
    release: str
    """A name, or the path of a kept release file, as `restow serve --release` takes it."""


class EtcdState(msgspec.Struct, kw_only=True, frozen=True):
    """One member of an etcd that belongs to the cluster."""

    client_port: int
    peer_port: int
    health_port: int
    is_tls: bool = False
    """Whether it takes clients and peers with certificates only. Earlier releases knew no TLS."""
    plain_peer_port: int | None = None
    """Where peers may still look for a member that is going over to TLS."""


class Upgrade(msgspec.Struct, kw_only=True, frozen=True):
    """The last change of releases, finished or not: what a rollback goes back to."""

    target: str
    origins: tuple[str, ...]
    """The release of each server before."""


class ProcessRecord(msgspec.Struct, kw_only=True, frozen=True):
    """A process that was started, so described that no other one can be taken for it."""

    name: str
    pid: int
    started_ticks: int
    """When it began, in ticks since the machine did."""
    boot_id: str


class ClusterState(msgspec.Struct, kw_only=True, frozen=True):
    """The whole file."""

    version: int = VERSION
    store: str
    """`sqlite`, `etcd` (the cluster's own), or an address."""
    bind: str
    front_port: int
    servers: tuple[ServerState, ...]
    etcd: tuple[EtcdState, ...] = ()
    server_options: tuple[str, ...] = ()
    """More words for each `restow serve`."""
    upgrade: Upgrade | None = None
    processes: tuple[ProcessRecord, ...] = ()
    release_files: dict[str, str] = {}
    """The file that each kept release was copied from, by the SHA-256 of its content."""

    def with_release(self, index: int, release: str, upgrade: Upgrade | None) -> ClusterState:
        """The same with another release of one server."""
        servers = list(self.servers)
        servers[index] = msgspec.structs.replace(servers[index], release=release)
        return msgspec.structs.replace(self, servers=tuple(servers), upgrade=upgrade)


def read_state(path: Path) -> ClusterState | None:
    """What is remembered; None at the first start. Raises ClusterRefused for what is no state."""
    try:
        with path.open("rb") as file:
            data = file.read(STATE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClusterRefused(f"{path} cannot be read: {error.strerror}") from error
    advice = "move it away to begin anew; the store stays as it is"
    if len(data) > STATE_BYTES_MAX:
        raise ClusterRefused(f"{path} is too large to be the state of a cluster: {advice}")
    try:
        state = msgspec.json.decode(data, type=ClusterState)
    except msgspec.MsgspecError as error:
        raise ClusterRefused(f"{path} is not the state of a cluster ({error}): {advice}") from error
    if state.version != VERSION:
        raise ClusterRefused(
            f"{path} was written by another restow (version {state.version} of the file, this one"
            f" reads {VERSION}): use that one, or {advice}"
        )
    return state


def write_state(path: Path, state: ClusterState) -> None:
    """Replace the file, at once and for good."""
    data = msgspec.json.format(msgspec.json.encode(state), indent=1)
    write_secret(path, data + b"\n")
