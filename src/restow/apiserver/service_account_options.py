"""Options of service accounts and their tokens. Values only."""

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
    """The flags `--service-account-*` and `--api-audiences`, with kube-apiserver's names."""

    issuers: tuple[str, ...] = (ISSUER_DEFAULT,)
    """The first one is used to sign; all are accepted."""
    api_audiences: tuple[str, ...] = ()
    """Audiences that identify this server; empty: the issuers."""
    key_files: tuple[Path, ...] = ()
    """Accepted keys besides the signing key."""
    jwks_uri: str = ""
    """URL at which the keys are published; empty: at this server."""
    token_seconds_max: float = TOKEN_SECONDS_MAX
    extend_token_expiration: bool = False

    def __post_init__(self) -> None:
        for flag, names in (
            ("--service-account-issuer", self.issuers),
            ("--api-audiences", self.api_audiences),
        ):
            if len(names) > NAMES_MAX:
                raise ValueError(f"{flag}: at most {NAMES_MAX} values")
            if not all(names) or len(set(names)) < len(names):
                raise ValueError(f"{flag}: values must not be empty or repeated")
        if not self.issuers:
            raise ValueError("--service-account-issuer: at least one is needed")
        for issuer in self.issuers:
            _check_url("--service-account-issuer", issuer)
        if self.jwks_uri:
            _check_url("--service-account-jwks-uri", self.jwks_uri)
            if urlsplit(self.jwks_uri).scheme != "https":
                raise ValueError(f"--service-account-jwks-uri {self.jwks_uri} must be an https URL")
        if not TOKEN_SECONDS_MIN <= self.token_seconds_max <= TOKEN_SECONDS_MAX:
            raise ValueError(
                "--service-account-max-token-expiration must be between 1 hour and 2^32 seconds"
            )

    @property
    def audiences(self) -> tuple[str, ...]:
        return self.api_audiences or self.issuers


def _check_url(flag: str, text: str) -> None:
    """Reject an invalid URL in a value that contains a colon, as kube-apiserver does."""
    try:
        parts = urlsplit(text)
        is_good = ":" not in text or bool(parts.scheme)
    except ValueError:
        is_good = False
    if not is_good:
        raise ValueError(f"{flag} {text!r} contains a ':' but is not a URL")
