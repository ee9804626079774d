"""How a server stops: every step with its reason, in one order for all kinds of servers.

A part that was started is registered under the name of its step. A stop, and a start that fails
half-way, run the steps whose parts there are, in the order of the list; a step that fails does not
keep the others from running. It is the reverse of the start but for one thing: a server listens
before it joins, and leaves the others only when its last request was answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class StopStep:
    """What is stopped, and why at that place."""

    name: str
    reason: str


STOP: Final = (
    StopStep("registration", "the main servers send requests to other servers from here on"),
    StopStep("controllers", "another server leads, and clients stop using the address"),
    StopStep("custom resources", "or they would be registered again while this server leaves"),
    StopStep("background", "nothing but requests uses the parts below from here on"),
    StopStep("listener", "requests in flight are answered while this server may still write"),
    StopStep("participation", "entries, keys and the lease are withdrawn after the last write"),
    StopStep("assembly", "caches and the authorizer served the requests and the withdrawal"),
    StopStep("audit", "its last events are about the last answers"),
    StopStep("reviews", "the last requests were authorized by the main servers"),
    StopStep("encryption", "values are opened and sealed until here"),
    StopStep("store", "its mark remembers the newest revision; then it is closed"),
    StopStep("authenticators", "they hold connections to issuers of tokens"),
    StopStep("main client", "everything above may ask the main servers"),
)


class Shutdown:
    """The parts of one server that are to be stopped."""

    def __init__(self) -> None:
        self._stops: dict[str, Callable[[], Awaitable[object]]] = {}

    def add(self, name: str, stop: Callable[[], Awaitable[object]]) -> None:
        """Have a part stopped in the step of that name."""
        assert name not in self._stops, name
        assert any(step.name == name for step in STOP), name
        self._stops[name] = stop

    async def run(self) -> None:
        """Stop all parts; afterwards there are none."""
        async with AsyncExitStack() as stack:
            for step in reversed(STOP):
                if (stop := self._stops.pop(step.name, None)) is not None:
                    stack.push_async_callback(stop)
