"""A plug-in that does not speak the protocol: a failed call, and never another error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from restow.aio import SystemClock
from restow.encryption.kms_channel import MESSAGE_BYTES_MAX, Channel, KmsCallFailed
from restow.encryption.kms_messages import DECRYPT, ENCRYPT, STATUS, KmsMethod


class Fixed(grpc.GenericRpcHandler):
    """Answers every call with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def answer(request: bytes, context: object) -> bytes:
            return self._answer

        return grpc.unary_unary_rpc_method_handler(answer)


@asynccontextmanager
async def answering(path: Path, answer: bytes) -> AsyncIterator[Channel]:
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((Fixed(answer),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    channel = Channel(str(path), timeout_seconds=5, clock=SystemClock())
    try:
        yield channel
    finally:
        await channel.close()
        await server.stop(None)


@pytest.mark.parametrize("method", [STATUS, ENCRYPT, DECRYPT])
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"\xff" * 100, "not a message of KMS v2"),
        (b"\x0a\xff\xff\xff\xff\x0f", "not a message of KMS v2"),
        (b"\x0a" + b"\0" * MESSAGE_BYTES_MAX, "larger than max"),
    ],
    ids=["no field", "a field without end", "too large"],
)
async def test_invalid_responses(
    tmp_path: Path, method: KmsMethod, answer: bytes, why: str
) -> None:
    """A response that cannot be decoded, or is too large, is a failed call with its reason."""
    async with answering(tmp_path / "s", answer) as channel:
        with pytest.raises(KmsCallFailed, match=why):
            await channel.call(method)
