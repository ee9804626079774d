"""Two releases of an aggregated server are rolled up and down under load; one is killed or
paused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from tests.e2e.aggregated.history import KIND, Log, Sampler, unreported, versions_in
from tests.e2e.aggregated.rolling import Connection, Load, Watch, can_write
from tests.e2e.aggregated.stage import (
    ask,
    endpoints,
    entries,
    is_available,
    kinds_file,
    part,
    parts_path,
    until,
)
from tests.sizes import SIZES
from tests.support.aggregated_process import AggregatedProcess
from tests.support.controllers_process import ControllersProcess
from tests.support.etcd_process import start_etcd
from tests.support.server_process import ServerProcess

SHORT_LEASE: Final = (
    *("--identity-lease-duration-seconds", "5"),
    *("--identity-lease-renew-interval-seconds", "1"),
)
"""A short lease, but longer than the delays of a busy machine."""
WRITERS: Final = 3
STEP: Final = 12
"""Successful requests before the next step."""
HALF_SENT: Final = 3
PAUSES_MAX: Final = 30
REPORTS: Final = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
STATES: Final = "/apis/migration.k8s.io/v1alpha1/storagestates"


@dataclass(slots=True)
class Stage:
    """A main server with its controllers, and the stores for aggregated servers."""

    main: ServerProcess
    own_store: str
    directory: Path


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp(f"rolling-{request.param}")
    with ExitStack() as stack:
        stores = [f"sqlite:{directory / name}.db" for name in ("main", "own")]
        if request.param == "etcd":
            stores = [
                stack.enter_context(start_etcd(directory / name)).url for name in ("main", "own")
            ]
        main = stack.enter_context(ServerProcess(directory / "main", store=stores[0]))
        controllers = ControllersProcess(directory / "controllers", kubeconfig=main.kubeconfig)
        stack.enter_context(controllers)
        yield Stage(main, stores[1], directory)


class Rollout:
    """Two servers of one component: the first of the old release, the second of the new one."""

    def __init__(self, stage: Stage, stack: ExitStack, *, place: str) -> None:
        self.main = stage.main
        self.group = f"{place}.example.com"
        self.store = stage.main.store if place == "shared" else stage.own_store
        directory = stage.directory / f"aggregated-{place}"
        directory.mkdir()
        self._kinds = [kinds_file(directory, each, group=self.group) for each in ("v1", "v1beta1")]
        self._directory = directory
        self._stack = stack
        self.first = AggregatedProcess(
            directory / "first",
            main=stage.main,
            kinds=self._kinds[0],
            store=self.store,
            arguments=SHORT_LEASE,
        )
        self.second = self.first  # until the second is started

    def start_first(self) -> None:
        self._stack.enter_context(self.first)
        until(lambda: is_available(self.main, group=self.group))

    def start_second(self) -> None:
        self.second = self.first.sibling(self._directory / "second", kinds=self._kinds[1])
        self._stack.enter_context(self.second)

    def version(self, name: str) -> str:
        return f"{self.group}/{name}"

    def check_disagreement(self) -> None:
        """Both have entries, and there is no common version."""
        written = sorted(entries(self.main, group=self.group).values())
        assert written == [self.version("v1"), self.version("v1beta1")]
        assert self.agreed() is None

    def check_migrated(self, name: str) -> None:
        """All objects are migrated to a version, and only then it is the only persisted one."""
        wanted = storage_version_hash(GroupVersionKind.of(self.version(name), KIND))
        until(lambda: self.persisted() == [wanted])
        assert set(versions_in(self.store, self.group)) == {self.version(name)}

    def agreed(self) -> str | None:
        """Returns the common encoding version."""
        _, found = ask(self.main, "GET", f"{REPORTS}/{self.group}.parts")
        version: str | None = found["status"].get("commonEncodingVersion")
        return version

    def persisted(self) -> list[str]:
        _, found = ask(self.main, "GET", f"{STATES}/parts.{self.group}")
        hashes: list[str] = found["status"]["persistedStorageVersionHashes"]
        return hashes

    def entry_of(self, name: str) -> set[str]:
        """Returns the servers that write a version."""
        found = entries(self.main, group=self.group)
        return {each for each, version in found.items() if version == self.version(name)}

    def direct(self, server: AggregatedProcess, *, seconds_max: float = 60.0) -> Connection:
        ca_file = server.pki_dir / "ca.crt"
        token = self.main.token
        return Connection(server.port, ca_file=ca_file, token=token, seconds_max=seconds_max)

    def pause_first(self, load: Load) -> None:
        """Pauses the first server at a moment when others can write.

        A server paused in a transaction of SQLite holds the lock of the file, and all others wait
        until it is resumed: nothing can be garbage collected then.
        """
        path = parts_path(group=self.group)
        for number in range(PAUSES_MAX):
            self.first.pause()
            body = part(f"probe-{number}", group=self.group)
            if can_write(lambda: self.direct(self.second, seconds_max=1.5), path, body):
                return
            self.first.resume()
            load.wait_for_successes(5)
        raise AssertionError("it is always in the middle of a transaction")


@pytest.mark.parametrize(("stage", "place"), SIZES.aggregated_rollings, indirect=["stage"])
def test_releases_roll_up_and_down(stage: Stage, place: str) -> None:
    """No object is ever written in a version that is not reported at that time: while releases
    are rolled, one server is killed, and one is paused beyond its lease. The objects are
    migrated in both directions, the watch through the main server has no gap, and only requests
    in flight to a killed server fail."""
    with ExitStack() as stack:
        rollout = Rollout(stage, stack, place=place)
        rollout.start_first()
        sampler = None
        if place == "own":
            sampler = stack.enter_context(
                Sampler(stage.main.store, rollout.store, group=rollout.group)
            )
        watch = stack.enter_context(Watch(stage.main, group=rollout.group))
        load = stack.enter_context(
            Load(stage.main, group=rollout.group, writers=WRITERS, prefix="steady")
        )
        load.wait_for_successes(STEP)

        rollout.start_second()
        rollout.check_disagreement()
        load.wait_for_successes(STEP)
        assert rollout.first.stop() == 0
        rollout.check_migrated("v1beta1")
        assert load.failed() == [], "rolling up costs nobody anything"

        rollout.first.start()
        rollout.check_disagreement()
        load.wait_for_successes(STEP)
        at_death = len(load.answers)
        rollout.second.kill()
        rollout.check_migrated("v1")
        until(lambda: endpoints(stage.main, rollout.first.component) == {rollout.first.port})
        check_death(load, at_death)

        rollout.second.start()
        rollout.check_disagreement()
        load.wait_for_successes(STEP)
        connections = [stack.enter_context(rollout.direct(rollout.first)) for _ in range(HALF_SENT)]
        rests = [
            connection.begin(
                parts_path(group=rollout.group), part(f"half-{number}", group=rollout.group)
            )
            for number, connection in enumerate(connections)
        ]
        rollout.pause_first(load)
        old = rollout.entry_of("v1")
        until(lambda: endpoints(stage.main, rollout.first.component) == {rollout.second.port})
        rollout.check_migrated("v1beta1")
        meanwhile = Load(stage.main, group=rollout.group, writers=1, prefix="meanwhile")
        with meanwhile:
            meanwhile.wait_for_successes(STEP)
        assert (meanwhile.failed(), meanwhile.broken) == ([], [])
        for connection, rest in zip(connections, rests, strict=True):
            connection.http.send(rest)
        rollout.first.resume()
        new = until(lambda: rollout.entry_of("v1") - old)
        assert len(new) == 1
        half_sent = [connection.answer().status for connection in connections]
        assert set(half_sent) <= {201, 503}
        load.wait_for_successes(STEP)
        load.stop()
        assert watch.check() > 0
        assert load.broken == []
    check_history(stage, rollout, sampler)


def check_death(load: Load, since: int) -> None:
    """At most the requests in flight to the killed server failed, with 503."""
    failed = load.failed(since)
    assert len(failed) <= 2 * WRITERS, failed
    assert {each.status for each in failed} <= {503}


def check_history(stage: Stage, rollout: Rollout, sampler: Sampler | None) -> None:
    """Checks the logs of all stores from their first revision."""
    main = Log.read(stage.main.store, rollout.group)
    holding = main
    if sampler is not None:
        holding = Log.read(rollout.store, rollout.group, checks_states=False)
        assert len(sampler.samples) > 0
        assert sampler.broken(main)[:3] == []
        assert unreported(holding, main)[:3] == []
    assert main.broken[:3] == []
    assert holding.broken[:3] == []
    assert min(holding.written[rollout.version(each)] for each in ("v1", "v1beta1")) > STEP
