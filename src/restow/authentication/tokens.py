"""Bearer tokens in requests, and static tokens: the administrator's and those of a token file.

    Authorization: Bearer TOKEN
    Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.BASE64URL, v4.channel.k8s.io

Browsers use the second form for WebSockets, where they cannot set other headers.

Not here: signed tokens.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from restow.apimachinery import status
from restow.authentication.credentials import Credential
from restow.httpserver.request import HttpRequest
from restow.request.context import User
from restow.storage.private_files import read_kept

TOKEN_LENGTH_MAX: Final = 16_384
TOKEN_FILE_BYTES_MAX: Final = 1024 * 1024
KEPT_SECONDS: Final = 10.0
"""How long a token removed from its file may still be valid on an open connection."""
BEARER_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."

_SCHEME: Final = "bearer "
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")

logger = logging.getLogger(__name__)


class TokenAuthenticator:
    """Authenticates static tokens. They are looked up by hash, so that timing reveals nothing."""

    keeps_seconds: Final = KEPT_SECONDS

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self.take(tokens)

    def take(self, tokens: Mapping[str, User]) -> None:
        """Replace the tokens."""
        self._users = {_hash(token): user for token, user in tokens.items()}

    def authenticate(self, request: HttpRequest) -> User | None:
        token = bearer_token(request)
        return None if token is None else self.user_of(token)

    def user_of(self, token: str) -> User | None:
        """Return the user of a token, or None."""
        return self._users.get(_hash(token))

    def credential_of(self, request: HttpRequest) -> Credential:
        return Credential(token_hash=_hash(bearer_token(request) or ""))

    @property
    def hashes(self) -> Mapping[bytes, object]:
        """The hashes of all valid tokens; a new object after each change."""
        return self._users


def bearer_token(request: HttpRequest) -> str | None:
    """Return the bearer token of a request, or None. Raises 401 for an unreadable one."""
    line = request.headers.get("authorization")
    if line is None:
        return _protocol_token(request)
    if line[: len(_SCHEME)].lower() != _SCHEME:
        return None
    token = line[len(_SCHEME) :].strip()
    return token if 0 < len(token) <= TOKEN_LENGTH_MAX else None


def has_token(request: HttpRequest) -> bool:
    """Return whether a request contains a bearer token or an invalid Authorization header."""
    return request.headers.get("authorization") is not None or _has_token_protocol(request)


def _has_token_protocol(request: HttpRequest) -> bool:
    headers = request.headers
    return (headers.get("upgrade") or "").lower() == "websocket" and any(
        BEARER_PROTOCOL in line for line in headers.get_all("sec-websocket-protocol")
    )


def _protocol_token(request: HttpRequest) -> str | None:
    """Return the token among the WebSocket protocols. Another protocol is required, because the
    chosen one is sent back."""
    if not _has_token_protocol(request):
        return None
    lines = ",".join(request.headers.get_all("sec-websocket-protocol"))
    protocols = [each.strip() for each in lines.split(",")]
    token_protocols = [each for each in protocols if each.startswith(BEARER_PROTOCOL)]
    encoded = token_protocols[0][len(BEARER_PROTOCOL) :] if len(token_protocols) == 1 else ""
    if len(protocols) < 2 or not 0 < len(encoded) <= 2 * TOKEN_LENGTH_MAX:
        raise status.unauthorized()
    if _BASE64URL.fullmatch(encoded) is None:
        raise status.unauthorized()
    try:
        token = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise status.unauthorized() from None
    if not 0 < len(token) <= TOKEN_LENGTH_MAX:
        raise status.unauthorized()
    return token


def read_token_file(path: Path) -> dict[str, User]:
    """Read a token file of kube-apiserver's format: token,user,uid[,"group,group"] per line.

    Raises ValueError with the line number, never a token; OSError, also for a file that others may
    read or write.
    """
    data = read_kept(path, bytes_max=TOKEN_FILE_BYTES_MAX, is_secret=True)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {number}: not UTF-8") from None
    found: dict[str, User] = {}
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise ValueError(f"{path}, line {rows.line_num}: {error}") from None
        if row is None:
            return found
        _add_row(found, row, location=f"{path}, line {rows.line_num}")


def _add_row(found: dict[str, User], row: list[str], *, location: str) -> None:
    if not any(row):
        return
    if len(row) < 3:
        raise ValueError(
            f"{location}: at least 3 columns (token, user name, user uid) are needed, "
            f"found {len(row)}"
        )
    token, name, uid = row[:3]
    if not token:
        # As in kube-apiserver: an empty token is ignored.
        logger.warning("%s: ignored a line with an empty token", location)
        return
    if not name:
        raise ValueError(f"{location}: the user name is empty")
    if token != token.strip() or not token.isprintable() or len(token) > TOKEN_LENGTH_MAX:
        raise ValueError(
            f"{location}: the token contains spaces or control characters or is too long"
        )
    if token in found:
        # Otherwise the user would depend on the order of lines.
        raise ValueError(f"{location}: duplicate token")
    groups = tuple(filter(None, row[3].split(","))) if len(row) > 3 else ()
    found[token] = User(name, groups, uid)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
