"""Signed tokens (JWT in the compact form of RFC 7515): read strictly, and written.

    eyJhbGciOiJFUzI1NiJ9 . eyJpc3MiOiJodHRwczovL2EifQ . MEUCIQ
    header                 claims                       signature

A token has one spelling here: canonical base64, no key twice, no number that is none. The header
says by which key and algorithm it claims to be signed; the keys themselves say which algorithm is
theirs (`jwt_keys`), so nobody's word turns a public key into a shared secret. What a header says of
where keys are to be found (`jku`, `x5u`, `jwk`) is never looked at.

Nothing in here shows a token, or a part of it, in an error. Not here: which claims are wanted.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Any, Final

from restow.apimachinery import codec
from restow.apimachinery.status_error import StatusError

TOKEN_LENGTH_MAX: Final = 16_384
KEY_ID_LENGTH_MAX: Final = 256
EPOCH_SECONDS_MAX: Final = 253_402_300_799
"""The end of the year 9999: no moment is later."""

_BASE64: Final = re.compile(r"[A-Za-z0-9_-]+")


class JwtInvalid(Exception):
    """Why a token is good for nothing; without any of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jwt:
    """A token that was read. Nobody has looked at its signature yet."""

    algorithm: str
    key_id: str
    """Empty: it does not say which."""
    claims: dict[str, Any] = field(repr=False)
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def read(text: str) -> Jwt:
    """The parts of a token. Raises JwtInvalid."""
    if len(text) > TOKEN_LENGTH_MAX:
        raise JwtInvalid("it is too long")
    parts = text.split(".", 3)
    if len(parts) != 3:
        raise JwtInvalid("it does not have three parts")
    header, claims = _object(parts[0]), _object(parts[1])
    algorithm, key_id = header.get("alg"), header.get("kid", "")
    if not isinstance(algorithm, str) or not isinstance(key_id, str):
        raise JwtInvalid("its header does not say how it is signed")
    if len(key_id) > KEY_ID_LENGTH_MAX:
        raise JwtInvalid("the name of its key is too long")
    if "crit" in header:
        raise JwtInvalid("its header asks for what is not known here")
    return Jwt(
        algorithm=algorithm,
        key_id=key_id,
        claims=claims,
        signed=f"{parts[0]}.{parts[1]}".encode(),
        signature=decode_base64(parts[2]),
    )


def moment(claims: dict[str, Any], name: str) -> float | None:
    """A claim that is a moment, in seconds of the epoch; None: it is not there.

    Raises JwtInvalid for what is none.
    """
    if name not in claims:
        return None
    value = claims[name]
    if type(value) not in (int, float) or not 0 <= value <= EPOCH_SECONDS_MAX:
        raise JwtInvalid(f"its claim {name} is no moment")
    return float(value)


def text(claims: dict[str, Any], name: str) -> str:
    """A claim that is a text; empty: it is not there. Raises JwtInvalid for what is none."""
    value = claims.get(name, "")
    if not isinstance(value, str):
        raise JwtInvalid(f"its claim {name} is no text")
    return value


def audiences(claims: dict[str, Any]) -> tuple[str, ...]:
    """Whom a token is for: one text, or a list of them. Raises JwtInvalid for what is neither."""
    value = claims.get("aud", [])
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise JwtInvalid("its claim aud is neither a text nor a list of texts")
    return tuple(value)


def encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64(text: str) -> bytes:
    """The bytes of the one right spelling. Raises JwtInvalid for all others."""
    if _BASE64.fullmatch(text) is None:
        raise JwtInvalid("a part of it is not base64")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise JwtInvalid("a part of it is not base64") from error
    # The last character has bits that say nothing; if they could be any, a token had many names.
    if encode_base64(data) != text:
        raise JwtInvalid("a part of it is not base64 as it is written")
    return data


def _object(part: str) -> dict[str, Any]:
    data = decode_base64(part)
    try:
        decoded = codec.decode(data, size_max=TOKEN_LENGTH_MAX)
    except (StatusError, RecursionError):
        raise JwtInvalid("a part of it is no JSON object") from None
    if decoded.duplicates:
        raise JwtInvalid("a part of it says something twice")
    return decoded.value
