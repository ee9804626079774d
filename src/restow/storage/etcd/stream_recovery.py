"""Recovery between a failed watch stream and the next: for the hub and the backlogs."""

from __future__ import annotations

import logging
from typing import Final

from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.errors import EtcdCallFailed, EtcdFailureCause

logger = logging.getLogger(__name__)

_LOG_FAILURES_FROM: Final = 3
"""Failures in a row after which a warning is logged; a single lost connection is normal."""


async def recover(connection: EtcdConnection, failed: EtcdCallFailed, failures: int) -> None:
    """Do what the failure requires before the next stream is opened."""
    if failures == _LOG_FAILURES_FROM:
        logger.warning("watch of etcd keeps failing: %s", failed)
    if failed.cause is EtcdFailureCause.TOKEN_STALE:
        try:
            await connection.log_in()
        except EtcdCallFailed as refused:
            logger.warning("login to etcd failed: %s", refused)


async def wait_after(connection: EtcdConnection, failures: int) -> None:
    """Back off, depending on the number of earlier failures."""
    runtime = connection.runtime
    await runtime.clock.sleep(
        connection.options.reconnect.delay_seconds(failures, runtime.randomness)
    )
