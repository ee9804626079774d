"""The keys of a cluster: generated once in a directory, under a lock, and read from there later.

They are a CA, a serving certificate, an administrator's certificate and token, the key that signs
service-account tokens, and the key that seals continue tokens; also a separate CA for the client
certificate with which servers forward requests on behalf of users, and, if the cluster has its own
etcd, one for its members and clients. A server on another machine gets a copy of the directory.
OpenSSL's random source generates the keys, the runtime's the secrets.

Not here: the rights of a credential, and the use of a certificate by TLS.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from restow.aio import Runtime, read_regular_file
from restow.apimachinery.certificates import Certificate
from restow.apiserver import certificates as certs
from restow.apiserver.certificates import CertificateIssuer, OwnKey, PkiError
from restow.apiserver.option_files import FILE_BYTES_MAX, named, read_authorities, read_option
from restow.httpserver import TlsFiles, TlsPart, check_pair
from restow.storage import private_files

__all__ = [
    "ADMIN_GROUP",
    "ADMIN_USER",
    "ETCD_CA_FILE",
    "ETCD_CLIENT_FILES",
    "ETCD_MEMBER_FILES",
    "FRONT_PROXY_NAME",
    "Given",
    "Pki",
    "PkiError",
    "PkiOptions",
    "check_mode",
    "ensure_pki",
    "read_given",
    "refresh_pki",
    "write_secret",
]

ADMIN_USER: Final = "restow-admin"
ADMIN_GROUP: Final = "system:masters"
AUTHORITY_NAME: Final = "restow-ca"
SERVING_NAME: Final = "restow-apiserver"
FRONT_PROXY_AUTHORITY_NAME: Final = "restow-front-proxy-ca"
FRONT_PROXY_NAME: Final = "front-proxy-client"
"""Common name of the client certificate with which this server forwards requests."""
ETCD_AUTHORITY_NAME: Final = "restow-etcd-ca"
ETCD_MEMBER_NAME: Final = "restow-etcd"
ETCD_CLIENT_NAME: Final = "restow-etcd-client"
ETCD_CA_FILE: Final = "etcd-ca.crt"
ETCD_MEMBER_FILES: Final = ("etcd-member.crt", "etcd-member.key")
ETCD_CLIENT_FILES: Final = ("etcd-client.crt", "etcd-client.key")
"""Certificate and key in the directory, if the cluster has its own etcd."""
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
# The names of an API server for clients inside and outside a cluster.
SERVICE_NAMES: Final = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "::1",
)
AUTHORITY_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 365
RENEWAL_DAYS: Final = 30
TOKEN_BYTES: Final = 32
NAMES_MAX: Final = 100

_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PkiOptions:
    """Names of the serving certificate, and files that replace generated ones."""

    bind: str | None = None
    extra_names: tuple[str, ...] = ()
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    client_ca_file: Path | None = None
    service_account_signing_key_file: Path | None = None
    with_etcd: bool = False
    """Whether etcd members on this machine need certificates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Content of the files that replace generated ones; None if not given."""

    serving_cert_pem: bytes | None = field(default=None, repr=False)
    client_ca_pem: bytes | None = field(default=None, repr=False)
    account_key_pem: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pki:
    """All keys and certificates, generated or given. `repr` shows no secrets."""

    directory: Path
    ca_file: Path
    serving_cert_file: Path
    serving_key_file: Path
    client_ca_files: tuple[Path, ...]
    service_account_key_file: Path
    front_proxy_ca_file: Path
    front_proxy_cert_file: Path
    """Client certificate for forwarded requests; other servers trust it, this one does not."""
    front_proxy_key_file: Path
    given: Given
    ca_pem: bytes = field(repr=False)
    """The cluster's CA."""
    admin_cert_pem: bytes = field(repr=False)
    admin_key_pem: bytes = field(repr=False)
    admin_token: str = field(repr=False)
    service_account_key_pem: bytes = field(repr=False)
    continue_key: bytes = field(repr=False)
    front_proxy_ca_pem: bytes = field(repr=False)
    # Equal on all servers of a cluster, and reveals nothing about the keys.
    fingerprint: str
    fingerprint_before: str
    """The fingerprint as earlier releases computed it: including a given signing key."""

    @property
    def serving_ca_pem(self) -> bytes:
        """The CAs that a client must trust to connect to the server."""
        return self.given.serving_cert_pem or self.ca_pem

    @property
    def client_ca_pem(self) -> bytes:
        """All CAs whose certificates authenticate clients."""
        given = self.given.client_ca_pem
        return _joined([self.ca_pem] if given is None else [self.ca_pem, given])

    def tls_files(self) -> TlsFiles:
        return TlsFiles(
            cert_file=self.serving_cert_file,
            key_file=self.serving_key_file,
            client_ca_files=self.client_ca_files,
        )


