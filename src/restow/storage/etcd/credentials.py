"""Loads and checks the files that a client of etcd needs: CA, certificate, key and password.

For a wrong file gRPC only reports that the connection failed, so each is checked here first.
Not here: when files are loaded again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from restow.apimachinery.certificates import Certificate, is_key_of, read_pem
from restow.storage.errors import OpenRefused
from restow.storage.etcd.options import EtcdOptions, read_file
from restow.storage.private_files import key_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdCredentials:
    """In PEM form, as gRPC expects them."""

    authorities: bytes | None = None
    """None: the system's CA certificates."""
    chain: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


def load_credentials(options: EtcdOptions, now: datetime) -> EtcdCredentials:
    """Read the files; `OpenRefused` names the one that is wrong, and the reason. Blocks."""
    if options.ca_file is not None:
        with _named("--etcd-cafile"):
            _certificates(options.ca_file)
    if options.cert_file is not None and options.key_file is not None:
        with _named("--etcd-keyfile"):
            check_secret(options.key_file)
        with _named("--etcd-certfile"):
            certificate = _certificates(options.cert_file)[0]
            _check_time(options.cert_file, certificate, now)
        with _named("--etcd-keyfile"):
            _check_pair(options.cert_file, certificate, options.key_file)
    return EtcdCredentials(
        authorities=read_file(options.ca_file),
        chain=read_file(options.cert_file),
        key=read_file(options.key_file),
    )


@contextmanager
def _named(flag: str) -> Iterator[None]:
    """Prefix an `OpenRefused` with the flag that named the file."""
    try:
        yield
    except OpenRefused as error:
        raise OpenRefused(f"{flag}: {error}") from error


def check_secret(path: Path) -> None:
    """Reject a secret that other users can read."""
    try:
        problem = key_problem(path)
    except OSError as error:
        raise OpenRefused(f"cannot read {path}: {error.strerror}") from error
    if problem is not None:
        raise OpenRefused(problem)


def _certificates(path: Path) -> list[Certificate]:
    try:
        return read_pem(read_file(path) or b"")
    except ValueError as error:
        raise OpenRefused(f"{path} does not contain a certificate in PEM form") from error


def _check_time(path: Path, certificate: Certificate, now: datetime) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise OpenRefused(
            f"the client certificate {path} expired at {end:%Y-%m-%d %H:%M} UTC, and etcd will"
            " reject it; create a new one"
        )
    if now < begin:
        raise OpenRefused(
            f"the client certificate {path} is not valid before {begin:%Y-%m-%d %H:%M} UTC: check"
            " the clock of this machine, or wait"
        )


def _check_pair(cert_file: Path, certificate: Certificate, key_file: Path) -> None:
    try:
        is_pair = is_key_of(read_file(key_file) or b"", certificate)
    except ValueError as error:
        raise OpenRefused(
            f"{key_file} does not contain a private key in PEM form without a password"
        ) from error
    if not is_pair:
        raise OpenRefused(f"{cert_file} does not match the key {key_file}")
