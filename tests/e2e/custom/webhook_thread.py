"""A conversion webhook in a thread of its own: it responds while a test waits for something else.

It can hold its requests, so that a test controls what is in flight; refuse single objects; respond
slowly; be stopped.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.support.conversion_webhook import ConversionWebhook

POLL_SECONDS: Final = 0.01
WAIT_SECONDS_MAX: Final = 30.0

Object = dict[str, Any]


def convert(obj: Object, target: str) -> Object:
    """In v1 a gadget has `spec.color`, in v2 `spec.paint.color`."""
    spec = dict(obj["spec"])
    if target.endswith("/v2"):
        if "color" in spec:
            spec["paint"] = {"color": spec.pop("color")}
    elif "paint" in spec:
        spec["color"] = spec.pop("paint")["color"]
    return {**obj, "apiVersion": target, "spec": spec}


class WebhookThread:
    """The webhook, as used by a test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loop: asyncio.AbstractEventLoop
        self._webhook: ConversionWebhook
        self._ready = threading.Event()
        self._done: asyncio.Event
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.refused: frozenset[str] = frozenset()
        """Names of objects that it does not convert."""
        self.seconds: Callable[[], float] = lambda: 0.0
        """Seconds before each response."""
        self._is_open: asyncio.Event
        self.held = 0
        """Number of requests that are held now."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WAIT_SECONDS_MAX), "the webhook does not start"
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(WAIT_SECONDS_MAX)

    @property
    def conversion(self) -> Object:
        """`spec.conversion` of a CRD."""
        return self._webhook.definition_part()

    def hold(self) -> None:
        """Holds all responses until `release`."""

        async def close() -> None:
            self._is_open.clear()

        self._call(close())

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._is_open.set)

    def wait_held(self, count: int) -> None:
        """Waits until this many requests are held."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while self.held < count:
            assert time.monotonic() < deadline, f"{self.held} questions, not {count}"
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Closes its port."""
        self._call(self._webhook.stop())

    def restart(self) -> None:
        """Listens again, at the same port."""
        self._call(self._webhook.listen())

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS_MAX)

    async def _run(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._webhook = await ConversionWebhook.start(self._directory, convert)
        self._webhook.behave = self._behave
        self._ready.set()
        await self._done.wait()
        self._is_open.set()
        await self._webhook.stop()

    async def _behave(self, review: Object) -> Object:
        await asyncio.sleep(self.seconds())
        self.held += 1
        try:
            await self._is_open.wait()
        finally:
            self.held -= 1
        request = review["request"]
        names = {obj["metadata"].get("name", "") for obj in request["objects"]}
        if names & self.refused:
            result = {"status": "Failed", "message": "this one cannot be converted"}
            response = {"uid": request["uid"], "result": result, "convertedObjects": []}
            return {**review, "request": None, "response": response}
        return self._webhook.answer(review)
