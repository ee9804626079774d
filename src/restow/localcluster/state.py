"""The state of a cluster that is kept between starts: its store, ports, and releases.

One file, replaced atomically. It also lists the started processes, so that the next start can
identify orphans. Not here: the use of the state (`cluster_plan`).
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
    """Whether it accepts only clients and peers with certificates. Earlier releases had no TLS."""
    plain_peer_port: int | None = None
    """The old port of a member that is changing to TLS, still used by peers."""


class Upgrade(msgspec.Struct, kw_only=True, frozen=True):
    """The last upgrade, finished or not, which a rollback undoes."""

    target: str
    origins: tuple[str, ...]
    """The previous release of each server."""


class ProcessRecord(msgspec.Struct, kw_only=True, frozen=True):
    """The unique identification of a started process."""

    name: str
    pid: int
    started_ticks: int
    """Its start, in ticks since boot."""
    boot_id: str


class ClusterState(msgspec.Struct, kw_only=True, frozen=True):
    """The content of the state file."""

    version: int = VERSION
    store: str
    """`sqlite`, `etcd` (the cluster's own), or an address."""
    bind: str
    front_port: int
    servers: tuple[ServerState, ...]
    etcd: tuple[EtcdState, ...] = ()
    server_options: tuple[str, ...] = ()
    """Additional options of each `restow serve`."""
    upgrade: Upgrade | None = None
    processes: tuple[ProcessRecord, ...] = ()
    release_files: dict[str, str] = {}
    """The original file of each kept release, by the SHA-256 of its content."""

    def with_release(self, index: int, release: str, upgrade: Upgrade | None) -> ClusterState:
        """The same state with another release of one server."""
        servers = list(self.servers)
        servers[index] = msgspec.structs.replace(servers[index], release=release)
        return msgspec.structs.replace(self, servers=tuple(servers), upgrade=upgrade)


def read_state(path: Path) -> ClusterState | None:
    """Read the state; None at the first start. Raises ClusterRefused for an invalid file."""
    try:
        with path.open("rb") as file:
            data = file.read(STATE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClusterRefused(f"{path} cannot be read: {error.strerror}") from error
    advice = "move it away to start with a new state; the store is not changed"
    if len(data) > STATE_BYTES_MAX:
        raise ClusterRefused(f"{path} is too large for a state file: {advice}")
    try:
        state = msgspec.json.decode(data, type=ClusterState)
    except msgspec.MsgspecError as error:
        raise ClusterRefused(f"{path} is not a valid state file ({error}): {advice}") from error
    if state.version != VERSION:
        raise ClusterRefused(
            f"{path} was written by another version of restow (file version {state.version}, this"
            f" one reads {VERSION}): use that version, or {advice}"
        )
    return state


def write_state(path: Path, state: ClusterState) -> None:
    """Replace the file atomically and durably."""
    data = msgspec.json.format(msgspec.json.encode(state), indent=1)
    write_secret(path, data + b"\n")
