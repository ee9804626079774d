"""Continue tokens: the position of the next page of a list, signed so that clients cannot forge it.

A token contains the revision of the list and the next key. It is bound to the resource, the
namespace and the selectors, and signed with a key that all servers of a cluster share, so that any
of them can continue the list.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, NamedTuple

import orjson

from restow.apimachinery import status

TOKEN_LENGTH_MAX: Final = 4096
INCONSISTENT: Final = -1
"""As revision: the list could not continue at its own revision, and continues at the latest one."""

_SIGNATURE_BYTES: Final = 12


class PageStart(NamedTuple):
    """The start of the next page: the revision to read at, and the first key."""

    revision: int
    start: str
    note: str = ""
    """State from previous pages that a server needs, if any."""


class ContinueTokens:
    """Creates and verifies tokens."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, place: PageStart, *, bound_to: str) -> str:
        """A token for the list that `bound_to` identifies."""
        fields = {"v": "meta.k8s.io/v1", "rv": place.revision, "start": place.start}
        if place.note:
            fields["note"] = place.note
        body = orjson.dumps(fields)
        signed = self._sign(body, bound_to) + body
        return base64.urlsafe_b64encode(signed).decode().rstrip("=")

    def read(self, token: str, *, bound_to: str) -> PageStart:
        """The position in a token. Raises 400 unless it was made for this list."""
        if len(token) > TOKEN_LENGTH_MAX:
            raise status.bad_request("continue key is not valid: too long")
        try:
            padded = token + "=" * (-len(token) % 4)
            signed = base64.b64decode(padded.encode(), altchars=b"-_", validate=True)
            signature, body = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
            if not hmac.compare_digest(signature, self._sign(body, bound_to)):
                raise ValueError("not signed here, or for another list")
            fields = orjson.loads(body)
            return PageStart(int(fields["rv"]), str(fields["start"]), str(fields.get("note", "")))
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise status.bad_request(f"continue key is not valid: {error}") from error

    def _sign(self, body: bytes, bound_to: str) -> bytes:
        message = bound_to.encode("utf-8", "surrogatepass") + b"\0" + body
        return hmac.new(self._secret, message, hashlib.sha256).digest()[:_SIGNATURE_BYTES]
