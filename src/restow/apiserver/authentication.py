"""The authenticators of one server, built from its options, in the order in which they run:

    front proxy -> client certificate -> token file -> service accounts -> issuers -> session
    -> anonymous

Files are read at the start, which fails if one is invalid, and again when they change; then an
invalid file is logged and the old content stays in effect. Not here: the authenticators
themselves (`restow.authentication`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from restow.aio import Runtime, in_own_thread
from restow.apimachinery.certificates import read_pem
from restow.apiserver.authentication_options import (
    AuthenticationOptions,
    OidcOptions,
    RequestHeaderOptions,
)
from restow.apiserver.option_files import named, read_authorities, read_option
from restow.authentication import (
    EVERYWHERE,
    NOWHERE,
    AnonymousAccess,
    Authentication,
    Authorities,
    CertificateAuthenticator,
    FrontProxyAuthenticator,
    FrontProxyTrust,
    Sessions,
    TokenAuthenticator,
    read_token_file,
)
from restow.authentication.chain import Authenticator
from restow.authentication.oidc import OidcAuthenticator
from restow.authentication.oidc_config import (
    ALGORITHMS,
    AuthenticationConfig,
    ClaimMapping,
    ClaimMappings,
    ClaimRule,
    IssuerConfiguration,
    JwtAuthenticator,
    check_issuers,
    read_config,
)
from restow.request.context import User
from restow.request.metrics import Metrics

if TYPE_CHECKING:
    from restow.apiserver.certificate_reload import CertificateReload


class Authenticators:
    """The configurable authenticators of a server. `load` them, `close` them."""

    def __init__(self, options: AuthenticationOptions, runtime: Runtime) -> None:
        self._options = options
        self._runtime = runtime
        self._own_issuers: tuple[str, ...] = ()
        self._token_file: Path | None = None
        self._tokens: Mapping[str, User] = {}
        self._client_ca_pem = b""
        algorithms = ALGORITHMS if options.oidc is None else options.oidc.signing_algs
        self.tokens: Final = TokenAuthenticator({})
        self.certificates: Final = CertificateAuthenticator(runtime.clock)
        self.proxies: Final = FrontProxyAuthenticator(None, runtime.clock)
        self.issuers: Final = OidcAuthenticator(runtime, algorithms=algorithms)
        self.anonymous = EVERYWHERE

    @classmethod
    async def load(
        cls,
        options: AuthenticationOptions,
        runtime: Runtime,
        *,
        tokens: Mapping[str, User],
        token_auth_file: Path | None = None,
        client_ca_pem: bytes = b"",
        own_issuers: Sequence[str] = (),
    ) -> Authenticators:
        """Read the files. `tokens` are accepted besides those of the file; `own_issuers` sign the
        cluster's own tokens. Raises ValueError and OSError that name the file."""
        authenticators = cls(options, runtime)
        authenticators._tokens = dict(tokens)
        authenticators._token_file = token_auth_file
        authenticators._own_issuers = tuple(own_issuers)
        found = await in_own_thread(
            "authentication", partial(_read_config, options, authenticators._own_issuers)
        )
        authenticators.anonymous = _anonymous(options, found)
        authenticators.take_clients(client_ca_pem)
        await in_own_thread("authentication", authenticators._take_token_file)
        await in_own_thread("authentication", authenticators._take_proxies)
        authenticators.issuers.take(found.issuers)
        return authenticators

    @classmethod
    def plain(cls, tokens: Mapping[str, User], runtime: Runtime) -> Authenticators:
        """Authenticators of a server without options: verified client certificates, and `tokens`.
        They need not be closed."""
        authenticators = cls(AuthenticationOptions(), runtime)
        authenticators.tokens.take(tokens)
        return authenticators

    async def close(self) -> None:
        await self.issuers.close()

    @property
    def client_ca_files(self) -> tuple[Path, ...]:
        """CAs that TLS must accept besides those of users."""
        wanted = self._options.request_header
        return () if wanted is None else (wanted.client_ca_file,)

    def chain(
        self, *, accounts: Sequence[Authenticator] = (), sessions: Sequence[Authenticator] = ()
    ) -> Authentication:
        """All authenticators in order, including those of the caller."""
        return Authentication(
            [
                *([self.proxies] if self._options.request_header is not None else []),
                self.certificates,
                self.tokens,
                *accounts,
                self.issuers,
                *sessions,
            ],
            anonymous=self.anonymous,
        )

    def sessions(self, key: bytes, *, is_ended: Callable[[str], bool]) -> Sessions:
        """Browser sessions, which are valid as long as the token they were created from."""
        return Sessions(
            key, self._runtime, token_hashes=lambda: self.tokens.hashes, is_ended=is_ended
        )

    def follow(self, renewal: CertificateReload) -> None:
        """Reload the files when they change."""
        if self._token_file is not None:
            renewal.follow(self._token_file, take=self._take_token_file)
        if self.client_ca_files:
            renewal.follow(*self.client_ca_files, take=self._take_proxies)
        config, oidc = self._options.authentication_config, self._options.oidc
        if config is not None:
            renewal.follow(config, take=self._take_config)
        if oidc is not None and oidc.ca_file is not None:
            renewal.follow(oidc.ca_file, take=self._take_config)

    def publish(self, metrics: Metrics) -> None:
        """Export which issuers are unreachable."""
        metrics.gauge(
            "restow_oidc_issuers_without_fresh_keys",
            "Issuers of tokens whose keys could not be fetched at the last attempt.",
            (),
            lambda: [((), float(len(list(self.issuers.fetch_failures()))))],
        )

    def take_clients(self, ca_pem: bytes) -> None:
        """Trust these CAs of users from now on, on open connections too."""
        if ca_pem != self._client_ca_pem:
            self.certificates.take(Authorities(ca_pem))
            self._client_ca_pem = ca_pem

    def _take_token_file(self) -> None:
        path, found = self._token_file, dict[str, User]()
        if path is not None:
            with named("--token-auth-file", path):
                found = read_token_file(path)
        # Last, so that no entry of a file can take the administrator's token.
        self.tokens.take({**found, **self._tokens})

    def _take_proxies(self) -> None:
        wanted = self._options.request_header
        if wanted is not None:
            self.proxies.take(_read_proxies(wanted, self._client_ca_pem))

    def _take_config(self) -> None:
        found = _read_config(self._options, self._own_issuers)
        if _anonymous(self._options, found) != self.anonymous:
            raise ValueError(
                "anonymous: it is only read at the start; restart the server to change it"
            )
        self.issuers.take(found.issuers)


