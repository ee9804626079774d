"""Encodes long objects of watch events in threads, once for all watches of a user in one form.

A watcher whose bytes are not there yet is flushed again when they are.

Not here: the encoding (`watch`), and which objects are long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from restow.aio import Tasks
from restow.aio.tasks import TasksClosed, TasksFull
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.endpoints.handlers.watch_conversion import WaitingWatcher
from restow.request.context import Context
from restow.request.offload import Offload

logger = logging.getLogger(__name__)


class EncodingPending(Exception):
    """The bytes of an event are being encoded in a thread."""


class EncodingHost(Protocol):
    """The parts of a server that encodings use."""

    @property
    def tasks(self) -> Tasks: ...

    @property
    def offload(self) -> Offload: ...


class LongEncodings:
    """Encodings in progress, and those just completed, of the watchers of one cache."""

    def __init__(self, host: EncodingHost) -> None:
        self._host = host
        self._waiting: dict[object, dict[WaitingWatcher, None]] = {}
        self._done: dict[object, bytes] = {}

    def get(
        self,
        key: object,
        make: Callable[[], bytes],
        *,
        context: Context,
        watcher: WaitingWatcher,
    ) -> bytes:
        """Return the bytes. Raises EncodingPending if they are not there yet; `context` is that of
        the request for which a thread makes them."""
        found = self._done.get(key)
        if found is not None:
            return found
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = {}
            try:
                self._host.tasks.spawn("encode watch event", self._run(key, make, context))
            except (TasksFull, TasksClosed):
                del self._waiting[key]
                why = "too many watches wait for encoding"
                watcher.fail(status.unavailable(why, retry_after_seconds=1))
                raise EncodingPending from None
        waiting[watcher] = None
        raise EncodingPending

    def discard(self, watcher: WaitingWatcher) -> None:
        """Remove a watcher that has ended."""
        for waiting in self._waiting.values():
            waiting.pop(watcher, None)

    async def _run(self, key: object, make: Callable[[], bytes], context: Context) -> None:
        error: StatusError | None = None
        try:
            self._done[key] = await self._host.offload.run(context, make)
        except StatusError as failed:
            error = failed
        except Exception as failed:  # the boundary of a task: waiting watchers must get the error
            logger.exception("a watch event could not be encoded")
            error = status.internal(f"{type(failed).__name__}: {failed}")
        for watcher in self._waiting.pop(key):
            if error is None:
                watcher.flush()
            else:
                watcher.fail(error)
        self._done.pop(key, None)
