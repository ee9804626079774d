"""Encryption at rest of one server: loads its configuration file and reloads it on changes.

The file is read first at the start, and followed while the server runs. New keys are used only if
they can decrypt everything that may be stored; then they are registered, like a version change,
and keys that only the old file had are dropped once all servers have the new ones.

Not here: the format of the file (`restow.encryption`), and which key is used when
(`restow.storageversion`).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from restow.aio import Runtime
from restow.apiserver.kms_probes import StoredProbes
from restow.encryption.decrypted_storage import DecryptedStorage
from restow.encryption.interface import Keys
from restow.encryption.key_reload import ReloadedKeys
from restow.endpoints.health import HealthChecks
from restow.request.metrics import Metrics
from restow.storage.errors import OpenRefused, StorageError
from restow.storage.interface import Storage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.errors import CoordinationError

HEALTH_CHECK: Final = "kms-providers"

logger = logging.getLogger(__name__)


class Encryption:
    """The keys of a server, and its store decrypted with them."""

    def __init__(self, keys: ReloadedKeys, storage: Storage, runtime: Runtime) -> None:
        self.keys: Final = keys
        self.storage: Final = DecryptedStorage(storage, keys)
        self._tasks = runtime.tasks("encryption")

    @classmethod
    async def load(cls, path: Path, storage: Storage, runtime: Runtime) -> Encryption:
        """Read the file. Raises `OpenRefused` that names the problem."""
        keys = ReloadedKeys(str(path), runtime, probes=StoredProbes(storage))
        await keys.load()
        return cls(keys, storage, runtime)

    def follow(self, coordinator: Coordinator) -> None:
        """Apply changes of the file from now on."""

        async def check(keys: Keys) -> None:
            try:
                await coordinator.check_keys(keys)
            except CoordinationError as error:
                raise OpenRefused(str(error)) from error

        async def publish() -> None:
            try:
                await coordinator.membership.renew()
            except StorageError as error:
                logger.warning(
                    "cannot publish the keys on the lease now, retrying within seconds: %s", error
                )

        self.keys.connect(check=check, publish=publish)
        self._tasks.spawn_loop("follow the configuration", self.keys.follow())

    def publish(self, health: HealthChecks, metrics: Metrics, coordinator: Coordinator) -> None:
        """Add the health check and the metrics."""
        health.add(HEALTH_CHECK, lambda: self.keys.problem() or None, "healthz", "readyz")
        metrics.gauge(
            "restow_encryption_config_in_force",
            "Whether the current content of the encryption configuration file is in effect: 1 or"
            " 0.",
            (),
            lambda: [((), float(not self.keys.last_error))],
        )
        metrics.counter(
            "restow_encryption_config_reloads_total",
            "Reloads of the encryption configuration file, by result.",
            ("outcome",),
            lambda: [((name,), float(count)) for name, count in self.keys.reloads.items()],
        )
        metrics.gauge(
            "restow_encryption_keys_waiting",
            "Resources for which this server prefers another key than the agreed one.",
            (),
            lambda: [((), float(coordinator.keys_waiting()))],
        )

    async def close(self) -> None:
        await self._tasks.close()
        await self.keys.close()
