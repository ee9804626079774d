"""What one may choose about service accounts and their tokens. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

ISSUER_DEFAULT: Final = "https://kubernetes.default.svc.cluster.local"
NAMES_MAX: Final = 32
TOKEN_SECONDS_MIN: Final = 3600.0
TOKEN_SECONDS_MAX: Final = 2.0**32


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountOptions:
    """The flags `--service-account-*` and `--api-audiences`, by kube-apiserver's names."""

    issuers: tuple[str, ...] = (ISSUER_DEFAULT,)
    """The first signs, all are believed."""
    api_audiences: tuple[str, ...] = ()
    """Names of this server in tokens; none: the issuers."""
    key_files: tuple[Path, ...] = ()
    """Keys that are believed besides the one that signs."""
    jwks_uri: str = ""
    """Where the keys are published; empty: at this server."""
    token_seconds_max: float = TOKEN_SECONDS_MAX
    extend_token_expiration: bool = False

    def __post_init__(self) -> None:
        for flag, names in (
            ("--service-account-issuer", self.issuers),
            ("--api-audiences", self.api_audiences),
        ):
            if len(names) > NAMES_MAX:
                raise ValueError(f"{flag}: at most {NAMES_MAX}")
            if not all(names) or len(set(names)) < len(names):
                raise ValueError(f"{flag}: each must say something, and no two the same")
        if not self.issuers:
            raise ValueError("--service-account-issuer: at least one is needed")
        for issuer in self.issuers:
            _check_url("--service-account-issuer", issuer)
        if self.jwks_uri:
            _check_url("--service-account-jwks-uri", self.jwks_uri)
            if urlsplit(self.jwks_uri).scheme != "https":
                raise ValueError(f"--service-account-jwks-uri {self.jwks_uri} must be of https")
        if not TOKEN_SECONDS_MIN <= self.token_seconds_max <= TOKEN_SECONDS_MAX:
            raise ValueError(
                "--service-account-max-token-expiration must be between 1 hour and 2^32 seconds"
            )

    @property
    def audiences(self) -> tuple[str, ...]:
        return self.api_audiences or self.issuers


def _check_url(flag: str, text: str) -> None:
    """Refuse what looks like a URL and is none."""
    try:
        parts = urlsplit(text)
        is_good = ":" not in text or bool(parts.scheme)
    except ValueError:
        is_good = False
    if not is_good:
        raise ValueError(f"{flag} {text!r} contains a ':' and is no URL")
