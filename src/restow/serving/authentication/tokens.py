"""Bearer tokens that are known in advance: the administrator's, and those of a token file."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from restow.serving.context import User
from restow.serving.listener.request import Request

TOKEN_LENGTH_MAX: Final = 16_384
_SCHEME: Final = "bearer "


class TokenAuthenticator:
    """Knows tokens by their hash, so that the time of a look-up tells nothing about a token."""

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self._users = {_hash(token): user for token, user in tokens.items()}

    def authenticate(self, request: Request) -> User | None:
        token = bearer_token(request)
        return None if token is None else self.user_of(token)

    def user_of(self, token: str) -> User | None:
        """The user of a token, or None."""
        return self._users.get(_hash(token))


def bearer_token(request: Request) -> str | None:
    """The token of a request, if it has one."""
    line = request.headers.get("authorization")
    if line is None or line[: len(_SCHEME)].lower() != _SCHEME:
        return None
    token = line[len(_SCHEME) :].strip()
    return token if 0 < len(token) <= TOKEN_LENGTH_MAX else None


def read_token_file(path: Path) -> dict[str, User]:
    """Tokens from a file of kube-apiserver's form: token,user,uid[,"group,group"] per line."""
    found: dict[str, User] = {}
    with path.open(newline="") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if not row:
                continue
            if len(row) < 3 or not row[0] or not row[1]:
                raise ValueError(f"{path}, line {number}: token, user name and uid are needed")
            groups = tuple(filter(None, row[3].split(","))) if len(row) > 3 else ()
            found[row[0]] = User(row[1], groups, row[2])
    return found


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
