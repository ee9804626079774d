"""How to reach a server, and as whom: read from kubeconfig files, or from inside a cluster.

    find_config(os.environ, home=Path.home())   # as kubectl does; in a pod, its service account
    read_kubeconfig([path], context="prod")
    in_cluster_config(os.environ)

All that kubectl would do and this client does not is refused by its name, so that nobody acts as
somebody else, or through another way, than the file says. Proxies of the environment are not used.

Not here: connections. What a token file holds is read when it is needed (`credentials`).
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from restow.client.errors import ConfigInvalid

NAMESPACE_DEFAULT: Final = "default"
SERVICE_ACCOUNT_DIRECTORY: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """One server and one user. Secrets are not shown when it is printed."""

    server: str
    """The address, such as `https://127.0.0.1:6443`; may have a path."""
    ca_pem: str | None = None
    """What is trusted; None is what the system trusts."""
    is_verified: bool = True
    """Whether the server's certificate is checked."""
    server_name: str | None = None
    """The name that the certificate must have, if not that of the address."""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    client_cert_pem: str | None = field(default=None, repr=False)
    client_key_pem: str | None = field(default=None, repr=False)
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers that ask to act as another user."""
    namespace: str = NAMESPACE_DEFAULT
    source: str = "given by the program"
    """Where it comes from, for people."""

    def __post_init__(self) -> None:
        parts = _split(self.server, self.source)
        has_credential = self.token is not None or self.token_file is not None
        if parts.scheme == "http" and (has_credential or self.client_cert_pem):
            raise ConfigInvalid(
                f"{self.source}: server {self.server} is plain http, over which no credential is "
                "sent: use https, or a user without one"
            )
        for name, value in (("token", self.token or ""), *self.impersonation):
            if not value.isprintable():
                raise ConfigInvalid(f"{self.source}: {name} has characters that no header may have")
        if (self.client_cert_pem is None) != (self.client_key_pem is None):
            raise ConfigInvalid(
                f"{self.source}: client-certificate and client-key belong together: one is missing"
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
        """What the Host header says."""
        return _split(self.server, self.source).netloc

    @property
    def base_path(self) -> str:
        """What stands before each path; empty for most servers."""
        return _split(self.server, self.source).path.rstrip("/")

    def ssl_context(self) -> ssl.SSLContext | None:
        """What a connection needs for TLS; None for plain http."""
        if not self.is_https:
            return None
        try:
            context = ssl.create_default_context(cadata=self.ca_pem)
        except ssl.SSLError as error:
            raise ConfigInvalid(
                f"{self.source}: certificate-authority holds no certificate in PEM form"
            ) from error
        # Newer Pythons refuse authorities that Kubernetes' own tools have made for years.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_cert_pem is not None and self.client_key_pem is not None:
            self._load_client_certificate(context, self.client_cert_pem, self.client_key_pem)
        return context

    def _load_client_certificate(self, context: ssl.SSLContext, cert: str, key: str) -> None:
        # OpenSSL reads them from files only; the directory is ours alone and gone at once.
        with tempfile.TemporaryDirectory() as directory:
            cert_file, key_file = Path(directory, "cert.pem"), Path(directory, "key.pem")
            cert_file.write_text(cert)
            key_file.touch(mode=0o600)
            key_file.write_text(key)
            try:
                # An encrypted key is refused; without a password given, OpenSSL would ask for one.
                context.load_cert_chain(cert_file, key_file, password="")
            except (ssl.SSLError, ValueError) as error:
                raise ConfigInvalid(
                    f"{self.source}: client-certificate and client-key are no pair in PEM form, "
                    "or the key is encrypted"
                ) from error


def in_cluster_config(
    environ: Mapping[str, str], *, directory: Path = SERVICE_ACCOUNT_DIRECTORY
) -> ClientConfig:
    """What a pod finds: its service account's token, which changes, and the cluster's authority."""
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
    """The text of a file that a configuration names."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigInvalid(f"{source}: {field_name} {path} cannot be read: {why}") from error


def kubeconfig_paths(environ: Mapping[str, str], *, home: Path) -> Sequence[Path]:
    """The files that kubectl would read, in order; several are merged, the first one wins."""
    named = [Path(each) for each in environ.get("KUBECONFIG", "").split(":") if each]
    return named or [home / ".kube" / "config"]


def _split(server: str, source: str) -> SplitResult:
    # Checked first: urlsplit drops some characters in silence.
    if not (server.isascii() and server.isprintable()) or " " in server:
        raise _no_address(server, source)
    try:
        parts = urlsplit(server)
        has_port = parts.port != 0
    except ValueError as error:
        raise _no_address(server, source) from error
    if parts.scheme not in _PORTS or not parts.hostname or not has_port:
        raise _no_address(server, source)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise _no_address(server, source)
    return parts


def _no_address(server: str, source: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"{source}: server {server!r} is no address such as https://127.0.0.1:6443"
    )
