"""The database of one member as a file: what `etcdctl snapshot save` writes, byte for byte.

etcd sends its database as it is at one moment, and behind it a SHA-256 of it. A member may lag
behind the others, so the file is compared with a revision that the whole cluster had agreed on
before: a backup that does not hold what was committed before it began is none.

Not here: what is in the file (`storage.census.snapshot`), and where it is kept (`storage.backup`).
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
"""A database is a multiple of this; by that etcd itself tells whether a hash follows."""
SNAPSHOT_SECONDS_MAX: Final = 24 * 3600.0
PIECE_SECONDS_MAX: Final = 60.0
"""How long etcd may be silent within a snapshot."""


async def save_snapshot(
    options: EtcdOptions,
    runtime: Runtime,
    file: IO[bytes],
    *,
    on_progress: Callable[[int, int], None],
) -> Revision:
    """Write a snapshot; the revision that it holds at least.

    `on_progress` is told how many bytes are done, and of how many.
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
    """Take the pieces as they come. The hash at the end is of all before it."""
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
        return Unavailable(f"etcd: the snapshot broke off: {failed.details}")
    return translate_opening(failed)
