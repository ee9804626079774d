"""An in-process OpenID Connect issuer over TLS with configurable answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric import ec

from restow.aio import Runtime
from restow.apimachinery.jwt import encode_base64
from restow.apimachinery.jwt_keys import SigningKey
from restow.httpserver import Listener, TlsFiles, TlsMaterial, header_block
from restow.httpserver.request import HttpRequest
from restow.httpserver.response import AppResult, HttpResponse
from tests.support.certificates import CertificateFiles

DISCOVERY = "/.well-known/openid-configuration"
JWKS = "/keys"
AUDIENCE = "restow"

Answer = Callable[[], AppResult]


def json(value: Any, *, code: int = 200) -> HttpResponse:
    return HttpResponse(
        code, orjson.dumps(value), header_block([("Content-Type", "application/json")])
    )


def redirect(to: str) -> HttpResponse:
    return HttpResponse(302, b"", header_block([("Location", to)]))


class FakeIssuer:
    """Call `start` before use and `stop` at the end. `answers` has the responses by path."""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._listener: Listener | None = None
        self.key = SigningKey(ec.generate_private_key(ec.SECP256R1()))
        self.asked: list[str] = []
        self.asked_something = asyncio.Event()
        self.answers: dict[str, Answer] = {
            DISCOVERY: lambda: json({"issuer": self.url, "jwks_uri": f"{self.url}{JWKS}"}),
            JWKS: lambda: json({"keys": [self.key.public.as_jwk()]}),
        }

    @property
    def url(self) -> str:
        assert self._listener is not None
        return f"https://localhost:{self._listener.port}"

    @property
    def ca_pem(self) -> str:
        return self._files.ca_file.read_text()

    async def start(self) -> None:
        files = TlsFiles(cert_file=self._files.cert_file, key_file=self._files.key_file)
        self._listener = await Listener.start(
            self._answer,
            bind="127.0.0.1",
            port=0,
            runtime=Runtime.system(),
            tls=TlsMaterial(files),
        )

    async def stop(self) -> None:
        assert self._listener is not None
        await self._listener.stop(grace_seconds=0)

    def rotate(self) -> None:
        """Replace the signing key."""
        self.key = SigningKey(ec.generate_private_key(ec.SECP256R1()))

    def _answer(self, request: HttpRequest) -> AppResult:
        self.asked.append(request.path)
        self.asked_something.set()
        answer = self.answers.get(request.path)
        return HttpResponse(404) if answer is None else answer()


def never() -> AppResult:
    """A response that never arrives."""
    return asyncio.get_running_loop().create_future()


def forged(header: dict[str, Any], claims: dict[str, Any], signature: bytes) -> str:
    parts = (orjson.dumps(header), orjson.dumps(claims), signature)
    return ".".join(encode_base64(each) if each else "" for each in parts)
