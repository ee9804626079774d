"""One incarnation of a simulated API server: the parts of a real one, in the same order.

From the store to the chain everything is the production code, assembled as in
`restow.apiserver.server`; only files, certificates and sockets are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from restow.aio import InvariantViolation, Runtime, Tasks
from restow.apiserver.assembly import Assembly
from restow.apiserver.build import assemble
from restow.apiserver.build_inputs import AccessOptions, EndpointOptions, Foundation, Secrets
from restow.apiserver.build_store import agreement_of
from restow.apiserver.encryption import Encryption
from restow.apiserver.feature_gates import FeatureGates
from restow.apiserver.lease_notes import LeaseNotes
from restow.apiserver.startup import PARTICIPATION, Participation, run_steps
from restow.apiserver.store_guard import StoreGuard, keep_guard
from restow.apiserver.subscriptions import agreement_subscriptions, subscribe_all
from restow.controllers import ControllerManager, ControllerManagerOptions, CrdControllerOptions
from restow.httpserver import HttpRequest, HttpResponse
from restow.registry.catalog import Catalog, version_hash_of
from restow.registry.committer import Sealed
from restow.request.context import User
from restow.storage.identity import Mark
from restow.storage.interface import Storage
from restow.storage.store_mark import merged
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.identity import Mode
from restow.storageversion.membership import MembershipOptions
from tests.support.in_process import answer_of
from tests.support.sim import releases
from tests.support.sim.clock import ProcessClock, runtime_of
from tests.support.sim.keys import SimKeys
from tests.support.sim.loop import Process
from tests.support.sim.network import GuardedWire, StoreWire
from tests.support.sim.routes import Exchange

TOKEN: Final = "token-of-everybody"
STORE: Final = "etcd://10.0.1.1:2379"
"""The name of the store of a world."""
AHEAD: Final = 300
"""How far above its seen revisions a server begins with an accepted store: more than is written in
a world while a server is paused."""
_SHOWN: Final = frozenset(f"/apis/{releases.GROUP}/{version}" for version in ("v1", "v2"))
SECRETS: Final = Secrets(
    tokens={TOKEN: User("everybody", ("system:masters",))}, continue_key=b"shared by all servers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Start options of a server of a world."""

    release: str
    mode: Mode = "report"
    lease_seconds: float = 15.0
    renew_seconds: float = 5.0
    loose_bound_seconds: float = 20.0
    compaction_seconds: float = 0.0
    skew_seconds: float = 0.0
    may_change_mode: bool = False
    """Whether it may start beside servers that coordinate in another mode."""
    is_guarded: bool = False
    """Whether its store may be replaced, so that it compares the identity of the store."""
    is_encrypted: bool = False
    """Whether it has an encryption configuration."""


class Files(Protocol):
    """The files of a server, which outlive it."""

    mark: Mark | None
    """The mark of the store in its data directory."""
    keys: bytes
    """Its encryption configuration."""
    keys_in_force: str
    """The digest of the encryption configuration that a server loaded last."""


class SimStoreGuard(StoreGuard):
    """Compares a store with the mark, which is in memory; the rest is the production code."""

    def __init__(
        self, wire: GuardedWire, runtime: Runtime, files: Files, reopen: Callable[[], GuardedWire]
    ) -> None:
        async def opened() -> Storage:
            return reopen()

        super().__init__(
            wire, runtime, name=STORE, file=Path("store.mark"), reopen=opened, ahead=AHEAD
        )
        self._files = files

    async def _write(self, mark: Mark) -> None:
        self._files.mark = merged(mark, self._files.mark)


