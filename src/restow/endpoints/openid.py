"""OpenID discovery of the service account issuer, for relying parties that verify tokens
themselves.

    /.well-known/openid-configuration   the issuer, and the address of its keys
    /openid/v1/jwks                     the public keys

Not here: authorization of these paths.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import orjson

from restow.apimachinery.jwt_keys import KeySet
from restow.httpserver.response import NOSNIFF_LINE, HttpResponse, header_block
from restow.request.context import Context
from restow.request.responses import respond_text

CONFIGURATION_PATH: Final = "/.well-known/openid-configuration"
KEYS_PATH: Final = "/openid/v1/jwks"
FIRST_SEGMENTS: Final = (".well-known", "openid")
CACHE_SECONDS: Final = 3600

_COMMON: Final = (("Cache-Control", f"public, max-age={CACHE_SECONDS}"), NOSNIFF_LINE)
_CONFIGURATION_HEADERS: Final = header_block([("Content-Type", "application/json"), *_COMMON])
_KEYS_HEADERS: Final = header_block([("Content-Type", "application/jwk-set+json"), *_COMMON])


class OpenIdDocuments:
    """Both documents. Call it with a request for one of them."""

    def __init__(self, *, issuer: str, keys: KeySet, address: str, jwks_uri: str = "") -> None:
        """`address` is that of this server; the keys are below it unless `jwks_uri` is set."""
        self._address = address
        self._issuer = issuer
        self._keys = keys
        self._jwks_uri = jwks_uri
        parts = urlsplit(issuer)
        # Clients can discover only an issuer that is an https URL.
        self.is_public: Final = parts.scheme == "https" and not (parts.query or parts.fragment)

    async def __call__(self, context: Context) -> HttpResponse:
        path = context.info.path
        if not self.is_public or path not in (CONFIGURATION_PATH, KEYS_PATH):
            return respond_text(404, "404 page not found\n")
        if context.info.method not in ("GET", "HEAD"):
            return respond_text(405, "405 method not allowed\n")
        if path == KEYS_PATH:
            return HttpResponse(200, orjson.dumps(self._keys.as_jwks()), _KEYS_HEADERS)
        return HttpResponse(200, self._configuration(), _CONFIGURATION_HEADERS)

    def take_address(self, address: str) -> None:
        """Set the address of this server: the port is known only once it listens."""
        self._address = address

    @property
    def paths(self) -> tuple[str, ...]:
        return (CONFIGURATION_PATH, KEYS_PATH) if self.is_public else ()

    def _configuration(self) -> bytes:
        return orjson.dumps(
            {
                "issuer": self._issuer,
                "jwks_uri": self._jwks_uri or f"https://{self._address}{KEYS_PATH}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": sorted(
                    {key.algorithm for key in self._keys.keys}
                ),
            }
        )
