"""Encryption at rest of one server: its configuration file, from the start to the end.

The file is read before anything else is, and followed while the server runs. Other keys are taken
only when nothing may be stored that they do not open; then they are registered, as a change of
version is, and what only the old ones opened is given up when all servers know.

Not here: what the file may say (`restow.encryption`), which key is written when
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
    """The keys of a server, and its store as they open it."""

    def __init__(self, keys: ReloadedKeys, storage: Storage, runtime: Runtime) -> None:
        self.keys: Final = keys
        self.storage: Final = DecryptedStorage(storage, keys)
        self._tasks = runtime.tasks("encryption")

    @classmethod
    async def load(cls, path: Path, storage: Storage, runtime: Runtime) -> Encryption:
        """Read the file. Raises `OpenRefused` that says what is wrong in it."""
        keys = ReloadedKeys(str(path), runtime, probes=StoredProbes(storage))
        await keys.load()
        return cls(keys, storage, runtime)

    def follow(self, coordinator: Coordinator) -> None:
        """From now on take what the file says when it changes."""

        async def check(keys: Keys) -> None:
            try:
                await coordinator.check_keys(keys)
            except CoordinationError as error:
                raise OpenRefused(str(error)) from error

        async def publish() -> None:
            try:
                await coordinator.membership.renew()
            except StorageError as error:
                logger.warning("the lease is not renewed now, but within seconds: %s", error)

        self.keys.connect(check=check, publish=publish)
        if coordinator.key_watch is None:  # nothing follows the keys
            self.keys.listeners.append(self.keys.settled)
        self._tasks.spawn_loop("follow the configuration", self.keys.follow())

    def publish(self, health: HealthChecks, metrics: Metrics, coordinator: Coordinator) -> None:
        """Show how it is."""
        health.add(HEALTH_CHECK, lambda: self.keys.problem() or None, "healthz", "readyz")
        metrics.gauge(
            "restow_encryption_config_in_force",
            "Whether the encryption configuration file is in force as it is now: 1 or 0.",
            (),
            lambda: [((), float(not self.keys.last_error))],
        )
        metrics.counter(
            "restow_encryption_config_reloads_total",
            "Changes of the encryption configuration file, by what has come of them.",
            ("outcome",),
            lambda: [((name,), float(count)) for name, count in self.keys.reloads.items()],
        )
        metrics.gauge(
            "restow_encryption_keys_waiting",
            "Resources that this server would write with another key, as soon as it may.",
            (),
            lambda: [((), float(coordinator.keys_waiting()))],
        )

    async def close(self) -> None:
        await self._tasks.close()
        await self.keys.close()