class SimServer:
    """A server, from its start to its end. Satisfies `routes.Listening`."""

    def __init__(
        self,
        process: Process,
        wire: StoreWire,
        catalog: Catalog,
        options: ServerOptions,
        *,
        files: Files,
        place: str,
        seed: str,
        fatal: Callable[[str, InvariantViolation], None],
        broken: Callable[[str], None],
        asked_for: Callable[[str], bool],
    ) -> None:
        self.name = process.name
        self.place = place
        """Its host name, which the server before it had, too."""
        self.process = process
        self.wire = wire
        self.options = options
        self.files = files
        self.on_other_keys: Callable[[], None] = lambda: None
        """Called when it loads another encryption configuration than the one before."""
        self.guard: SimStoreGuard | None = None
        self.encryption: Encryption | None = None
        self.clock = ProcessClock(wire.link.loop, skew_seconds=options.skew_seconds)
        self._fatal = fatal
        self._broken = broken
        self._asked_for = asked_for
        """Whether a migration exists, by the path of its page."""
        self.runtime = runtime_of(self.clock, seed, self._end_broken)
        # A catalogue of its own: CRDs are added to it.
        self.catalog = Catalog(catalog, name=catalog.name)
        self.exchanges: dict[Exchange, None] = {}
        self.coordinator: Coordinator | None = None
        self.assembly: Assembly | None = None
        self.controller_manager: ControllerManager | None = None
        self._tasks: Tasks | None = None
        self.is_open = False
        self.is_ready = False
        self.is_stopping = False
        self.failure: BaseException | None = None
        """Why it did not start."""
        self.began_at = self.clock.monotonic()

    @property
    def is_running(self) -> bool:
        return not self.process.is_killed

    @property
    def has_seen_another_store(self) -> bool:
        return isinstance(self.wire, GuardedWire) and self.wire.has_seen_another

    @property
    def id(self) -> str:
        return "" if self.coordinator is None else str(self.coordinator.membership.id)

    def answer(self, request: HttpRequest) -> Any:
        assert self.assembly is not None
        answer = self.assembly.app(request)
        if request.path.endswith("/rewrite") and not self._asked_for(request.path):
            return self._unwanted(request.path, answer)
        if request.path in _SHOWN and isinstance(answer, HttpResponse) and answer.status == 200:
            self._check_shown(answer)
        return answer

    async def _unwanted(self, path: str, promise: Any) -> Any:
        """A page of a migration that was deleted before the request."""
        answer = await answer_of(promise)
        if answer.status == 200 and not self._asked_for(path):
            self._broken(f"M16: {self.name} has rewritten a page of {path}, which is deleted")
        return answer

    def _check_shown(self, answer: HttpResponse) -> None:
        """The hash in discovery is that of the written version, in the same step."""
        assert self.coordinator is not None
        assert isinstance(answer.body, bytes)
        resource = self.catalog.named(releases.GROUP, releases.PLURAL)
        assert resource is not None
        wanted = version_hash_of(resource, self.coordinator.version_of(resource))
        for each in orjson.loads(answer.body)["resources"]:
            if each["name"] == releases.PLURAL and each["storageVersionHash"] != wanted:
                self._broken(f"D1: {self.name} shows {each['storageVersionHash']}, not {wanted}")

    async def run(self) -> None:
        """Start; an error ends the process, as it does a real one."""
        try:
            await self._start()
        except Exception as error:  # noqa: BLE001 - the end of a process, which the world judges
            self.failure = error
            self.is_open = False
            self.end()

    async def _open(self) -> tuple[Storage, Sealed | None]:
        """Open the store: check its identity, and load the keys."""
        wire, runtime = self.wire, self.runtime
        if isinstance(wire, GuardedWire):
            self.guard = SimStoreGuard(wire, runtime, self.files, wire.another)
            if (mark := self.files.mark) is not None:
                wire.remember(mark)
            await self.guard.start(mark)
        if not self.options.is_encrypted:
            return wire, None
        keys = SimKeys(lambda: self.files.keys, runtime)
        await keys.load()
        if keys.digest != self.files.keys_in_force:
            self._take_keys(keys.digest)
        keys.changed.subscribe(lambda: self._take_keys(keys.digest))
        encryption = self.encryption = Encryption(keys, wire, runtime)
        return encryption.storage, Sealed(wire, keys)

    def _take_keys(self, digest: str) -> None:
        self.files.keys_in_force = digest
        self.on_other_keys()

    async def _start(self) -> None:
        options, catalog, runtime = self.options, self.catalog, self.runtime
        opened, sealed = await self._open()
        foundation = Foundation(storage=opened, catalog=catalog, runtime=runtime, sealed=sealed)
        keys = None if self.encryption is None else self.encryption.keys
        membership = MembershipOptions(
            host=self.place,
            extra_annotations=LeaseNotes(foundation.metrics, keys),
            release=catalog.name,
            mode=options.mode,
            lease_seconds=options.lease_seconds,
            renew_seconds=options.renew_seconds,
        )
        coordinator = self.coordinator = Coordinator(
            self.wire,
            catalog,
            runtime,
            CoordinatorOptions(
                membership=membership,
                may_change_mode=options.may_change_mode,
                loose_bound_seconds=options.loose_bound_seconds,
            ),
            keys=keys,
            custom=foundation.custom_resources,
        )
        custom = coordinator.custom
        assert custom is not None
        assembly = self.assembly = await assemble(
            foundation,
            AccessOptions(secrets=SECRETS),
            EndpointOptions(
                address="127.0.0.1:6443",
                gates=FeatureGates(storage_version_api=options.mode != "off"),
            ),
            replace(
                agreement_of(coordinator),
                mirror=coordinator.mirror,
                is_whole=lambda: custom.has_begun,
            ),
        )
        subscribe_all(
            agreement_subscriptions(
                assembly, coordinator, guard=self.guard, encryption=self.encryption
            )
        )
        self.is_open = True
        self._tasks = runtime.tasks("apiserver")
        keep_guard(self.guard, assembly.health, self._tasks, interval_seconds=options.renew_seconds)
        participation = Participation(
            coordinator,
            assembly,
            encryption=self.encryption,
            address="127.0.0.1:6443",
            livez_grace_seconds=0.0,
        )
        await run_steps(PARTICIPATION, participation)
        registration = coordinator.custom_registration
        self.controller_manager = ControllerManager(
            opened,
            assembly.store,
            catalog,
            runtime,
            ControllerManagerOptions(
                server_id=runtime.ids.nonce(8), compaction_seconds=options.compaction_seconds
            ),
            definitions=CrdControllerOptions(
                served_by_all=registration.served_by_all,
                closed_by_all=registration.closed_by_all,
                hosted_otherwise=registration.hosted_otherwise,
                wake=registration.wake,
            ),
        )
        await self.controller_manager.start()
        self.is_ready = True

    async def stop(self) -> None:
        """A graceful shutdown: drain, withdraw, close; then the process has exited."""
        self.is_stopping = True
        self.is_ready = self.is_open = False
        if self.controller_manager is not None:
            await self.controller_manager.close()
        if self.assembly is not None:
            await self.assembly.custom.close()
        if self.coordinator is not None:
            await self.coordinator.close()
        if self.assembly is not None:
            await self.assembly.close()
        if self._tasks is not None:
            await self._tasks.close()
        if self.encryption is not None:
            await self.encryption.close()
        if self.guard is not None:
            await self.guard.close()
        self.end()

    def end(self) -> None:
        """Make no further step; connections are reset."""
        self.is_ready = self.is_open = False
        self.process.kill()
        for each in list(self.exchanges):
            each.reset()
        self.exchanges.clear()

    def _end_broken(self, violation: InvariantViolation) -> None:
        self._fatal(self.name, violation)
        self.end()
