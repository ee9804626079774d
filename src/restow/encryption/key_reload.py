"""The keys of a running server: reloads the encryption configuration file when it changes.

A file that is invalid, or lacks a key that is still needed, is rejected and logged once; the
previous configuration stays in effect. Plug-ins that both files name keep running, with their
seeds.

Not here: the format of the file (`configuration`), which keys are still needed (`check`, passed
in), and the effects of new keys (`changed`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from restow.aio import Runtime, check_regular, in_own_thread
from restow.aio.events import EventChannel
from restow.aio.extras import missing_extra
from restow.apimachinery.names import GroupResource
from restow.encryption.configuration import (
    FILE_BYTES_MAX,
    NOTHING,
    Configuration,
    ConfigurationRefused,
    digest_of,
    read_configuration,
)
from restow.encryption.interface import Keys, Opened
from restow.encryption.keyring import Keyring
from restow.encryption.kms_probes import KmsProbes
from restow.storage.errors import CannotOpen, StorageError, Unavailable
from restow.storage.interface import Key
from restow.storage.private_files import FileExposed, read_kept

if TYPE_CHECKING:  # gRPC is imported only if there is a plug-in
    from restow.encryption.kms import Plugin

POLL_SECONDS: Final = 1.0
CONTENT_SECONDS: Final = 60.0
"""Interval at which the content is read even if the file's timestamps are unchanged."""
RECHECK_SECONDS: Final = 10.0
"""Interval of retries of a valid file that was rejected because of other conditions."""
UNSETTLED_MAX: Final = 8
"""Limit of configurations that are kept until the other servers have the newest keys."""
PLUGIN_POLL_SECONDS: Final = 60.0
PLUGIN_RETRY_SECONDS: Final = 10.0

Check = Callable[[Keys], Awaitable[None]]
"""Raises a `StorageError` with the reason why the keys must not be used."""
Publish = Callable[[], Awaitable[None]]
_Signature = tuple[int, int, int, int]

logger = logging.getLogger(__name__)


