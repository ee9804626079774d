"""TLS of the listener: one context for the life of the server, whose certificates can be renewed.

TLS 1.2 and 1.3, HTTP/1.1 as the only protocol, client certificates welcome but not required. Who
a certificate stands for is the application's business; how certificates are made is not known here.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


class TlsError(Exception):
    """Certificate files that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where the certificate chain, its key, and the authorities of client certificates are."""

    cert_file: Path
    key_file: Path
    client_ca_files: tuple[Path, ...] = ()


class TlsMaterial:
    """Certificates in use. `reload` reads the files again; open connections keep what they have."""

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._current = make_context(files)
        # Servers hold on to one context, so each handshake is passed on to the current one.
        self.context = make_context(files)
        self.context.sni_callback = self._switch

    def reload(self) -> None:
        """Use the files as they are now for new connections; TlsError leaves all as it was."""
        self._current = make_context(self.files)

    def _switch(
        self, ssl_object: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        ssl_object.context = self._current


def make_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for a server, from files; TlsError names the one that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    # A resumed session would skip the check of the client's certificate, so there is none.
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.cert_file, files.key_file)
    except (OSError, ValueError) as error:
        place = f"certificate {files.cert_file} with key {files.key_file}"
        raise TlsError(f"{place} cannot be used: {error}") from error
    for path in files.client_ca_files:
        try:
            context.load_verify_locations(path)
        except OSError as error:
            raise TlsError(f"client authority {path} cannot be used: {error}") from error
    if files.client_ca_files:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
