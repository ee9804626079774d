"""Saves the database of one member as a file: byte for byte as `etcdctl snapshot save` does.

etcd sends its database as of one moment, followed by a SHA-256. A member may lag behind the others,
so the file is compared with a revision that the whole cluster had committed before: a backup must
contain everything that was committed before it began.

Not here: the content of the file (`snapshot_file`), and where it is stored (`storage.backup`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import IO, Final

import grpc

from restow.aio import Runtime
from restow.storage.errors import StorageError, StoreDamaged, Unavailable
from restow.storage.etcd.connection import EtcdConnection, is_cancelled
from restow.storage.etcd.errors import (
    EtcdCallFailed,
    EtcdFailureCause,
    failure_of,
    translate_opening,
)
from restow.storage.etcd.messages import RANGE, RangeRequest
from restow.storage.etcd.options import EtcdOptions
from restow.storage.interface import Revision

HASH_BYTES: Final = 32
DISK_SECTOR_BYTES: Final = 512
"""A database is a multiple of this; etcd itself derives from it whether a hash follows."""
SNAPSHOT_SECONDS_MAX: Final = 24 * 3600.0
PIECE_SECONDS_MAX: Final = 60.0
"""Timeout between two pieces of a snapshot."""


async def save_snapshot(
    options: EtcdOptions,
    runtime: Runtime,
    file: IO[bytes],
    *,
    on_progress: Callable[[int, int], None],
) -> Revision:
    """Write a snapshot; return a revision that it contains at least.

    `on_progress` gets the number of bytes done, and the total.
    """
    connection = EtcdConnection(options, runtime)
    try:
        await connection.log_in()
        answer = await connection.call(
            RANGE,
            RangeRequest(key=b"\0", count_only=True),
            timeout_seconds=options.request_timeout_seconds,
            repeatable=True,
        )
        await _receive(connection, file, on_progress)
    except EtcdCallFailed as failed:
        raise _translate(failed) from failed
    finally:
        await connection.close()
    return Revision(answer.header.revision)


async def _receive(
    connection: EtcdConnection, file: IO[bytes], on_progress: Callable[[int, int], None]
) -> None:
    """Receive the pieces. The hash at the end covers everything before it."""
    digest, last, done = hashlib.sha256(), b"", 0
    call = connection.open_snapshot(timeout_seconds=SNAPSHOT_SECONDS_MAX)
    try:
        while True:
            async with connection.runtime.clock.timeout(PIECE_SECONDS_MAX):
                piece = await call.read()
            if piece is grpc.aio.EOF:
                break
            file.write(piece.blob)
            done += len(piece.blob)
            held = last + piece.blob
            digest.update(held[:-HASH_BYTES])
            last = held[-HASH_BYTES:]
            on_progress(done, done + int(piece.remaining_bytes))
    except grpc.RpcError as error:
        raise failure_of(error) from error
    except TimeoutError:
        raise EtcdCallFailed(
            EtcdFailureCause.LOST, f"silent for {PIECE_SECONDS_MAX:.0f} s"
        ) from None
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise EtcdCallFailed(EtcdFailureCause.LOST, "the channel was closed") from None
    finally:
        call.cancel()
    if done % DISK_SECTOR_BYTES != HASH_BYTES or digest.digest() != last:
        raise StoreDamaged("etcd: the snapshot does not match its SHA-256: try again")


def _translate(failed: EtcdCallFailed) -> StorageError:
    if failed.cause is EtcdFailureCause.LOST:
        return Unavailable(f"etcd: the snapshot was interrupted: {failed.details}")
    return translate_opening(failed)
