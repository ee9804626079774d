"""Options of TLS. Values only: no file is opened, and nothing expensive is imported.

An invalid value raises a ValueError that names the flag.
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
"""Limit of certificates selected by server name (SNI)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCertificate:
    """A certificate for clients that request one of its names; by default those it contains."""

    cert_file: Path
    key_file: Path
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS options of a server, with kube-apiserver's names where they exist there."""

    min_version: MinVersion = "VersionTLS12"
    cipher_suites: tuple[str, ...] = ()
    """Empty: all of CIPHER_SUITES."""
    client_auth: ClientAuth = "optional"
    named: tuple[NamedCertificate, ...] = ()

    def __post_init__(self) -> None:
        if len(self.named) > NAMED_MAX:
            raise ValueError(f"--tls-sni-cert-key: at most {NAMED_MAX} values")
        if self.cipher_suites:
            # Imported only if needed: it imports the listener, which would slow down --help.
            from restow.apimachinery.cipher_suites import CIPHER_SUITES  # noqa: PLC0415

            for name in self.cipher_suites:
                if name not in CIPHER_SUITES:
                    known = ", ".join(CIPHER_SUITES)
                    raise ValueError(f"--tls-cipher-suites: {name!r} is not one of {known}")


def parse_named(text: str) -> NamedCertificate:
    """Parse CERT,KEY or CERT,KEY:NAME,NAME."""
    files, _, names = text.partition(":")
    parts = files.split(",")
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"--tls-sni-cert-key {text!r} is not CERT,KEY or CERT,KEY:NAME,NAME")
    listed = tuple(name.strip().lower() for name in names.split(",") if name.strip())
    return NamedCertificate(cert_file=Path(parts[0]), key_file=Path(parts[1]), names=listed)
