"""A KMS v2 plugin for tests: a real gRPC server on a socket, with configurable faults.

It encrypts with AES-GCM under keys that are derived from one secret and the id of the key, so that
two plugins with one secret can decrypt each other's values. Not for production use.

    python -m tests.support.kms_plugin SOCKET [--key-id ID] [--secret HEX]

The process reads commands from its standard input and answers `ok`: `rotate ID` uses another key,
`forget ID` rejects decryption with one, `fail`, `hang`, `garbage`, `unhealthy` and `heal` set its
behaviour. It ends with its input.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final, Literal, Self

import grpc
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from restow.aio import Clock, Randomness, Runtime
from restow.encryption.kms_messages import DECRYPT, ENCRYPT, SERVICE, STATUS, KmsMethod

ANNOTATION: Final = "version.kms.restow.dev"
HANG_SECONDS: Final = 60.0
_NONCE_BYTES: Final = 12

Mood = Literal["well", "fail", "hang", "garbage", "unhealthy"]


class KmsPlugin:
    """A plugin in this process. Its mood and its key may be changed at any time."""

    def __init__(
        self,
        socket: str,
        runtime: Runtime,
        *,
        key_id: str = "key-1",
        secret: bytes = b"not a secret",
    ) -> None:
        self.socket = socket
        self.key_id = key_id
        self.mood: Mood = "well"
        self.decrypts_badly: Mood = "well"
        """Like the mood, but only for decryption."""
        self.forgotten: set[str] = set()
        self.calls: Counter[str] = Counter()
        self.annotations: dict[str, bytes] = {ANNOTATION: b"1"}
        self._secret = secret
        self._clock: Clock = runtime.clock
        self._randomness: Randomness = runtime.randomness
        self._server: Any = None

    @property
    def endpoint(self) -> str:
        """The endpoint for an EncryptionConfiguration."""
        return f"unix://{self.socket}"

    async def start(self) -> None:
        _remove(self.socket)
        self._server = grpc.aio.server()
        handlers = {
            name: _handler(method, answer)
            for name, method, answer in (
                ("Status", STATUS, self._status),
                ("Encrypt", ENCRYPT, self._encrypt),
                ("Decrypt", DECRYPT, self._decrypt),
            )
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _status(self, _: Any, context: Any) -> Any:
        self.calls["Status"] += 1
        await self._misbehave(self.mood, context)
        if self.mood == "garbage":
            return STATUS.response(version="v9", healthz="ok", key_id="")
        healthz = "not today" if self.mood == "unhealthy" else "ok"
        return STATUS.response(version="v2", healthz=healthz, key_id=self.key_id)

    async def _encrypt(self, request: Any, context: Any) -> Any:
        self.calls["Encrypt"] += 1
        await self._misbehave(self.mood, context)
        if self.mood == "garbage":
            return ENCRYPT.response(ciphertext=b"x" * 5000, key_id=self.key_id)
        nonce = self._randomness.token_bytes(_NONCE_BYTES)
        sealed = self._cipher(self.key_id).encrypt(nonce, request.plaintext, None)
        response = ENCRYPT.response(ciphertext=nonce + sealed, key_id=self.key_id)
        for key, value in self.annotations.items():
            response.annotations.add(key=key, value=value)
        return response

    async def _decrypt(self, request: Any, context: Any) -> Any:
        self.calls["Decrypt"] += 1
        mood = self.mood if self.mood != "well" else self.decrypts_badly
        await self._misbehave(mood, context)
        if mood == "garbage":
            return DECRYPT.response(plaintext=self._randomness.token_bytes(32))
        if request.key_id in self.forgotten:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no key {request.key_id}")
        plain = self._open(request)
        if plain is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "that is not ours")
        return DECRYPT.response(plaintext=plain)

    def _open(self, request: Any) -> bytes | None:
        if {each.key: each.value for each in request.annotations} != self.annotations:
            return None
        nonce, sealed = request.ciphertext[:_NONCE_BYTES], request.ciphertext[_NONCE_BYTES:]
        try:
            return self._cipher(request.key_id).decrypt(nonce, sealed, None)
        except (InvalidTag, ValueError):
            return None

    async def _misbehave(self, mood: Mood, context: Any) -> None:
        if mood == "fail":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the vault is sealed")
        if mood == "hang":
            await self._clock.sleep(HANG_SECONDS)

    def _cipher(self, key_id: str) -> AESGCM:
        return AESGCM(hashlib.sha256(self._secret + b"/" + key_id.encode()).digest())


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)  # left over by a killed process


def _handler(method: KmsMethod, answer: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=method.request.FromString,
        response_serializer=method.response.SerializeToString,
    )


def _obey(plugin: KmsPlugin, line: str) -> bool:
    match line.split():
        case ["rotate", key_id]:
            plugin.key_id = key_id
        case ["forget", key_id]:
            plugin.forgotten.add(key_id)
        case ["fail" | "hang" | "garbage" | "unhealthy" as mood]:
            plugin.mood = mood
        case ["heal"]:
            plugin.mood = "well"
            plugin.forgotten.clear()
        case _:
            return False
    return True


async def _serve(options: argparse.Namespace) -> None:
    plugin = KmsPlugin(
        options.socket,
        Runtime.system(),
        key_id=options.key_id,
        secret=bytes.fromhex(options.secret),
    )
    async with plugin:
        print("ready", flush=True)  # noqa: T201 - the parent process waits for this
        while line := await asyncio.to_thread(sys.stdin.readline):
            print("ok" if _obey(plugin, line) else "what?", flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description="A KMS v2 plugin for tests.")
    parser.add_argument("socket")
    parser.add_argument("--key-id", default="key-1")
    parser.add_argument("--secret", default="00")
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
