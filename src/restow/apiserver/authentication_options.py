"""Options of authentication. Values only; files are not opened here.

Values that exclude each other raise a ValueError that names the flags.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

USERNAME_CLAIM_DEFAULT: Final = "sub"
SIGNING_ALGS_DEFAULT: Final = ("RS256",)
SIGNING_ALGS: Final = frozenset(
    f"{kind}{bits}" for kind in ("RS", "ES", "PS") for bits in (256, 384, 512)
)
NO_PREFIX: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcOptions:
    """One token issuer, as the flags of kube-apiserver configure it."""

    issuer_url: str
    client_id: str
    username_claim: str = USERNAME_CLAIM_DEFAULT
    username_prefix: str = ""
    """Empty: the issuer's URL and `#`, unless the claim is `email`; `-`: no prefix."""
    groups_claim: str = ""
    groups_prefix: str = ""
    signing_algs: tuple[str, ...] = SIGNING_ALGS_DEFAULT
    ca_file: Path | None = None
    required_claims: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.issuer_url or not self.client_id:
            raise ValueError("--oidc-issuer-url and --oidc-client-id must be given together")
        unknown = [each for each in self.signing_algs if each not in SIGNING_ALGS]
        if unknown or not self.signing_algs:
            raise ValueError(
                f"--oidc-signing-algs {','.join(unknown)}: not supported; use"
                f" {', '.join(sorted(SIGNING_ALGS))}"
            )
        claims = [name for name, _ in self.required_claims]
        if not all(claims) or len(set(claims)) != len(claims):
            raise ValueError("--oidc-required-claim: must be KEY=VALUE, with each key once")

    @property
    def prefix_of_names(self) -> str:
        if self.username_prefix == NO_PREFIX:
            return ""
        if not self.username_prefix and self.username_claim != "email":
            return f"{self.issuer_url}#"
        return self.username_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeaderOptions:
    """A front proxy that names the user in request headers."""

    client_ca_file: Path
    allowed_names: tuple[str, ...] = ()
    """Accepted common names of its certificate; empty: any certificate of these CAs."""
    username_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationOptions:
    """Authenticators besides client certificates, token file and service accounts."""

    anonymous_auth: bool | None = None
    """None: the value in the configuration file, or else True."""
    authentication_config: Path | None = None
    oidc: OidcOptions | None = None
    request_header: RequestHeaderOptions | None = field(default=None)

    def __post_init__(self) -> None:
        if self.oidc is not None and self.authentication_config is not None:
            raise ValueError(
                "--authentication-config and --oidc-* flags: mutually exclusive, since both define"
                " the trusted issuers"
            )
