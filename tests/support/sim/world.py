"""A world: one store, its processes, and the connections between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from restow.aio import InvariantViolation
from restow.storage.identity import Mark
from tests.support.sim.controllers import SimControllers
from tests.support.sim.ledger import Ledger
from tests.support.sim.loop import Process, SimulatedLoop
from tests.support.sim.network import GuardedWire, Link, StoreWire
from tests.support.sim.plan import PLACES
from tests.support.sim.releases import KIND, NAME, RELEASES, ROOT, catalog_of
from tests.support.sim.routes import Listening, Route
from tests.support.sim.servers import TOKEN, ServerOptions, SimServer
from tests.support.sim.store import WatchedStorage

ADDRESSES: Final = {f"10.0.0.{number + 1}:6443": place for number, place in enumerate(PLACES)}
"""The address of the server of each place."""


@dataclass(slots=True)
class ServerFiles:
    """Satisfies `servers.Files`."""

    mark: Mark | None = None
    keys: bytes = b""
    keys_in_force: str = ""


class World:
    """Everything in one run."""

    def __init__(
        self,
        seed: int | str,
        *,
        is_structural: bool = True,
        is_audited: bool = True,
        ledger: type[Ledger] = Ledger,
    ) -> None:
        """`is_audited`: whether each transaction is checked against the rules of coordination."""
        self.seed = seed
        self.loop = SimulatedLoop(seed)  # type: ignore[abstract]  # no sockets, no signals
        self.hits: Counter[str] = Counter()
        """How often each fault had an effect."""
        catalogs = [catalog_of(release) for release in RELEASES]
        self.storage = WatchedStorage(catalogs, is_fenced=is_structural, is_audited=is_audited)
        self.ledger = self.storage.ledger = ledger(
            problem=self.problem,
            now=self.loop.time,
            notice=lambda _what: None,
            kinds={ROOT: KIND},
            names={ROOT: NAME},
        )
        self.servers: dict[str, SimServer] = {}
        """By place; the current one, or the last."""
        self.past: list[SimServer] = []
        self.files: dict[str, ServerFiles] = {place: ServerFiles() for place in PLACES}
        """By place; the files that outlive servers."""
        self.controllers: dict[str, SimControllers] = {}
        self.problems: list[str] = []
        """The violations found."""
        self.excused: frozenset[str] = frozenset()
        """Rules that this world does not check, since its operators break them on purpose."""
        self._lives = 0

    def problem(self, text: str) -> None:
        if text.partition(":")[0] in self.excused:
            return
        self.problems.append(f"at {self.loop.time():.3f} s: {text}")

    def fatal(self, name: str, violation: InvariantViolation) -> None:
        self.problem(f"{name} broke an invariant: {violation}")

    def link(self, name: str) -> Link:
        return Link(self.loop, f"{self.seed}/link/{name}", self.hits)

    # Servers.

    def start(self, place: str, options: ServerOptions) -> SimServer:
        """Start a server in the place of the one before, which must have ended."""
        before = self.servers.get(place)
        if before is not None:
            assert not before.is_running, f"{place} is taken"
            self.past.append(before)
        self._lives += 1
        name = f"{place}-{self._lives}"
        process = self.loop.process(name)
        link = before.wire.link if before is not None else self.link(place)
        make = GuardedWire if options.is_guarded else StoreWire
        server = SimServer(
            process,
            make(self.storage, link, name),
            catalog_of(options.release),
            options,
            files=self.files[place],
            place=place,
            seed=f"{self.seed}/{name}",
            fatal=self.fatal,
            broken=self.problem,
            asked_for=self._is_asked_for,
        )
        self.servers[place] = server
        process.start(server.run(), "run")
        return server

    def _is_asked_for(self, path: str) -> bool:
        """Whether a migration exists, by the path of its page."""
        _, _, group, _, plural, name, _ = path.split("/")
        return f"/registry/{group}/{plural}/{name}" in self.ledger.requests

    def running(self) -> list[SimServer]:
        return [each for each in self.servers.values() if each.is_running]

    def ready(self) -> list[SimServer]:
        return [each for each in self.running() if each.is_ready]

    # Clients.

    def start_controllers(self, name: str, **options: object) -> SimControllers:
        self._lives += 1
        process = self.loop.process(f"{name}-{self._lives}")
        link = self.link(process.name)
        controllers = SimControllers(
            process.name,
            process,
            self.loop,
            link,
            lambda address: (
                self.route_to(link, ADDRESSES[address]) if address else self.route(link)
            ),
            ledger=self.ledger,
            seed=f"{self.seed}/{process.name}",
            fatal=self.fatal,
            **options,  # type: ignore[arg-type]
        )
        self.controllers[name] = controllers
        process.start(controllers.run(), "run")
        return controllers

    def route(self, link: Link) -> Route:
        """Connects to any server that accepts connections."""

        def find() -> Listening | None:
            found = [each for each in self.running() if each.is_open]
            return link.random.choice(found) if found else None

        return Route(link, find, TOKEN)

    def route_to(self, link: Link, place: str) -> Route:
        def find() -> Listening | None:
            return self.servers.get(place)

        return Route(link, find, TOKEN)

    def clients(self, name: str) -> tuple[Process, Link]:
        """A process of clients without faults, and their connection to servers."""
        return self.loop.process(name), self.link(name)
