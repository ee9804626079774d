"""Properties of a credential: when it expires, and the hash of a token.

Sessions need them, because a session must not outlive the credential that it was created with. The
credentials of an authenticator that provides no properties do not expire.

Not here: the user of a credential (`chain`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from restow.httpserver.request import HttpRequest


@dataclass(frozen=True, slots=True)
class Credential:
    """A valid credential."""

    ends_epoch_seconds: float | None = None
    """None: it does not expire."""
    token_hash: bytes = field(default=b"", repr=False)
    """The hash of a token that is valid while it is in a list; empty for other credentials."""


WITHOUT_END: Final = Credential()


@runtime_checkable
class CredentialSource(Protocol):
    """An authenticator that provides properties of its credentials."""

    def credential_of(self, request: HttpRequest) -> Credential:
        """Return the credential of a request that it has just authenticated."""