class ReloadedKeys:
    """Implements `interface.Keys`; call `load`, then run `follow` in a task, then `close`."""

    def __init__(
        self,
        path: str,
        runtime: Runtime,
        *,
        probes: KmsProbes | None = None,
    ) -> None:
        self.path = path
        self._check: Check | None = None
        self._publish: Publish | None = None
        self._probes = probes
        self.changed: EventChannel[[]] = EventChannel()
        self.last_error = ""
        """The reason why the current file is not in effect; empty: it is."""
        self.loaded_at: datetime | None = None
        self.reloads: dict[str, int] = {"success": 0, "failure": 0}
        self.keyring = Keyring(NOTHING, runtime, plugins={})
        self._before: list[Keyring] = []
        """Earlier keyrings, needed until all servers have the current keys."""
        self._retired: set[Plugin] = set()
        """Plug-ins that are no longer used; the next check closes them."""
        self._runtime = runtime
        self._seen: _Signature | None = None
        self._seen_at = 0.0
        self._refused = ""  # the digest of an invalid file
        self._try_again_at = 0.0

    @property
    def digest(self) -> str:
        """The hash of the file in effect, as kube-apiserver reports it."""
        return self.keyring.configuration.digest

    # Implementation of `Keys`.

    def write_key(self, resource: GroupResource) -> str:
        return self.keyring.write_key(resource)

    def readable(self, resource: GroupResource) -> tuple[str, ...]:
        return self.keyring.readable(resource)

    def writable(self, resource: GroupResource) -> tuple[str, ...]:
        return self.keyring.writable(resource)

    def seal(self, key_id: str, key: Key, value: bytes) -> bytes:
        if not self._before:
            return self.keyring.seal(key_id, key, value)
        try:
            return self.keyring.seal(key_id, key, value)
        except Unavailable:
            # Until its new key is registered, a server writes with the previous one.
            for keyring in self._before:
                with suppress(Unavailable):
                    return keyring.seal(key_id, key, value)
            raise

    def open(self, key: Key, value: bytes) -> Opened:
        if not self._before:
            return self.keyring.open(key, value)
        try:
            return self.keyring.open(key, value)
        except CannotOpen:
            for keyring in self._before:
                with suppress(CannotOpen):
                    return keyring.open(key, value)
            raise

    async def prepare(self, values: Iterable[bytes]) -> None:
        values = list(values)
        for keyring in (self.keyring, *self._before):
            await keyring.prepare(values)

    def settled(self) -> None:
        given_up, self._before = self._before, []
        kept = self.keyring.plugins.values()
        found = {plugin for keyring in given_up for plugin in keyring.plugins.values()}
        self._retired |= {plugin for plugin in found if plugin not in kept}

    def problem(self) -> str:
        """Problems of the plug-ins (the health check `kms-providers`); empty: none."""
        return self.keyring.problem()

    # The file.

    async def load(self) -> None:
        """Read and apply the file. Raises `ConfigurationRefused`.

        An unresponsive plug-in does not fail the start: it may start after this server. One whose
        keys are not those of the other servers is rejected.
        """
        try:
            self._seen = await self._sign()
            data = await self._read()
            configuration = read_configuration(data)
            plugins = await self._start_plugins(configuration)
            for plugin in plugins.values():
                if plugin.refusal:
                    await self._end(plugins)
                    raise ConfigurationRefused(plugin.refusal)
        except ConfigurationRefused as error:
            text = str(error)
            place = "" if text.startswith(self.path) else f"{self.path}: "
            raise ConfigurationRefused(f"{place}{text}") from None
        self._seen_at = self._runtime.clock.monotonic()
        self._take(configuration, plugins)

    def connect(self, *, check: Check | None = None, publish: Publish | None = None) -> None:
        """From now on call `check` before new keys are used, and `publish` after `last_error` has
        changed, so that other servers see it soon."""
        self._check, self._publish = check, publish

    async def follow(self) -> None:
        """Check the file forever."""
        while True:
            await self._runtime.clock.sleep(POLL_SECONDS)
            await self.check_and_publish()

    async def check_and_publish(self) -> None:
        """Check the file once, and publish the result if it has changed."""
        before = self.last_error
        await self.check_once()
        if self.last_error != before and self._publish is not None:
            await self._publish()

    async def check_once(self) -> bool:
        """Check the file once; returns whether new keys are in effect."""
        while self._retired:
            await self._retired.pop().close()
        now = self._runtime.clock.monotonic()
        try:
            signature = await self._sign()
            is_due = now >= self._try_again_at if self._try_again_at else False
            if signature == self._seen and not is_due and now < self._seen_at + CONTENT_SECONDS:
                return False
            data = await self._read()
        except ConfigurationRefused as error:
            self._refuse(str(error))
            return False
        self._seen, self._seen_at = signature, now
        digest = digest_of(data)
        if digest == self.digest:
            self.last_error, self._refused, self._try_again_at = "", "", 0.0
            return False
        if digest == self._refused:
            return False
        try:
            configuration = read_configuration(data)
        except ConfigurationRefused as error:
            self._refused, self._try_again_at = digest, 0.0
            self._refuse(str(error))
            return False
        return await self._try(configuration)

    # In a thread of its own: a hanging file system must not prevent the shutdown.

    async def _sign(self) -> _Signature:
        """Attributes that change when the file does. Raises `ConfigurationRefused`."""
        return await in_own_thread("encryption", partial(_signature_of, self.path))

    async def _read(self) -> bytes:
        """Read the content of the file. Raises `ConfigurationRefused`."""
        return await in_own_thread("encryption", partial(_read, self.path))

    async def close(self) -> None:
        """Stop the plug-ins' tasks and close their connections."""
        keyring, self.keyring = self.keyring, Keyring(NOTHING, self._runtime, plugins={})
        self._before.append(keyring)
        self.settled()
        while self._retired:
            await self._retired.pop().close()

    async def _try(self, configuration: Configuration) -> bool:
        try:
            plugins = await self._start_plugins(configuration)
        except ModuleNotFoundError as error:
            self._try_again_at = self._runtime.clock.monotonic() + RECHECK_SECONDS
            self._refuse(f"KMS {missing_extra(error) or error}")
            return False
        keyring = Keyring(configuration, self._runtime, plugins=plugins)
        try:
            if len(self._before) >= UNSETTLED_MAX:
                raise Unavailable(
                    f"the other servers do not know the last {UNSETTLED_MAX} changes yet"
                )
            for plugin in self._new_ones(plugins):
                if plugin.problem:
                    raise ConfigurationRefused(plugin.refusal or plugin.problem)
            if self._check is not None:
                await self._check(keyring)
        except StorageError as error:
            self._try_again_at = self._runtime.clock.monotonic() + RECHECK_SECONDS
            self._refuse(str(error))
            await self._end(plugins)
            return False
        except BaseException:
            await self._end(plugins)
            raise
        self._take(configuration, plugins)
        self.reloads["success"] += 1
        logger.info("loaded the encryption configuration %s", self.path)
        self._notify()
        return True

    async def _start_plugins(self, configuration: Configuration) -> dict[str, Plugin]:
        """Start the plug-ins of a configuration; those that run already are reused."""
        found: dict[str, Plugin] = {}
        for provider in configuration.plugins():
            running = self.keyring.plugins.get(provider.name)
            if running is not None and running.provider == provider:
                found[provider.name] = running
                continue
            from restow.encryption.kms import Plugin  # noqa: PLC0415 - it imports gRPC

            found[provider.name] = plugin = Plugin(
                provider,
                self._runtime,
                probes=self._probes,
                poll_seconds=PLUGIN_POLL_SECONDS,
                retry_seconds_max=PLUGIN_RETRY_SECONDS,
            )
            try:
                await plugin.start()
            except BaseException:
                await self._end(found)
                raise
        return found

    async def _end(self, plugins: dict[str, Plugin]) -> None:
        """Close the plug-ins that were started for a rejected configuration."""
        for plugin in self._new_ones(plugins):
            await plugin.close()

    def _new_ones(self, plugins: dict[str, Plugin]) -> list[Plugin]:
        running = self.keyring.plugins.values()
        return [plugin for plugin in plugins.values() if plugin not in running]

    def _take(self, configuration: Configuration, plugins: dict[str, Plugin]) -> None:
        before = self.keyring
        for plugin in self._new_ones(plugins):
            plugin.changed.subscribe(self._notify)
        self.keyring = Keyring(configuration, self._runtime, plugins=plugins)
        self.last_error, self._refused, self._try_again_at = "", "", 0.0
        self.loaded_at = self._runtime.clock.wall()
        if before.configuration is not NOTHING:
            self._before.insert(0, before)

    def _refuse(self, why: str) -> None:
        if why == self.last_error:
            return  # already reported
        self.last_error = why
        self.reloads["failure"] += 1
        logger.error(
            "the encryption configuration %s is rejected, the previous one stays in effect: %s",
            self.path,
            why,
        )

    def _notify(self) -> None:
        self.changed.emit()


def _signature_of(path: str) -> _Signature:
    try:
        status = Path(path).stat()
        check_regular(status, path)
    except OSError as error:
        raise ConfigurationRefused(f"cannot be read: {error.strerror}") from error
    return status.st_mtime_ns, status.st_ino, status.st_size, status.st_ctime_ns


def _read(path: str) -> bytes:
    """Read the file; for a thread, as a file system may take arbitrarily long."""
    try:
        return read_kept(Path(path), bytes_max=FILE_BYTES_MAX, is_secret=True)
    except FileExposed as error:
        raise ConfigurationRefused(str(error)) from error
    except OSError as error:
        raise ConfigurationRefused(f"cannot be read: {error.strerror}") from error
