"""User options for etcd, and their URL form. No connection is made here.

etcd://HOST:PORT[,HOST:PORT...][?insecure=true]
etcds://HOST:PORT[,HOST:PORT...][?ca=FILE&cert=FILE&key=FILE&user=NAME&password-file=FILE]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from restow.aio import Backoff
from restow.storage import plain_etcd
from restow.storage.errors import OpenRefused
from restow.storage.private_files import FileExposed, read_kept

FILE_BYTES_MAX: Final = 1024 * 1024
_QUERY_KEYS: Final = frozenset({"ca", "cert", "key", "user", "password-file", "insecure"})
_RECONNECT: Final = Backoff(initial_seconds=0.05, factor=2, max_seconds=2, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdOptions:
    """Endpoints, credentials and timeouts."""

    endpoints: tuple[str, ...]
    """HOST:PORT of each member."""
    tls: bool = False
    is_insecure: bool = False
    """Without TLS, hosts other than this machine are refused unless this is set."""
    ca_file: Path | None = None
    """CA certificates; without it, the system's."""
    cert_file: Path | None = None
    key_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    request_timeout_seconds: float = 5.0
    """Deadline of every call."""
    resolve_timeout_seconds: float = 5.0
    """Time to resolve a commit whose reply was lost, beyond its deadline."""
    stall_timeout_seconds: float = 5.0
    """How long a watch may lag behind an expected revision before its stream is reopened."""
    keepalive_seconds: float = 10.0
    """Interval of keepalive pings; etcd closes connections that ping more often than every 5 s."""
    keepalive_timeout_seconds: float = 5.0
    reconnect: Backoff = _RECONNECT

    @property
    def has_files(self) -> bool:
        """Whether certificate files are configured, which may change."""
        return self.ca_file is not None or self.cert_file is not None

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise OpenRefused("etcd needs at least one endpoint, HOST:PORT")
        if (self.cert_file is None) != (self.key_file is None):
            raise OpenRefused("a client certificate needs both its file and its key file")
        if (self.username is None) != (self.password is None):
            raise OpenRefused("etcd's user and password belong together: give both or neither")
        if not self.tls and (self.ca_file or self.cert_file):
            raise OpenRefused("certificates were given but TLS is off; use etcds://")
        if self.tls and self.is_insecure:
            raise OpenRefused("insecure=true: only for etcd://, which has no TLS")
        if not (self.tls or self.is_insecure):
            refusal = plain_etcd.refusal(self.endpoints)
            if refusal is not None:
                raise OpenRefused(refusal)


PORTS_END: Final = 65536


def parse_address(url: str) -> EtcdOptions:
    """Options from an address; raises `OpenRefused` for any other form than those above."""
    parts = urlsplit(url)
    if parts.scheme not in {"etcd", "etcds"}:
        raise OpenRefused(f"invalid etcd address {url!r}; use etcd://HOST:PORT or etcds://...")
    if "@" in parts.netloc or parts.path.strip("/") or parts.fragment:
        raise OpenRefused(f"{url!r}: an address may only have HOST:PORT and options after '?'")
    endpoints = tuple(filter(None, parts.netloc.split(",")))
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        if not host or not port.isdecimal():
            raise OpenRefused(f"{endpoint!r} is not HOST:PORT")
        if not 0 < int(port) < PORTS_END:
            raise OpenRefused(f"{endpoint!r}: the port must be between 1 and {PORTS_END - 1}")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(query.keys() - _QUERY_KEYS):
        raise OpenRefused(f"unknown option {unknown[0]!r}; known are {sorted(_QUERY_KEYS)}")
    if query.get("insecure", "true") != "true":
        raise OpenRefused("insecure: must be true, or omitted")
    password_file = _file(query, "password-file")
    return EtcdOptions(
        endpoints=endpoints,
        tls=parts.scheme == "etcds",
        is_insecure="insecure" in query,
        ca_file=_file(query, "ca"),
        cert_file=_file(query, "cert"),
        key_file=_file(query, "key"),
        username=query.get("user"),
        password=None if password_file is None else _read_secret(password_file),
    )


def read_file(path: Path | None) -> bytes | None:
    """The content of a file; None if no file is configured."""
    return None if path is None else _read(path)


def _file(query: dict[str, str], name: str) -> Path | None:
    return Path(query[name]) if name in query else None


def _read_secret(path: Path) -> str:
    return _read(path, is_secret=True).decode().strip()


def _read(path: Path, *, is_secret: bool = False) -> bytes:
    try:
        return read_kept(path, bytes_max=FILE_BYTES_MAX, is_secret=is_secret)
    except FileExposed as error:
        raise OpenRefused(str(error)) from error
    except OSError as error:
        raise OpenRefused(f"cannot read {path}: {error.strerror}") from error
