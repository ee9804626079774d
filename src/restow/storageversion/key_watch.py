"""Registers resources again when encryption keys change while a server runs.

A server switches to another key when its own configuration changes, or when other servers report
other readable keys. Both lead to a registration, as a change of version does. Until it is
committed, writes use the old key; an in-flight write then fails its fence and is retried.

Not here: which key to use (`registration_planner`), and where keys come from (`restow.encryption`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from restow.aio import Runtime
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status_error import StatusError
from restow.encryption.interface import Keys
from restow.registry.catalog import Catalog
from restow.registry.resource import Resource
from restow.storage.errors import StorageError
from restow.storageversion.errors import CoordinationError
from restow.storageversion.records import name_of, resource_of_name
from restow.storageversion.registrar import Registrar

RECHECK_SECONDS: Final = 2.0
"""Delay before a failed registration is retried, even if nothing has changed."""

logger = logging.getLogger(__name__)


class KeyWatch:
    """Keeps the registrations of one server up to date with its keys."""

    def __init__(
        self,
        keys: Keys,
        catalog: Catalog,
        registrar: Registrar,
        runtime: Runtime,
        *,
        register: Callable[[Resource], Awaitable[None]],
    ) -> None:
        """`register` registers one resource again, if it is registered."""
        self._keys = keys
        self._catalog = catalog
        self._registrar = registrar
        self._clock = runtime.clock
        self._register = register
        self._due: dict[str, None] = {}  # Ordered, so that runs are reproducible.
        self._wake = asyncio.Event()
        self.errors: dict[str, str] = {}
        """By resource name: the reason why it is not registered with the preferred keys."""
        keys.changed.subscribe(self.check_all)

    def check_all(self) -> None:
        """Check all resources after a change of this server's keys."""
        self._add(name_of(each.kind.group_resource) for each in self._catalog.persisted())

    def report_changed(self, name: str) -> None:
        """Check a resource after a change of its StorageVersion."""
        self._add([name])

    def _add(self, names: Iterable[str]) -> None:
        self._due.update(dict.fromkeys(names))
        self._wake.set()

    def waiting(self) -> int:
        """Return for how many resources this server waits to switch the encryption key."""
        return sum(
            self._registrar.is_waiting_for_key(resource) for resource in self._catalog.persisted()
        )

    async def run(self) -> None:
        """Check resources until cancelled."""
        while True:
            if self.errors:
                try:
                    async with self._clock.timeout(RECHECK_SECONDS):
                        await self._wake.wait()
                except TimeoutError:
                    self._add(self.errors)
            else:
                await self._wake.wait()
            self._wake.clear()
            while self._due:
                await self._check(self._next())
            if not self.errors:
                self._keys.settled()

    def _next(self) -> str:
        name = next(iter(self._due))
        del self._due[name]
        return name

    async def _check(self, name: str) -> None:
        group, plural = resource_of_name(name)
        resource = self._catalog.named(group, plural)
        error = ""
        if resource is not None and resource.kind.persisted and not resource.kind.pinned:
            try:
                # KEP-2339 3.71: a changed key is reported before it is used
                if self._registrar.would_change_keys(resource):
                    await self._register(resource)
            except (CoordinationError, StorageError, MachineryError, StatusError) as failed:
                error = str(failed)
        if error and error != self.errors.get(name):
            logger.warning("%s still uses its previous encryption key: %s", name, error)
        if error:
            self.errors[name] = error
        else:
            self.errors.pop(name, None)