def ensure_pki(directory: Path, runtime: Runtime, options: PkiOptions | None = None) -> Pki:
    """Read the keys in a directory, after generating missing and renewing expiring ones.

    If several processes start at once, one generates and the others wait. Blocks, so call it before
    the event loop has work. Raises PkiError that names the file and the problem.
    """
    options = options or PkiOptions()
    given = read_given(options)
    private_files.make_directory(directory)
    check_mode(directory)
    with _locked(directory):
        return _Maker(directory, runtime, options).make(given)


def refresh_pki(pki: Pki, runtime: Runtime, options: PkiOptions) -> Pki | None:
    """Renew and read the keys of a running server; None while another process holds the lock.

    It does not wait for the lock, so a process that was stopped while holding it does not block
    others. Given files keep the content in use: they are reloaded separately.
    """
    check_mode(pki.directory)
    try:
        with _locked(pki.directory, waits=False):
            return _Maker(pki.directory, runtime, options).make(pki.given)
    except BlockingIOError:
        return None


def read_given(options: PkiOptions) -> Given:
    """Read the given files. Raises PkiError, which names the flag."""
    cert_file, key_file = options.tls_cert_file, options.tls_private_key_file
    client_ca_file, account_file = options.client_ca_file, options.service_account_signing_key_file
    serving = clients = account = None
    if cert_file is not None and key_file is not None:
        serving = read_authorities("--tls-cert-file", cert_file)
        with named("--tls-private-key-file", key_file):
            check_mode(key_file)
            check_pair(TlsPart((cert_file, key_file)))
    elif cert_file is not None or key_file is not None:
        raise PkiError("--tls-cert-file and --tls-private-key-file must be given together")
    if client_ca_file is not None:
        clients = read_authorities("--client-ca-file", client_ca_file)
    if account_file is not None:
        flag = "--service-account-signing-key-file"
        account = read_option(flag, account_file, is_secret=True)
        with named(flag, account_file):
            certs.load_key(account_file, account)
    return Given(serving_cert_pem=serving, client_ca_pem=clients, account_key_pem=account)


def check_mode(path: Path) -> None:
    """Reject a secret file or directory that other users can read or change."""
    try:
        problem = private_files.key_problem(path)
    except OSError as error:
        raise PkiError(f"{path} cannot be read: {error.strerror}") from error
    if problem is not None:
        raise PkiError(problem)


def write_secret(path: Path, content: bytes) -> None:
    """Replace a file atomically and durably, readable by its owner only.

    Raises PkiError for a device, a pipe or a directory, which the replacement would destroy.
    """
    if path.exists() and not path.is_file():
        raise PkiError(f"{path} is not a regular file: use the path of a file")
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    # Exclusive creation: do not write to another user's file, or follow a symlink.
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _locked(directory: Path, *, waits: bool = True) -> Iterator[None]:
    file = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(file)


