"""The authentication headers: a token, from a file or a credential plugin, or user and password.

A token file is read again periodically, because tokens are rotated.

Not here: client certificates; they are part of the TLS connection.
"""

from __future__ import annotations

import base64
from typing import Final

from restow.aio import Clock
from restow.client.config import ClientConfig, read_text
from restow.client.errors import ConfigInvalid
from restow.client.exec_plugin import PluginCredential

# A kubelet rotates a token long before it expires; client-go reads it at the same interval.
TOKEN_FILE_SECONDS: Final = 60.0


class ClientCredentials:
    """The headers for the user of one configuration."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._token = config.token
        self._read_at: float | None = None
        self._plugin = config.plugin
        self._from_plugin = PluginCredential()

    @property
    def certificate(self) -> tuple[str, str] | None:
        """The client certificate and key that the plugin returned."""
        return self._from_plugin.certificate

    async def prepare(self) -> None:
        """Run the credential plugin, if there is one and its credential is missing or expired.

        Raises CredentialsFailed.
        """
        if self._plugin is not None:
            self._from_plugin = await self._plugin.current(self._clock)

    def headers(self) -> list[tuple[str, str]]:
        """The headers of the next request. ConfigInvalid if a token file was never readable."""
        token = self._current_token()
        found = [] if token is None else [("Authorization", f"Bearer {token}")]
        if self._config.basic is not None:
            pair = base64.b64encode(":".join(self._config.basic).encode()).decode()
            found = [("Authorization", f"Basic {pair}")]
        return [*found, *self._config.impersonation]

    def refused(self) -> None:
        """The server returned 401: read the file again, or run the plugin again, before the next
        request."""
        self._read_at = None
        if self._plugin is not None:
            self._plugin.refused(self._from_plugin, self._clock)

    def _current_token(self) -> str | None:
        if self._plugin is not None:
            return self._from_plugin.token
        path = self._config.token_file
        if path is None:
            return self._token
        now = self._clock.monotonic()
        if self._read_at is not None and now - self._read_at < TOKEN_FILE_SECONDS:
            return self._token
        try:
            text = read_text(path, "tokenFile", self._config.source).strip()
            if not text or not text.isascii() or not text.isprintable():
                raise ConfigInvalid(
                    f"{self._config.source}: tokenFile {path} does not contain a token"
                )
        except ConfigInvalid:
            # The file may be in the process of being replaced.
            if self._token is None:
                raise
        else:
            self._token = text
        self._read_at = now
        return self._token
