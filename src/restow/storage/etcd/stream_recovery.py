"""What to do between a watch stream that failed and the next: for the hub and the backlogs."""

from __future__ import annotations

import logging
from typing import Final

from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.errors import EtcdCallFailed, EtcdFailureCause

logger = logging.getLogger(__name__)

_LOG_FAILURES_FROM: Final = 3
"""One lost connection is daily life; several in a row are worth a line."""


async def recover(connection: EtcdConnection, failed: EtcdCallFailed, failures: int) -> None:
    """Do what a failed stream calls for, before the next is opened."""
    if failures == _LOG_FAILURES_FROM:
        logger.warning("watch of etcd keeps failing: %s", failed)
    if failed.cause is EtcdFailureCause.TOKEN_STALE:
        try:
            await connection.log_in()
        except EtcdCallFailed as refused:
            logger.warning("etcd refuses to log in again: %s", refused)


async def wait_after(connection: EtcdConnection, failures: int) -> None:
    """Back off, after so many failures before this one."""
    runtime = connection.runtime
    await runtime.clock.sleep(
        connection.options.reconnect.delay_seconds(failures, runtime.randomness)
    )
