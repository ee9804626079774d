"""Signed tokens (JWT in the compact serialization of RFC 7515): strict parsing, and encoding.

    eyJhbGciOiJFUzI1NiJ9 . eyJpc3MiOiJodHRwczovL2EifQ . MEUCIQ
    header                 claims                       signature

Each token has exactly one accepted encoding: canonical base64, no duplicate keys, no invalid
numbers. The header claims a key and an algorithm; each key allows only its own algorithms
(`jwt_keys`), so a public key cannot be misused as a shared secret. Header fields that locate keys
(`jku`, `x5u`, `jwk`) are ignored.

Error messages contain no part of a token. Not here: which claims are required.
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
"""The end of the year 9999, the latest accepted time."""

_BASE64: Final = re.compile(r"[A-Za-z0-9_-]+")


class JwtInvalid(Exception):
    """A token is invalid. The message contains the reason, and no part of the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jwt:
    """A parsed token. Its signature is not verified yet."""

    algorithm: str
    key_id: str
    """Empty if the header names no key."""
    claims: dict[str, Any] = field(repr=False)
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def read(text: str) -> Jwt:
    """Parse a token. Raises JwtInvalid."""
    if len(text) > TOKEN_LENGTH_MAX:
        raise JwtInvalid("it is too long")
    parts = text.split(".", 3)
    if len(parts) != 3:
        raise JwtInvalid("it does not have three parts")
    header, claims = _object(parts[0]), _object(parts[1])
    algorithm, key_id = header.get("alg"), header.get("kid", "")
    if not isinstance(algorithm, str) or not isinstance(key_id, str):
        raise JwtInvalid("its header has no valid alg or kid")
    if len(key_id) > KEY_ID_LENGTH_MAX:
        raise JwtInvalid("its key ID is too long")
    if "crit" in header:
        raise JwtInvalid("its header has an unsupported critical extension")
    return Jwt(
        algorithm=algorithm,
        key_id=key_id,
        claims=claims,
        signed=f"{parts[0]}.{parts[1]}".encode(),
        signature=decode_base64(parts[2]),
    )


def moment(claims: dict[str, Any], name: str) -> float | None:
    """Return a time claim in seconds since the epoch; None if it is missing.

    Raises JwtInvalid if it is not a time.
    """
    if name not in claims:
        return None
    value = claims[name]
    if type(value) not in (int, float) or not 0 <= value <= EPOCH_SECONDS_MAX:
        raise JwtInvalid(f"its claim {name} is not a valid time")
    return float(value)


def text(claims: dict[str, Any], name: str) -> str:
    """Return a string claim; empty if it is missing. Raises JwtInvalid if it is not a string."""
    value = claims.get(name, "")
    if not isinstance(value, str):
        raise JwtInvalid(f"its claim {name} is not a string")
    return value


def audiences(claims: dict[str, Any]) -> tuple[str, ...]:
    """Return the audiences of a token. Raises JwtInvalid unless they are a string or a list of
    strings.
    """
    value = claims.get("aud", [])
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise JwtInvalid("its claim aud is neither a string nor a list of strings")
    return tuple(value)


def encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64(text: str) -> bytes:
    """Decode canonical base64url. Raises JwtInvalid for any other encoding."""
    if _BASE64.fullmatch(text) is None:
        raise JwtInvalid("a part of it is not base64")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise JwtInvalid("a part of it is not base64") from error
    # The last character has unused bits; if these were ignored, a token would have several
    # encodings.
    if encode_base64(data) != text:
        raise JwtInvalid("a part of it is not canonical base64")
    return data


def _object(part: str) -> dict[str, Any]:
    data = decode_base64(part)
    try:
        decoded = codec.decode(data, size_max=TOKEN_LENGTH_MAX)
    except (StatusError, RecursionError):
        raise JwtInvalid("a part of it is not a JSON object") from None
    if decoded.duplicates:
        raise JwtInvalid("a part of it has duplicate keys")
    return decoded.value