def _anonymous(options: AuthenticationOptions, found: AuthenticationConfig) -> AnonymousAccess:
    if found.anonymous is not None:
        if options.anonymous_auth is not None:
            raise ValueError(
                "--anonymous-auth cannot be set when anonymous is configured in"
                " --authentication-config"
            )
        return found.anonymous
    return NOWHERE if options.anonymous_auth is False else EVERYWHERE


def _read_config(
    options: AuthenticationOptions, own_issuers: tuple[str, ...]
) -> AuthenticationConfig:
    path = options.authentication_config
    if path is not None:
        data = read_option("--authentication-config", path)
        with named("--authentication-config", path):
            return read_config(data, own_issuers=own_issuers)
    if options.oidc is None:
        return AuthenticationConfig()
    issuers = (_of_flags(options.oidc),)
    try:
        check_issuers(issuers, own_issuers=own_issuers)
    except ValueError as error:
        raise ValueError(f"--oidc-*: {error}") from error
    return AuthenticationConfig(issuers=issuers)


def _of_flags(oidc: OidcOptions) -> JwtAuthenticator:
    return JwtAuthenticator(
        issuer=IssuerConfiguration(
            url=oidc.issuer_url,
            audiences=(oidc.client_id,),
            certificate_authority=""
            if oidc.ca_file is None
            else _read_ca("--oidc-ca-file", oidc.ca_file),
        ),
        claim_validation_rules=tuple(
            ClaimRule(claim=name, required_value=value) for name, value in oidc.required_claims
        ),
        claim_mappings=ClaimMappings(
            username=ClaimMapping(claim=oidc.username_claim, prefix=oidc.prefix_of_names),
            groups=ClaimMapping(claim=oidc.groups_claim, prefix=oidc.groups_prefix)
            if oidc.groups_claim
            else ClaimMapping(),
        ),
    )


def _read_proxies(wanted: RequestHeaderOptions, client_ca_pem: bytes) -> FrontProxyTrust:
    pem = _read_ca("--requestheader-client-ca-file", wanted.client_ca_file)
    theirs = set(read_pem(pem.encode()))
    users = set(read_pem(client_ca_pem)) if client_ca_pem else set()
    if theirs & users and not wanted.allowed_names:
        raise ValueError(
            "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates;"
            " --requestheader-allowed-names must be specified to ensure regular client certificates"
            " cannot set authenticating proxy headers for arbitrary users"
        )
    return FrontProxyTrust(
        ca_pem=pem,
        allowed_names=wanted.allowed_names,
        username_headers=wanted.username_headers,
        uid_headers=wanted.uid_headers,
        group_headers=wanted.group_headers,
        extra_prefixes=wanted.extra_prefixes,
    )


def _read_ca(flag: str, path: Path) -> str:
    pem = read_authorities(flag, path)
    with named(flag, path):
        try:
            return pem.decode("ascii")
        except UnicodeDecodeError:
            raise ValueError("it contains more than certificates in PEM form") from None
