"""The headers that say who asks. A token file is read again as time goes by: tokens are renewed.

Not here: client certificates; they are part of the TLS connection.
"""

from __future__ import annotations

from typing import Final

from restow.aio import Clock
from restow.client.config import ClientConfig, read_text
from restow.client.errors import ConfigInvalid

# A kubelet renews a token long before it ends; client-go looks as often.
TOKEN_FILE_SECONDS: Final = 60.0


class ClientCredentials:
    """The headers of one configuration's user."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._token = config.token
        self._read_at: float | None = None

    def headers(self) -> list[tuple[str, str]]:
        """What a request carries now. ConfigInvalid if a token file has never been readable."""
        token = self._current_token()
        found = [] if token is None else [("Authorization", f"Bearer {token}")]
        return [*found, *self._config.impersonation]

    def refused(self) -> None:
        """A server did not know the credential: look at the file again before the next request."""
        self._read_at = None

    def _current_token(self) -> str | None:
        path = self._config.token_file
        if path is None:
            return self._token
        now = self._clock.monotonic()
        if self._read_at is not None and now - self._read_at < TOKEN_FILE_SECONDS:
            return self._token
        try:
            text = read_text(path, "tokenFile", self._config.source).strip()
            if not text or not text.isascii() or not text.isprintable():
                raise ConfigInvalid(f"{self._config.source}: tokenFile {path} holds no token")
        except ConfigInvalid:
            # It may be in the middle of being replaced.
            if self._token is None:
                raise
        else:
            self._token = text
        self._read_at = now
        return self._token
