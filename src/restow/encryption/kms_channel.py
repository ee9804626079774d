"""Calls a KMS v2 plug-in over its socket: three methods, each with a timeout.

A call fails in one of three ways: the plug-in did not respond, it rejected the request, or its
error is ambiguous. The caller decides how to react.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, Final

import grpc

from restow.aio import Clock
from restow.encryption.kms_messages import DECRYPT, ENCRYPT, STATUS, KmsMethod

MESSAGE_BYTES_MAX: Final = 256 * 1024
"""Far above the limits of a response: 1 KiB of key and 32 KiB of annotations."""
DETAILS_LENGTH_MAX: Final = 500
# gRPC finishes the work of a closed channel in the background.
_SETTLE_SECONDS: Final = 0.01


class KmsFailureCause(Enum):
    """Why a call failed."""

    SILENT = auto()
    """No response within the timeout."""
    REFUSED = auto()
    """The plug-in rejects this request permanently."""
    DOUBTFUL = auto()
    """Plug-ins use this status for both."""


_SILENT: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
    }
)
_REFUSED: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.DATA_LOSS,
    }
)


class KmsCallFailed(Exception):
    """A call to a plug-in failed. Not visible outside this package."""

    def __init__(self, cause: KmsFailureCause, details: str) -> None:
        super().__init__(details)
        self.cause = cause


class Channel:
    """A connection to one plug-in; it is opened, and reopened, on demand."""

    def __init__(self, socket: str, *, timeout_seconds: float, clock: Clock) -> None:
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        target = f"unix-abstract:{socket[1:]}" if socket.startswith("@") else f"unix:{socket}"
        self._channel = grpc.aio.insecure_channel(
            target,
            options=[
                (
                    "grpc.default_authority",
                    "localhost",
                ),  # plug-ins in Go reject a path as the authority
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                ("grpc.enable_retries", 0),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self._calls = {
            method.path: self._channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            for method in (STATUS, ENCRYPT, DECRYPT)
        }

    async def call(self, method: KmsMethod, **fields: Any) -> Any:
        """Call a method and return its response. Raises `KmsCallFailed`."""
        try:
            response = await self._calls[method.path](
                method.request(**fields), timeout=self._timeout_seconds
            )
        except grpc.RpcError as error:
            raise _failure_of(error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise KmsCallFailed(KmsFailureCause.SILENT, "the channel was closed") from error
        if response is None:  # gRPC logs the error of a response that it cannot decode
            text = "the response is not a message of KMS v2"
            raise KmsCallFailed(KmsFailureCause.DOUBTFUL, text)
        return response

    async def close(self) -> None:
        await self._channel.close()
        await self._clock.sleep(_SETTLE_SECONDS)


def _failure_of(error: grpc.RpcError) -> KmsCallFailed:
    if not isinstance(error, grpc.aio.AioRpcError):
        return KmsCallFailed(KmsFailureCause.SILENT, repr(error)[:DETAILS_LENGTH_MAX])
    code = error.code()
    text = f"{(error.details() or '')[:DETAILS_LENGTH_MAX]} ({code.name})"
    if code in _SILENT:
        return KmsCallFailed(KmsFailureCause.SILENT, text)
    return KmsCallFailed(
        KmsFailureCause.REFUSED if code in _REFUSED else KmsFailureCause.DOUBTFUL, text
    )
