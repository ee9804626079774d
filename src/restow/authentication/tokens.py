"""Bearer tokens: how a request shows one, and those that are known in advance: the
administrator's, and those of a token file.

    Authorization: Bearer TOKEN
    Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.BASE64URL, v4.channel.k8s.io

The second is how a page that opens a WebSocket says who it is. Not here: signed tokens.
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
"""How long a token that was taken out of its file may still be good on an open connection."""
BEARER_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."

_SCHEME: Final = "bearer "
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")

logger = logging.getLogger(__name__)


class TokenAuthenticator:
    """Knows tokens by their hash, so that the time of a look-up tells nothing about a token."""

    keeps_seconds: Final = KEPT_SECONDS

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self.take(tokens)

    def take(self, tokens: Mapping[str, User]) -> None:
        """Know these from now on."""
        self._users = {_hash(token): user for token, user in tokens.items()}

    def authenticate(self, request: HttpRequest) -> User | None:
        token = bearer_token(request)
        return None if token is None else self.user_of(token)

    def user_of(self, token: str) -> User | None:
        """The user of a token, or None."""
        return self._users.get(_hash(token))

    def credential_of(self, request: HttpRequest) -> Credential:
        return Credential(token_hash=_hash(bearer_token(request) or ""))

    @property
    def hashes(self) -> Mapping[bytes, object]:
        """Of all tokens that are good now; another object when there are others."""
        return self._users


def bearer_token(request: HttpRequest) -> str | None:
    """The token of a request, if it has one. Raises 401 for one that cannot be read."""
    line = request.headers.get("authorization")
    if line is None:
        return _protocol_token(request)
    if line[: len(_SCHEME)].lower() != _SCHEME:
        return None
    token = line[len(_SCHEME) :].strip()
    return token if 0 < len(token) <= TOKEN_LENGTH_MAX else None


def shows_token(request: HttpRequest) -> bool:
    """Whether a request means to say who it is, well or badly."""
    return request.headers.get("authorization") is not None or _shows_protocol(request)


def _shows_protocol(request: HttpRequest) -> bool:
    headers = request.headers
    return (headers.get("upgrade") or "").lower() == "websocket" and any(
        BEARER_PROTOCOL in line for line in headers.get_all("sec-websocket-protocol")
    )


def _protocol_token(request: HttpRequest) -> str | None:
    """The token among the protocols of a WebSocket. There must be another protocol, since the one
    that is chosen is told back."""
    if not _shows_protocol(request):
        return None
    lines = ",".join(request.headers.get_all("sec-websocket-protocol"))
    protocols = [each.strip() for each in lines.split(",")]
    shown = [each for each in protocols if each.startswith(BEARER_PROTOCOL)]
    encoded = shown[0][len(BEARER_PROTOCOL) :] if len(shown) == 1 else ""
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
    """Tokens from a file of kube-apiserver's form: token,user,uid[,"group,group"] per line.

    Raises ValueError that names the line, and never a token; OSError, also for a file that is for
    others to read or to write.
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
        _take_row(found, row, place=f"{path}, line {rows.line_num}")


def _take_row(found: dict[str, User], row: list[str], *, place: str) -> None:
    if not any(row):
        return
    if len(row) < 3:
        raise ValueError(
            f"{place}: at least 3 columns (token, user name, user uid) are needed, found {len(row)}"
        )
    token, name, uid = row[:3]
    if not token:
        # As the reference does: a place that is held free is no way in.
        logger.warning("%s: the token is empty; the line is left out", place)
        return
    if not name:
        raise ValueError(f"{place}: the user name is empty")
    if token != token.strip() or not token.isprintable() or len(token) > TOKEN_LENGTH_MAX:
        raise ValueError(f"{place}: no header could carry this token")
    if token in found:
        # Which user it stands for would be a matter of the order of lines.
        raise ValueError(f"{place}: the token is there twice")
    groups = tuple(filter(None, row[3].split(","))) if len(row) > 3 else ()
    found[token] = User(name, groups, uid)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
