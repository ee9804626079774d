"""What one may choose about TLS. Values only: no file is opened, and nothing heavy imported.

A wrong value raises a ValueError that names the flag.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

MinVersion = Literal["VersionTLS12", "VersionTLS13"]
ClientAuth = Literal["optional", "required"]

MIN_VERSIONS: Final[tuple[MinVersion, ...]] = get_args(MinVersion)
CLIENT_AUTHS: Final[tuple[ClientAuth, ...]] = get_args(ClientAuth)
NAMED_MAX: Final = 100
"""Certificates for clients that ask for a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCertificate:
    """A certificate shown to clients that ask for one of its names; none given: those in it."""

    cert_file: Path
    key_file: Path
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How a server speaks TLS, by kube-apiserver's names where it has one."""

    min_version: MinVersion = "VersionTLS12"
    cipher_suites: tuple[str, ...] = ()
    """Empty: all that are good today."""
    client_auth: ClientAuth = "optional"
    named: tuple[NamedCertificate, ...] = ()

    def __post_init__(self) -> None:
        if len(self.named) > NAMED_MAX:
            raise ValueError(f"--tls-sni-cert-key: at most {NAMED_MAX} of them")
        if self.cipher_suites:
            # Only then: it brings the listener with it, for which --help should not wait.
            from restow.httpserver.tls import CIPHER_SUITES  # noqa: PLC0415

            for name in self.cipher_suites:
                if name not in CIPHER_SUITES:
                    known = ", ".join(CIPHER_SUITES)
                    raise ValueError(f"--tls-cipher-suites: {name!r} is none of {known}")


def parse_named(text: str) -> NamedCertificate:
    """From CERT,KEY or CERT,KEY:NAME,NAME."""
    files, _, names = text.partition(":")
    parts = files.split(",")
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"--tls-sni-cert-key {text!r} is not CERT,KEY or CERT,KEY:NAME,NAME")
    listed = tuple(name.strip().lower() for name in names.split(",") if name.strip())
    return NamedCertificate(cert_file=Path(parts[0]), key_file=Path(parts[1]), names=listed)
