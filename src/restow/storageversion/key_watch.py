"""Encryption keys that change while a server runs: what is written otherwise is registered anew.

Two things move a server to another key: its own configuration, and what other servers say they can
read. Both end in a registration, as a change of version does; until it is committed everything is
written as before, and what is under way then fails its fence and is done again.

Not here: which key is right (`registration_planner`), and where keys come from
(`restow.encryption`).
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
"""After which a registration that failed is tried again, whatever has changed."""

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
        """`register` reports one resource anew, if it is reported."""
        self._keys = keys
        self._catalog = catalog
        self._registrar = registrar
        self._clock = runtime.clock
        self._register = register
        self._due: dict[str, None] = {}  # in order, or no run would be like another
        self._wake = asyncio.Event()
        self.errors: dict[str, str] = {}
        """Why resources are not registered with the keys that this server would use, by name."""
        keys.listeners.append(self.look_at_all)

    def look_at_all(self) -> None:
        """The keys of this server have changed."""
        self._add(name_of(each.kind.group_resource) for each in self._catalog.persisted())

    def report_changed(self, name: str) -> None:
        """Another server may be able to read more than before, or is gone."""
        self._add([name])

    def _add(self, names: Iterable[str]) -> None:
        self._due.update(dict.fromkeys(names))
        self._wake.set()

    def waiting(self) -> int:
        """How many resources this server would write with another key than it does."""
        return sum(
            self._registrar.is_waiting_for_key(resource) for resource in self._catalog.persisted()
        )

    async def run(self) -> None:
        """Register for ever; the owner of the task ends it."""
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
                await self._look_at(self._next())
            if not self.errors:
                self._keys.settled()

    def _next(self) -> str:
        name = next(iter(self._due))
        del self._due[name]
        return name

    async def _look_at(self, name: str) -> None:
        group, plural = resource_of_name(name)
        resource = self._catalog.named(group, plural)
        error = ""
        if resource is not None and resource.kind.persisted and not resource.kind.pinned:
            try:
                if self._registrar.would_change_keys(resource):
                    await self._register(resource)
            except (CoordinationError, StorageError, MachineryError, StatusError) as failed:
                error = str(failed)
        if error and error != self.errors.get(name):
            logger.warning("%s is not written with other keys yet: %s", name, error)
        if error:
            self.errors[name] = error
        else:
            self.errors.pop(name, None)
