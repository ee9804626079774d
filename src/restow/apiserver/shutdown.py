"""Stops a server: all steps with their reasons, in one order for all kinds of servers.

A started part is registered under the name of its step. A shutdown, or a failed start, runs the
steps of the registered parts in the order of the list; a failing step does not prevent the others.
The order reverses the start, except that a server listens before it joins, and leaves the other
servers only after it has completed its last request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class StopStep:
    """A part to stop, and the reason for its position."""

    name: str
    reason: str


STOP: Final = (
    StopStep("registration", "the main servers forward requests to other servers from now on"),
    StopStep("controllers", "another server becomes leader, and clients stop using the address"),
    StopStep("custom resources", "they would be registered again while this server leaves"),
    StopStep("background", "from now on only requests use the parts below"),
    StopStep("listener", "requests in flight are answered while this server may still write"),
    StopStep("participation", "entries, keys and the lease are withdrawn after the last write"),
    StopStep("assembly", "caches and the authorizer served the requests and the withdrawal"),
    StopStep("audit", "its last events record the last responses"),
    StopStep("reviews", "the last requests were authorized by the main servers"),
    StopStep("encryption", "values are encrypted and decrypted until now"),
    StopStep("store", "the store mark records the newest revision; then it is closed"),
    StopStep("authenticators", "they hold connections to issuers of tokens"),
    StopStep("main client", "all parts above may call the main servers"),
)


class Shutdown:
    """The started parts of one server."""

    def __init__(self) -> None:
        self._stops: dict[str, Callable[[], Awaitable[object]]] = {}

    def add(self, name: str, stop: Callable[[], Awaitable[object]]) -> None:
        """Stop a part in the step of that name."""
        assert name not in self._stops, name
        assert any(step.name == name for step in STOP), name
        self._stops[name] = stop

    async def run(self) -> None:
        """Stop and unregister all parts."""
        async with AsyncExitStack() as stack:
            for step in reversed(STOP):
                if (stop := self._stops.pop(step.name, None)) is not None:
                    stack.push_async_callback(stop)
