"""Client configuration: server and credentials, from kubeconfig files or from inside a cluster.

    find_config(os.environ, home=Path.home())   # as kubectl; in a pod, its service account
    read_kubeconfig([path], context="prod")
    in_cluster_config(os.environ)

Fields that kubectl supports and this client does not are rejected by name, so that no other user or
connection is used than the file specifies.

Not here: connections. A token file is read, and a credential plugin runs, when they are needed
(`credentials`).
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from restow.apimachinery.cipher_suites import DEFAULT_CIPHERS
from restow.client.errors import ConfigInvalid
from restow.client.exec_credentials import ExecCredentials
from restow.client.proxies import ProxyAddress

NAMESPACE_DEFAULT: Final = "default"
SERVICE_ACCOUNT_DIRECTORY: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """One server and one user. `repr` hides the secrets."""

    server: str
    """The address, such as `https://127.0.0.1:6443`; can have a path."""
    ca_pem: str | None = None
    """The CA certificates; None: those of the system."""
    is_verified: bool = True
    """Whether the server's certificate is verified."""
    server_name: str | None = None
    """The server name for certificate verification, if not the host of the address."""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    basic: tuple[str, str] | None = field(default=None, repr=False)
    """User name and password."""
    plugin: ExecCredentials | None = None
    """The credential plugin; used only if there is no other credential."""
    proxy: ProxyAddress | None = None
    client_cert_pem: str | None = field(default=None, repr=False)
    client_key_pem: str | None = field(default=None, repr=False)
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers for impersonation."""
    namespace: str = NAMESPACE_DEFAULT
    source: str = "given by the program"
    """Where the configuration comes from, for messages."""

    def __post_init__(self) -> None:
        parts = _split(self.server, self.source)
        credentials = (self.token, self.token_file, self.basic, self.plugin, self.client_cert_pem)
        if parts.scheme == "http" and any(each is not None for each in credentials):
            raise ConfigInvalid(
                f"{self.source}: server {self.server} is plain http, which must not carry"
                " credentials: use https, or a user without credentials"
            )
        for name, value in (("token", self.token or ""), *self.impersonation):
            if not value.isprintable():
                raise ConfigInvalid(
                    f"{self.source}: {name} has characters that are not allowed in a header"
                )
        if (self.client_cert_pem is None) != (self.client_key_pem is None):
            raise ConfigInvalid(
                f"{self.source}: client-certificate and client-key must be set together"
            )

    @property
    def is_https(self) -> bool:
        return _split(self.server, self.source).scheme == "https"

    @property
    def host(self) -> str:
        return str(_split(self.server, self.source).hostname)

    @property
    def port(self) -> int:
        parts = _split(self.server, self.source)
        return parts.port or _PORTS[parts.scheme]

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        return _split(self.server, self.source).netloc

    @property
    def base_path(self) -> str:
        """The prefix of all paths; empty for most servers."""
        return _split(self.server, self.source).path.rstrip("/")

    def ssl_context(self, certificate: tuple[str, str] | None = None) -> ssl.SSLContext | None:
        """The TLS context of connections; None for plain http. `certificate` is the chain and the
        key of a client certificate that a credential plugin returned."""
        if not self.is_https:
            return None
        context = self._server_context()
        pair = certificate or (self.client_cert_pem, self.client_key_pem)
        if pair[0] is not None and pair[1] is not None:
            self._load_client_certificate(context, pair[0], pair[1])
        return context

    def proxy_context(self) -> ssl.SSLContext | None:
        """The TLS context of connections to a proxy of the scheme https, otherwise None. It trusts
        the authorities of the system and of the cluster, and has no client certificate."""
        if self.proxy is None or self.proxy.scheme != "https":
            return None
        context = self._server_context()
        if self.is_verified:
            context.load_default_certs()
        return context

    def _server_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cadata=self.ca_pem)
        except ssl.SSLError as error:
            raise ConfigInvalid(
                f"{self.source}: certificate-authority is not a certificate in PEM form"
            ) from error
        context.set_ciphers(DEFAULT_CIPHERS)
        # Newer Pythons reject CA certificates that Kubernetes' own tools have created for years.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _load_client_certificate(self, context: ssl.SSLContext, cert: str, key: str) -> None:
        # OpenSSL reads them from files only; the directory is private, and removed at once.
        with tempfile.TemporaryDirectory() as directory:
            cert_file, key_file = Path(directory, "cert.pem"), Path(directory, "key.pem")
            cert_file.write_text(cert)
            key_file.touch(mode=0o600)
            key_file.write_text(key)
            try:
                # An encrypted key is rejected; without a password, OpenSSL would prompt for one.
                context.load_cert_chain(cert_file, key_file, password="")
            except (ssl.SSLError, ValueError) as error:
                raise ConfigInvalid(
                    f"{self.source}: client-certificate and client-key are not a pair in PEM form, "
                    "or the key is encrypted"
                ) from error


def in_cluster_config(
    environ: Mapping[str, str], *, directory: Path = SERVICE_ACCOUNT_DIRECTORY
) -> ClientConfig:
    """The configuration inside a pod: its service account's token and the cluster's CA."""
    host, port = (environ.get(f"KUBERNETES_SERVICE_{each}") for each in ("HOST", "PORT"))
    if not host or not port:
        raise ConfigInvalid(
            "not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
        )
    source = f"service account in {directory}"
    if not read_text(directory / "token", "token", source).strip():
        raise ConfigInvalid(f"{directory / 'token'}: token is empty")
    try:
        namespace = (directory / "namespace").read_text().strip()
    except OSError:
        namespace = ""
    return ClientConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_pem=read_text(directory / "ca.crt", "ca.crt", source),
        token_file=directory / "token",
        namespace=namespace or NAMESPACE_DEFAULT,
        source=source,
    )


def read_text(path: Path, field_name: str, source: str) -> str:
    """Read a text file that a configuration names."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigInvalid(f"{source}: {field_name} {path} cannot be read: {why}") from error


def kubeconfig_paths(environ: Mapping[str, str], *, home: Path) -> Sequence[Path]:
    """The kubeconfig files that kubectl reads, in order; they are merged, the first one wins."""
    texts = dict.fromkeys(environ.get("KUBECONFIG", "").split(":"))
    named = [Path(each) for each in texts if each]
    return named or [home / ".kube" / "config"]


def _split(server: str, source: str) -> SplitResult:
    # Checked first, because urlsplit silently drops some characters.
    if not (server.isascii() and server.isprintable()) or " " in server:
        raise _invalid_address(server, source)
    try:
        parts = urlsplit(server)
        has_port = parts.port != 0
    except ValueError as error:
        raise _invalid_address(server, source) from error
    if parts.scheme not in _PORTS or not parts.hostname or not has_port:
        raise _invalid_address(server, source)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise _invalid_address(server, source)
    return parts


def _invalid_address(server: str, source: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"{source}: server {server!r} is not an address such as https://127.0.0.1:6443"
    )
