"""TLS of the listener: one context for the lifetime of the server, with reloadable certificates.

TLS 1.2 and 1.3, or 1.3 alone; HTTP/1.1 as the only protocol; client certificates optional or
required. The application maps certificates to users. Not here: creation of certificates, and when
files are reloaded.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from restow.apimachinery.certificates import whole_chain
from restow.apimachinery.cipher_suites import CIPHER_SUITES, DEFAULT_CIPHERS
from restow.storage.private_files import FileExposed, read_kept

FILE_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a certificate file; a bundle of all public CAs has a quarter of it."""

VERSIONS: Final = {
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

ClientCertificates = Literal["optional", "required"]


class TlsError(Exception):
    """Certificate files that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPair:
    """A certificate for clients with certain server names (SNI); `*.` stands for one more label."""

    cert_file: Path
    key_file: Path
    names: tuple[str, ...]


class TlsPart(NamedTuple):
    """Files that are used together or not at all: a certificate with its key, or authorities."""

    paths: tuple[Path, ...]

    @property
    def is_pair(self) -> bool:
        return len(self.paths) == 2

    def read(self) -> tuple[bytes, ...]:
        """The contents of the files. Blocking. TlsError names the file."""
        return tuple(map(_read, self.paths))


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of the certificate chain, its key, and the authorities of client certificates."""

    cert_file: Path
    key_file: Path
    client_ca_files: tuple[Path, ...] = ()
    named: tuple[NamedPair, ...] = ()

    def parts(self) -> tuple[TlsPart, ...]:
        """All parts; the first is the default certificate with its key."""
        own = TlsPart((self.cert_file, self.key_file))
        named = (TlsPart((pair.cert_file, pair.key_file)) for pair in self.named)
        return (own, *named, *(TlsPart((path,)) for path in self.client_ca_files))


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsPolicy:
    """TLS versions and cipher suites, and whether clients must send a certificate."""

    min_version: str = "VersionTLS12"
    cipher_suites: tuple[str, ...] = ()
    """Cipher suites of TLS 1.2, by IANA names; empty: all of CIPHER_SUITES."""
    client_certificates: ClientCertificates = "optional"


Contents = Mapping[TlsPart, tuple[bytes, ...]]


class TlsMaterial:
    """Certificates in use; open connections keep those of their handshake.

    Contents are kept in memory, so that one part can be reloaded while the files of another are
    invalid.
    """

    def __init__(self, files: TlsFiles, policy: TlsPolicy | None = None) -> None:
        """Reads the files. Raises TlsError."""
        self.files = files
        self.policy = policy or TlsPolicy()
        self.parts: Final = files.parts()
        self._contents: Contents = {part: part.read() for part in self.parts}
        self._current, self._named = self._build(self._contents)
        # asyncio servers keep one context, so each handshake switches to the current one (SNI
        # callback).
        self.context, _ = self._build(self._contents)
        self.context.sni_callback = self._switch

    def in_use(self, part: TlsPart) -> tuple[bytes, ...]:
        """The contents of the files when they were loaded."""
        return self._contents[part]

    def reload(self) -> None:
        """Use the current files for new connections; TlsError leaves everything unchanged."""
        self.take({part: part.read() for part in self.parts})

    def take(self, contents: Contents) -> None:
        """Use these contents for new connections, and keep the others. TlsError changes nothing."""
        wanted = {**self._contents, **contents}
        self._current, self._named = self._build(wanted)
        self._contents = wanted

    def _build(self, contents: Contents) -> tuple[ssl.SSLContext, dict[str, ssl.SSLContext]]:
        authorities = {part: data[0] for part, data in contents.items() if not part.is_pair}
        first, *others = (part for part in self.parts if part.is_pair)
        current = _make_context(first, contents[first], authorities, self.policy)
        named: dict[str, ssl.SSLContext] = {}
        for pair, part in zip(self.files.named, others, strict=True):
            context = _make_context(part, contents[part], authorities, self.policy)
            for name in pair.names:
                named.setdefault(name.lower(), context)
        return current, named

    def _switch(
        self, ssl_object: ssl.SSLObject | ssl.SSLSocket, name: str | None, _context: ssl.SSLContext
    ) -> int | None:
        if ssl_object.session_reused:
            # Fails the handshake and drops the session. TlsConnection repeats it without one.
            return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE
        context = self._current
        if name is not None and self._named:
            asked = name.lower()
            parent = asked.partition(".")[2]
            context = self._named.get(asked) or self._named.get(f"*.{parent}") or context
        ssl_object.context = context
        return None


def check_pair(part: TlsPart) -> None:
    """Reject a certificate and a key that do not match, or cannot be used. Raises TlsError."""
    _make_context(part, part.read(), {}, TlsPolicy())


def _make_context(
    part: TlsPart,
    pair: tuple[bytes, ...],
    authorities: Mapping[TlsPart, bytes],
    policy: TlsPolicy,
) -> ssl.SSLContext:
    """A server context with these contents; TlsError names the invalid file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[policy.min_version]
    if ciphers := [CIPHER_SUITES[each] for each in policy.cipher_suites if CIPHER_SUITES[each]]:
        context.set_ciphers(":".join(ciphers))
    else:
        context.set_ciphers(DEFAULT_CIPHERS)
        if policy.cipher_suites:
            # Disables all TLS 1.2 suites, for which OpenSSL has no keyword.
            context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    # A resumed session would skip the verification of the client certificate, and use the key
    # exchange of an earlier connection. So there are no tickets, and `_switch` refuses the sessions
    # that OpenSSL keeps for TLS 1.2: Python cannot switch that off.
    context.num_tickets = 0
    try:
        chain = whole_chain(pair[0], authorities.values())
        with _as_file(chain) as cert_file, _as_file(pair[1]) as key_file:
            context.load_cert_chain(cert_file, key_file, password=_refuse_password)
    except (OSError, ValueError) as error:
        place = f"certificate {part.paths[0]} with key {part.paths[1]}"
        raise TlsError(f"{place} cannot be used: {_reason(error)}") from error
    for authority, pem in authorities.items():
        try:
            with _as_file(pem) as ca_file:
                context.load_verify_locations(ca_file)
        except OSError as error:
            text = f"client authority {authority.paths[0]} cannot be used: {_reason(error)}"
            raise TlsError(text) from error
    if authorities:
        is_required = policy.client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path to contents in memory: OpenSSL loads keys only from files, and no key is written to
    disk.

    So what was read and checked is what is loaded, even if the files have changed meanwhile.
    """
    file = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.write(file, data)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def _reason(error: Exception) -> str:
    """OpenSSL's reason, without the position in its source code."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    if isinstance(error, ssl.SSLError):
        return "it is not in PEM form"
    return str(error)


def _refuse_password() -> str:
    """Called for an encrypted key; OpenSSL would prompt on the terminal, and block indefinitely."""
    raise ValueError("the key is encrypted with a password: use an unencrypted one")


def _read(path: Path) -> bytes:
    try:
        return read_kept(path, bytes_max=FILE_BYTES_MAX)
    except FileExposed as error:
        raise TlsError(str(error)) from error
    except OSError as error:
        raise TlsError(f"{path} cannot be used: {error.strerror}") from error
