"""What is known of a credential besides whose it is: when it ends, and how it is known again.

For those who give out something in its place, which must not be good for longer: sessions. An
authenticator that says nothing of its credentials gives them no end.

Not here: who a credential is of (`chain`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from restow.httpserver.request import HttpRequest


@dataclass(frozen=True, slots=True)
class Credential:
    """One that was found to be good."""

    ends_epoch_seconds: float | None = None
    """None: nobody knows of an end."""
    token_hash: bytes = field(default=b"", repr=False)
    """Of a token that is good as long as it is in a list; empty for all others."""


WITHOUT_END: Final = Credential()


@runtime_checkable
class TellsOfCredentials(Protocol):
    """An authenticator that knows more of its credentials."""

    def credential_of(self, request: HttpRequest) -> Credential:
        """Of a request that it has just found to be good."""
