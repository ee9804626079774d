"""TLS of the listener: one context for the life of the server, whose certificates can be renewed.

TLS 1.2 and 1.3, or 1.3 alone; HTTP/1.1 as the only protocol; client certificates welcome, or
required. Who a certificate stands for is the application's business; how certificates are made,
and when files are looked at again, is not known here.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

FILE_BYTES_MAX: Final = 1024 * 1024
"""Of a certificate file; bundles of all authorities of the world have a quarter of it."""

# What the reference calls them, and what OpenSSL does. Those of TLS 1.3 cannot be switched off.
CIPHER_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
VERSIONS: Final = {
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

ClientCertificates = Literal["optional", "required"]


class TlsError(Exception):
    """Certificate files that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPair:
    """A certificate for clients that ask for one of some names; `*.` stands for one more label."""

    cert_file: Path
    key_file: Path
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where the certificate chain, its key, and the authorities of client certificates are."""

    cert_file: Path
    key_file: Path
    client_ca_files: tuple[Path, ...] = ()
    named: tuple[NamedPair, ...] = ()

    def all(self) -> Iterator[Path]:
        yield from (self.cert_file, self.key_file, *self.client_ca_files)
        for pair in self.named:
            yield from (pair.cert_file, pair.key_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsPolicy:
    """What is spoken, and whether clients must show a certificate."""

    min_version: str = "VersionTLS12"
    cipher_suites: tuple[str, ...] = ()
    """Of TLS 1.2, by the reference's names; empty: all that are good today."""
    client_certificates: ClientCertificates = "optional"


class TlsMaterial:
    """Certificates in use. `reload` reads the files again; open connections keep what they have."""

    def __init__(self, files: TlsFiles, policy: TlsPolicy | None = None) -> None:
        self.files = files
        self.policy = policy or TlsPolicy()
        self._stamp = b""
        self._current, self._named = self._load()
        # Servers hold on to one context, so each handshake is passed on to the current one.
        self.context = make_context(files, self.policy)
        self.context.sni_callback = self._switch

    def reload(self) -> None:
        """Use the files as they are now for new connections; TlsError leaves all as it was."""
        self._current, self._named = self._load()

    def reload_if_changed(self) -> bool:
        """The same, if they hold something else than what is used; whether they did."""
        if _stamp_of(self.files) == self._stamp:
            return False
        self.reload()
        return True

    def _load(self) -> tuple[ssl.SSLContext, dict[str, ssl.SSLContext]]:
        files, policy = self.files, self.policy
        stamp = _stamp_of(files)
        current = make_context(files, policy)
        named: dict[str, ssl.SSLContext] = {}
        for pair in files.named:
            own = TlsFiles(
                cert_file=pair.cert_file,
                key_file=pair.key_file,
                client_ca_files=files.client_ca_files,
            )
            context = make_context(own, policy)
            for name in pair.names:
                named.setdefault(name.lower(), context)
        if _stamp_of(files) != stamp:
            raise TlsError(f"{files.cert_file} or a file with it is being written just now")
        self._stamp = stamp
        return current, named

    def _switch(
        self, ssl_object: ssl.SSLObject | ssl.SSLSocket, name: str | None, _context: ssl.SSLContext
    ) -> None:
        context = self._current
        if name is not None and self._named:
            asked = name.lower()
            parent = asked.partition(".")[2]
            context = self._named.get(asked) or self._named.get(f"*.{parent}") or context
        ssl_object.context = context


def make_context(files: TlsFiles, policy: TlsPolicy | None = None) -> ssl.SSLContext:
    """A context for a server, from files; TlsError names the one that is wrong."""
    policy = policy or TlsPolicy()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[policy.min_version]
    if ciphers := [CIPHER_SUITES[each] for each in policy.cipher_suites if CIPHER_SUITES[each]]:
        context.set_ciphers(":".join(ciphers))
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    # A resumed session would skip the check of the client's certificate, so there is none.
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.cert_file, files.key_file, password=_refuse_password)
    except (OSError, ValueError) as error:
        place = f"certificate {files.cert_file} with key {files.key_file}"
        raise TlsError(f"{place} cannot be used: {error}") from error
    for path in files.client_ca_files:
        try:
            context.load_verify_locations(path)
        except OSError as error:
            raise TlsError(f"client authority {path} cannot be used: {error}") from error
    if files.client_ca_files:
        is_required = policy.client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def _refuse_password() -> str:
    """Asked for when a key is encrypted; OpenSSL would ask the terminal, and wait for ever."""
    raise ValueError("the key is encrypted with a password: give one that is not")


def _stamp_of(files: TlsFiles) -> bytes:
    """What the files hold; times and numbers of files tell too little. TlsError names the file."""
    whole = hashlib.sha256()
    for path in files.all():
        try:
            with path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise TlsError(f"{path} cannot be used: {error.strerror}") from error
        if len(content) > FILE_BYTES_MAX:
            raise TlsError(f"{path} cannot be used: it has over {FILE_BYTES_MAX} bytes")
        whole.update(hashlib.sha256(content).digest())
    return whole.digest()
