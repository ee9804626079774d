"""The CAs that an aggregated server trusts, read from the main servers' ConfigMap and followed.

kube-system/extension-apiserver-authentication
    requestheader-*   the proxies whose user headers are trusted: the main servers
    client-ca-file    the CAs of clients that connect directly with a certificate

Without it no client could be authenticated, so the start waits for it. A change applies to the next
connection; an invalid ConfigMap changes nothing. A client without either certificate needs a token
(`aggregated_reviews`).

Not here: how a proxy and a certificate are verified (`restow.authentication`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from restow.aio import Backoff, Runtime
from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status_error import StatusError
from restow.apiserver.certificate_reload import make_material
from restow.apiserver.pki import write_secret
from restow.apiserver.tls_options import TlsOptions
from restow.authentication import (
    Authentication,
    Authorities,
    CertificateAuthenticator,
    FrontProxyAuthenticator,
    FrontProxyTrust,
    read_trust,
)
from restow.authentication.chain import Authenticator
from restow.authentication.credentials import WITHOUT_END, Credential
from restow.client import ApiClient, ClientError, Informer, ListOptions
from restow.client.informer import ObjectChange
from restow.httpserver import TlsError, TlsFiles, TlsMaterial
from restow.httpserver.request import HttpRequest
from restow.request.context import User

CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
PROXY_CA_FILE: Final = "main-front-proxy-ca.crt"
CLIENT_CA_FILE: Final = "main-client-ca.crt"
BACKOFF: Final = Backoff(initial_seconds=0.1, factor=1.5, max_seconds=5, jitter=0.3)
WARN_AFTER_FAILURES: Final = 3
"""Number of failures before a log message reports that the server is waiting."""

logger = logging.getLogger(__name__)


class MainTrust:
    """The trusted proxies and CAs of the main servers."""

    def __init__(self, client: ApiClient, runtime: Runtime, directory: Path) -> None:
        """`directory` holds the CAs as files, as TLS requires."""
        self._client = client
        self._runtime = runtime
        self._directory = directory
        self.proxies = FrontProxyAuthenticator(None, runtime.clock)
        self.clients = _Clients(runtime)
        self._material: TlsMaterial | None = None

    async def load(self) -> None:
        """Read the ConfigMap; waits until it exists and is valid."""
        failures = 0
        while True:
            try:
                found = await self._client.get(CONFIG_MAPS, NAME, namespace=NAMESPACE)
                await self._take(_data_of(found))
            except (StatusError, ClientError, ValueError) as error:
                failures += 1
                if failures == WARN_AFTER_FAILURES:
                    logger.warning(
                        "waiting for %s/%s of the main servers: %s", NAMESPACE, NAME, error
                    )
            else:
                return
            seconds = BACKOFF.delay_seconds(failures, self._runtime.randomness)
            await self._runtime.clock.sleep(seconds)

    def tls(self, cert_file: Path, key_file: Path, options: TlsOptions) -> TlsMaterial:
        """TLS material of the listener: its own certificate, and both sets of CAs.

        A certificate signed by one CA is not accepted in the role of the other: the authenticators
        check that.
        """
        files = TlsFiles(
            cert_file=cert_file,
            key_file=key_file,
            client_ca_files=(self._directory / PROXY_CA_FILE, self._directory / CLIENT_CA_FILE),
        )
        self._material = make_material(files, options)
        return self._material

    async def follow(self) -> None:
        """Follow changes of the ConfigMap, forever."""
        changed, newest = asyncio.Event(), dict[str, str]()
        informer = Informer(
            self._client,
            CONFIG_MAPS,
            namespace=NAMESPACE,
            options=ListOptions(field_selector=f"metadata.name={NAME}"),
        )

        def note(change: ObjectChange) -> None:
            if change.new is not None:  # Deletion does not revoke the trust.
                newest.clear()
                newest.update(_data_of(change.new))
                changed.set()

        informer.on_change(note)
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run(), name="main-trust/informer")
            while True:
                await changed.wait()
                changed.clear()
                try:
                    await self._take(dict(newest))
                except (ValueError, OSError, TlsError) as error:
                    logger.warning("ignored a change of %s/%s: %s", NAMESPACE, NAME, error)

    async def _take(self, data: Mapping[str, str]) -> None:
        """Trust these CAs from now on. Raises ValueError, with nothing changed, if one is
        invalid."""
        trust = read_trust(data)
        if trust is None:
            raise ValueError("it has no requestheader-* entries")
        clients_pem = data.get("client-ca-file") or ""
        if trust == self.proxies.trust and clients_pem == self.clients.ca_pem:
            return
        Authorities(trust.ca_pem.encode())
        authorities = Authorities(clients_pem.encode()) if clients_pem else None
        await asyncio.to_thread(self._write, trust, clients_pem)
        if self._material is not None:
            # Not the own certificate: a problem with it must not delay the CAs.
            parts = [part for part in self._material.parts if not part.is_pair]
            self._material.take({part: part.read() for part in parts})
        self.proxies.take(trust)
        self.clients.take(clients_pem, authorities)
        logger.info("trusting the CAs of %s/%s", NAMESPACE, NAME)

    def _write(self, trust: FrontProxyTrust, clients_pem: str) -> None:
        write_secret(self._directory / PROXY_CA_FILE, trust.ca_pem.encode())
        # TLS requires a certificate in each file; the proxies' CA is trusted anyway.
        write_secret(self._directory / CLIENT_CA_FILE, (clients_pem or trust.ca_pem).encode())


class _Clients:
    """Authenticates clients that connect directly with a certificate of the main servers' CA."""

    keeps_seconds: Final = 0.0

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._inner: CertificateAuthenticator | None = None
        self.ca_pem = ""

    def take(self, ca_pem: str, authorities: Authorities | None) -> None:
        self.ca_pem = ca_pem
        self._inner = None
        if authorities is not None:
            self._inner = CertificateAuthenticator(self._runtime.clock, authorities)

    def authenticate(self, request: HttpRequest) -> User | None:
        return None if self._inner is None else self._inner.authenticate(request)

    def credential_of(self, request: HttpRequest) -> Credential:
        return WITHOUT_END if self._inner is None else self._inner.credential_of(request)


class UncachedAuthentication(Authentication):
    """Authenticates each request, since trust that others grant may be revoked at any time."""

    def __init__(self, *authenticators: Authenticator) -> None:
        super().__init__(authenticators)

    def authenticate(self, request: HttpRequest) -> User:
        return self._find(request)[0]


def _data_of(config_map: Mapping[str, Any]) -> dict[str, str]:
    data = config_map.get("data")
    if not isinstance(data, dict):
        return {}
    return {str(name): value for name, value in data.items() if isinstance(value, str)}