class _Maker:
    """Generates and reads keys while holding the lock."""

    def __init__(self, directory: Path, runtime: Runtime, options: PkiOptions) -> None:
        self._directory = directory
        self._randomness = runtime.randomness
        self._options = options
        self._now = runtime.clock.wall()

    def make(self, given: Given) -> Pki:
        options = self._options
        issuer = self._authority("ca", AUTHORITY_NAME)
        proxy_cert_file, proxy_key_file = self._front_proxy()
        proxy_ca_file = self._directory / "front-proxy-ca.crt"
        ca_file = self._directory / "ca.crt"
        cert_file, key_file = self._serving(issuer)
        admin_key_pem, admin_cert_pem = self._admin(issuer)
        if options.with_etcd:
            self._etcd()
        own_file = self._directory / "service-account.key"
        # Also if a given key signs: it may change, while the cluster stays the same.
        own_key = self._key(own_file)
        continue_key = bytes.fromhex(self._secret("continue.key"))
        client_ca_files = () if options.client_ca_file is None else (options.client_ca_file,)
        signing_file = options.service_account_signing_key_file
        signing_key: certs.AnyKey = own_key
        if signing_file is not None and given.account_key_pem:
            signing_key = certs.load_key(signing_file, given.account_key_pem)
        return Pki(
            directory=self._directory,
            ca_file=ca_file,
            serving_cert_file=cert_file,
            serving_key_file=key_file,
            client_ca_files=(ca_file, *client_ca_files),
            service_account_key_file=signing_file or own_file,
            given=given,
            ca_pem=_read(ca_file),
            admin_cert_pem=admin_cert_pem,
            admin_key_pem=admin_key_pem,
            admin_token=self._secret("admin.token"),
            service_account_key_pem=given.account_key_pem or _read(own_file),
            continue_key=continue_key,
            front_proxy_ca_file=proxy_ca_file,
            front_proxy_cert_file=proxy_cert_file,
            front_proxy_key_file=proxy_key_file,
            front_proxy_ca_pem=_read(proxy_ca_file),
            fingerprint=certs.fingerprint(issuer.key, own_key, continue_key),
            fingerprint_before=certs.fingerprint(issuer.key, signing_key, continue_key),
        )

    def _authority(self, file_name: str, name: str) -> CertificateIssuer:
        key_file = self._directory / f"{file_name}.key"
        cert_file = self._directory / f"{file_name}.crt"
        if cert_file.exists() and not key_file.exists():
            raise PkiError(f"{key_file} is missing, but {cert_file} exists: copy both or neither")
        key = self._key(key_file)
        certificate = _existing(cert_file)
        if certificate is not None and not certs.belongs(certificate, key):
            raise PkiError(f"{cert_file} does not belong to {key_file}: copy both or neither")
        if certificate is None or not self._is_fresh(certificate):
            # Same key and name: certificates signed before stay valid.
            certificate = certs.make_authority(
                name, key, now=self._now, days=AUTHORITY_DAYS, serial=self._serial()
            )
            write_secret(cert_file, certs.to_pem(certificate))
        return CertificateIssuer(key, certificate, now=self._now)

    def _serving(self, issuer: CertificateIssuer) -> tuple[Path, Path]:
        options = self._options
        if options.tls_cert_file is not None and options.tls_private_key_file is not None:
            return options.tls_cert_file, options.tls_private_key_file
        key_file, cert_file = self._directory / "serving.key", self._directory / "serving.crt"
        key = self._key(key_file)
        names = _wanted_names(options)
        old = _existing(cert_file)
        if old is not None:
            # Several servers with addresses of their own may share the directory.
            had = certs.names_of(old)
            names = list(dict.fromkeys([*had, *names]))
            if set(names) == set(had) and self._is_good(old, key, issuer):
                return cert_file, key_file
        if len(names) > NAMES_MAX:
            raise PkiError(f"{cert_file} would have over {NAMES_MAX} names: remove it and restart")
        certificate = issuer.sign_server(
            SERVING_NAME, key, names=names, days=CERTIFICATE_DAYS, serial=self._serial()
        )
        write_secret(cert_file, certs.to_pem(certificate))
        return cert_file, key_file

    def _admin(self, issuer: CertificateIssuer) -> tuple[bytes, bytes]:
        cert_file, key_file = self._client(issuer, "admin", ADMIN_USER, group=ADMIN_GROUP)
        return _read(key_file), _read(cert_file)

    def _front_proxy(self) -> tuple[Path, Path]:
        # A separate CA: servers that trust it accept the user that its clients name in headers.
        issuer = self._authority("front-proxy-ca", FRONT_PROXY_AUTHORITY_NAME)
        return self._client(issuer, "front-proxy-client", FRONT_PROXY_NAME, group="")

    def _etcd(self) -> None:
        # A separate CA: every certificate that it signs gives full access to the store.
        issuer = self._authority(Path(ETCD_CA_FILE).stem, ETCD_AUTHORITY_NAME)
        self._client(issuer, Path(ETCD_CLIENT_FILES[0]).stem, ETCD_CLIENT_NAME, group="")
        cert_file, key_file = (self._directory / name for name in ETCD_MEMBER_FILES)
        key = self._key(key_file)
        old = _existing(cert_file)
        if old is None or not self._is_good(old, key, issuer):
            certificate = issuer.sign_server(
                ETCD_MEMBER_NAME,
                key,
                names=list(LOOPBACK_NAMES),
                days=CERTIFICATE_DAYS,
                serial=self._serial(),
                is_client=True,  # members connect to each other
            )
            write_secret(cert_file, certs.to_pem(certificate))

    def _client(
        self, issuer: CertificateIssuer, file_name: str, user: str, *, group: str
    ) -> tuple[Path, Path]:
        key_file = self._directory / f"{file_name}.key"
        cert_file = self._directory / f"{file_name}.crt"
        key = self._key(key_file)
        old = _existing(cert_file)
        if old is None or not self._is_good(old, key, issuer):
            certificate = issuer.sign_client(
                user, key, group=group, days=CERTIFICATE_DAYS, serial=self._serial()
            )
            write_secret(cert_file, certs.to_pem(certificate))
        return cert_file, key_file

    def _key(self, path: Path) -> OwnKey:
        if not path.exists():
            write_secret(path, certs.make_key())
        check_mode(path)
        key = certs.load_key(path, _read(path))
        if not isinstance(key, OwnKey):
            raise PkiError(f"{path} contains no elliptic-curve key")
        return key

    def _secret(self, name: str) -> str:
        path = self._directory / name
        if not path.exists():
            write_secret(path, self._randomness.token_bytes(TOKEN_BYTES).hex().encode())
        check_mode(path)
        text = _read(path).decode("ascii", "replace").strip()
        if _HEX.fullmatch(text) is None:
            raise PkiError(
                f"{path} does not contain {2 * TOKEN_BYTES} hexadecimal digits: remove it"
            )
        return text

    def _serial(self) -> int:
        # Positive and at most 20 bytes, as RFC 5280 requires.
        return int.from_bytes(self._randomness.token_bytes(16)) | 1

    def _is_fresh(self, certificate: Certificate) -> bool:
        left = certificate.not_valid_after_utc - self._now
        return left > timedelta(days=RENEWAL_DAYS) and self._now >= certificate.not_valid_before_utc

    def _is_good(self, certificate: Certificate, key: OwnKey, issuer: CertificateIssuer) -> bool:
        fresh = self._is_fresh(certificate)
        return fresh and certs.belongs(certificate, key) and issuer.has_signed(certificate)


def _wanted_names(options: PkiOptions) -> list[str]:
    names = [*SERVICE_NAMES]
    host = socket.gethostname()
    if certs.is_host_name(host):
        names.append(host)
    bind = options.bind
    if bind and bind not in {"0.0.0.0", "::"}:  # noqa: S104  (compared, not bound)
        names.append(bind)
    names.extend(options.extra_names)
    return list(dict.fromkeys(certs.canonical_name(name) for name in names))


def _joined(pems: list[bytes]) -> bytes:
    return b"".join(pem if pem.endswith(b"\n") else pem + b"\n" for pem in pems)


def _existing(path: Path) -> Certificate | None:
    return certs.load_certificate(path, _read(path)) if path.exists() else None


def _read(path: Path) -> bytes:
    try:
        return read_regular_file(path, bytes_max=FILE_BYTES_MAX)
    except OSError as error:
        raise PkiError(f"{path} cannot be read: {error.strerror}") from error
