"""A cluster of `restow up` under a load of five kinds, and the check of every object.

    with LedgerStage(tmp_path, store="sqlite") as stage, stage.flips():
        stage.upgrade("--to=x+2")
        stage.kill("controllers")
        outcome = stage.finish()

The load keeps a ledger of all responses. At the end every object is read through every server
and from the raw store and compared with the ledger, every change in the log of the store is
compared with the operations, and every raw value with what servers had reported at its revision.

Only processes that were started here are ever signalled.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Self

from restow.aio import Runtime
from restow.kinds.releases import shipped_release
from restow.registry.catalog import release_catalog
from restow.storage.drivers import open_storage
from restow.storage.interface import EVERYTHING, Key
from tests.e2e.localcluster.running import RESTOW, WAIT_SECONDS_MAX, Up, wait_for
from tests.support.api_client import ApiClient, Reply
from tests.support.etcd_process import EtcdCluster, start_etcd
from tests.support.fire.clients import Target
from tests.support.fire.ledger import Found, Ledger, found_in
from tests.support.fire.load_process import LoadPlan, LoadProcess
from tests.support.fire.objects import (
    GADGETS,
    GIZMOS,
    KINDS,
    NAMESPACES,
    Kind,
    crd_of,
    is_written,
)
from tests.support.fire.raw_audit import audit
from tests.support.fire.record import NOT_SENT, NOT_SERVED, PUT_OFF, LoadRecord
from tests.support.fire.replay_check import check_operations
from tests.support.fire.stores import check_file
from tests.support.fire.truth import read_truth

CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STATES: Final = "/apis/migration.k8s.io/v1alpha1/storagestates"
MIGRATIONS: Final = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
REPORTS: Final = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
CUSTOM: Final = (GADGETS, GIZMOS)
LEASE_SECONDS: Final = 4
OPTIONS: Final = (
    "--server-option=--compaction-interval=24h",  # keep all history for the checks
    f"--server-option=--identity-lease-duration-seconds={LEASE_SECONDS}",
    "--server-option=--identity-lease-renew-interval-seconds=1",
)
FLIP_SECONDS: Final = (0.3, 1.5)
"""Seconds between two changes of a CRD's storage version: the least and the most."""
LOAD_STOPPED_SECONDS_MAX: Final = 60.0
LINE: Final = "ledger | "
NOT_SAFE: Final = 3
"""The exit code of `restow upgrade` when it refuses a step."""
PROBLEMS_MAX: Final = 20
_ASK_AGAIN_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    acknowledged: int
    operations: int
    unknown: int
    put_off: int
    """Requests that were asked to retry, found no server, or used a version that is not served."""
    objects: int
    """Objects compared, once for each server and once for the raw store."""
    values: int
    """Raw values that were audited, including historic ones."""
    flips: int
    versions: Counter[str]
    """The number of values written in each version."""
    problems: tuple[str, ...]

    def check(self, title: str) -> None:
        """Checks that there are no violations; prints a line for the report of `make prove`."""
        figures = (
            *(self.operations, self.acknowledged, self.put_off, self.unknown),
            *(self.flips, self.objects, self.values, len(self.problems)),
        )
        cells = " | ".join(f"{each:,}" for each in figures)
        sys.stdout.write(f"{LINE}{title} | {cells} |\n")
        assert not self.problems, "\n".join(self.problems)


class LedgerStage:
    """A cluster, its load, and operations on it."""

    def __init__(
        self,
        directory: Path,
        *,
        store: str = "sqlite",
        servers: int = 2,
        release: str = "x+1",
        options: Sequence[str] = (),
        per_second: float = 120.0,
        seed: int = 1,
        data_dir: Path | None = None,
    ) -> None:
        """Starts nothing yet."""
        self.directory = directory
        self.data_dir = data_dir or directory / "d"
        self._kind_of_store = store
        self.store = f"sqlite:{self.data_dir / 'store.db'}"
        self._words: tuple[str, ...] = ("--port=0", f"--servers={servers}", *OPTIONS)
        self._words += (f"--release={release}", *(f"--server-option={each}" for each in options))
        self._per_second, self._seed = per_second, seed
        self._stack = ExitStack()
        self._load: LoadProcess | None = None
        self._stopping = threading.Event()
        self._flips_held = threading.Event()
        self._flippers: list[threading.Thread] = []
        self.flips_done = 0
        self.up: Up
        self.etcd: EtcdCluster | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            words = self._words
            if self._kind_of_store == "etcd":
                (self.directory / "members").mkdir()
                self.etcd = stack.enter_context(start_etcd(self.directory / "members"))
                self.store = self.etcd.url
                words += (f"--store={self.store}",)
            self.up = stack.enter_context(Up(self.data_dir, *words)).ready()
            self._prepare()
            plan = LoadPlan(
                target=self._target(),
                seed=self._seed,
                per_second=self._per_second,
                resources=tuple(KINDS),
                watchers=0,
            )
            self._load = LoadProcess(self.directory / "load", plan)
            stack.callback(self._load.kill)
            self._load.launch()
            stack.callback(self._stop_flips)
            self._stack = stack.pop_all()
        wait_for(self.load.is_up, "the load runs", log=self.load.log_tail)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def load(self) -> LoadProcess:
        assert self._load is not None
        return self._load

    def _prepare(self) -> None:
        for name in NAMESPACES:
            self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for kind in CUSTOM:
            self.ask("POST", CRDS, crd_of(kind, storage="v1"))
        for index in range(len(self.ports)):
            for kind in CUSTOM:
                wait_for(
                    lambda: self.request("GET", kind.path_of("v1"), server=index).status == 200,  # noqa: B023
                    f"{kind.name} is served",
                    log=lambda: self.up.output,
                )

    def _target(self) -> Target:
        pki = self.data_dir / "pki"
        token = (pki / "admin.token").read_text().strip()
        return Target(ports=self.ports, token=token, ca_file=str(pki / "ca.crt"))

    # The API.

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(each["port"] for each in self.up.state()["servers"])

    @property
    def releases(self) -> list[str]:
        return [each["release"] for each in self.up.state()["servers"]]

    def request(self, method: str, path: str, body: object = None, *, server: int = 0) -> Reply:
        """Sends one request to one server; raises OSError when there is no response."""
        target = self._target()

        async def send() -> Reply:
            client = ApiClient(target.ports[server], token=target.token, tls=target.context())
            try:
                return await client.request(method, path, body)
            finally:
                client.abort()

        try:
            return asyncio.run(send())
        except (EOFError, ValueError, IndexError, HTTPException, ssl.SSLError) as error:
            raise OSError(str(error)) from error

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Returns the response of the first server that sends one; it must be a success."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        said = ""
        while time.monotonic() < deadline:
            for server in range(len(self.ports)):
                try:
                    reply = self.request(method, path, body, server=server)
                except OSError as error:
                    said = str(error)
                    continue
                if reply.status in (200, 201):
                    return reply.json
                said = f"{reply.status} {reply.body[:300]!r}"
            time.sleep(_ASK_AGAIN_SECONDS)
        raise AssertionError(f"{method} {path}: {said}\n{self.up.output}")

    def edit(self, path: str, change: Callable[[dict[str, Any]], None], *, part: str = "") -> None:
        """Reads an object, changes it, and replaces it, or its `part` such as `/status`; retries
        on conflicts."""

        def is_done() -> bool:
            found = self.ask("GET", path)
            change(found)
            try:
                reply = self.request("PUT", path + part, found)
            except OSError:
                return False
            assert reply.status in (200, 409, 503, 504), reply.body
            return reply.status == 200

        wait_for(is_done, f"{path} is changed", log=lambda: self.up.output)

    # Operations on the cluster.

    def wait_writes(self, count: int) -> None:
        """Waits for this many more acknowledged writes, however slow the machine is."""
        wanted = self.load.progress.acknowledged + count
        wait_for(
            lambda: self.load.is_up() and self.load.progress.acknowledged >= wanted,
            f"{count} writes are acknowledged",
            log=lambda: f"{self.load.progress}\n{self.up.output}",
        )

    def upgrade(self, *words: str) -> None:
        """Runs `restow upgrade`, repeatedly while it refuses a step that is not safe yet.

        A CRD that changes constantly is migrated constantly, which is a reason to refuse. So after
        the first refusal, CRDs are not changed until the upgrade is done.
        """
        said: list[str] = []

        def is_done() -> bool:
            done = self.up.run("upgrade", *words, "--yes")
            said.append(f"{done.returncode}\n{done.stdout}{done.stderr}")
            assert done.returncode in (0, NOT_SAFE), f"{said[-1]}\n{self.up.output}"
            if done.returncode:
                self._flips_held.set()
            return done.returncode == 0

        try:
            wait_for(is_done, f"upgrade {words}", log=lambda: said[-1] + self.up.output)
        finally:
            self._flips_held.clear()

    def preflight(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.restow("preflight", f"--kubeconfig={self.data_dir / 'kubeconfig'}", *words)

    def restow(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command without the data directory."""
        return subprocess.run(
            [*RESTOW, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS_MAX,
        )

    def begin_upgrade(self, *words: str) -> subprocess.Popen[str]:
        """Starts an upgrade as a background process."""
        command = [*RESTOW, "upgrade", f"--data-dir={self.data_dir}", *words, "--yes"]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._stack.callback(end_process, process)
        return process

    def kill(self, name: str) -> None:
        """Kills a process of the supervisor with SIGKILL, and waits until it is replaced."""
        count = self.up.output.count(f"{name}: ready")
        os.kill(self.up.pids()[name], signal.SIGKILL)
        wait_for(
            lambda: self.up.output.count(f"{name}: ready") > count,
            f"{name} is ready again",
            log=lambda: self.up.output,
        )

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Pauses a process of the supervisor with SIGSTOP."""
        pid = self.up.pids()[name]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def pause(self, name: str, seconds: float = LEASE_SECONDS + 1.5) -> None:
        """Pauses a process, by default for longer than the lease of a server."""
        with self.paused(name):
            time.sleep(seconds)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Waits until every server is ready."""
        wait_for(self.is_ready, "all servers are ready", log=lambda: self.up.output)

    def is_ready(self) -> bool:
        try:
            return all(
                self.request("GET", "/readyz", server=index).status == 200
                for index in range(len(self.ports))
            )
        except OSError:
            return False

    def kill_supervisor(self) -> None:
        """Kills `restow up` with SIGKILL; all its processes end, and it is started again."""
        assert self.up.process is not None
        pids = self.up.pids()
        self.up.process.kill()
        self.up.wait_until_ended(pids)
        self.up.process.wait()
        self.up = self._stack.enter_context(Up(self.data_dir)).ready()

    def wait_verified(self, kind: Kind) -> None:
        """Waits until the StorageState of a kind lists one version, and no migration is running."""

        def is_verified() -> bool:
            state = self.ask("GET", f"{STATES}/{kind.name}")["status"]
            hashes = state["persistedStorageVersionHashes"]
            is_known = len(hashes) == 1 and "Unknown" not in hashes
            return is_known and all(map(has_succeeded, self.migrations(kind)))

        wait_for(is_verified, f"{kind.name} is verified", log=lambda: self.up.output)

    def common(self, kind: Kind) -> str:
        """Returns the common encoding version."""
        report = self.ask("GET", f"{REPORTS}/{kind.resource_name}")
        return str(report["status"].get("commonEncodingVersion", ""))

    def wait_common(self, kind: Kind, version: str) -> None:
        wait_for(
            lambda: self.common(kind) == version,
            f"{version} is the common version",
            log=lambda: self.up.output,
        )

    def migrations(self, kind: Kind) -> list[dict[str, Any]]:
        """Returns all migrations of a kind."""
        wanted = (kind.group, kind.plural)
        return [
            each
            for each in self.ask("GET", MIGRATIONS)["items"]
            if (each["spec"]["resource"].get("group", ""), each["spec"]["resource"]["resource"])
            == wanted
        ]

    # CRDs.

    @contextmanager
    def flips(self, *kinds: Kind) -> Iterator[None]:
        """Changes the storage version of CRDs repeatedly."""
        for number, kind in enumerate(kinds or CUSTOM):
            thread = threading.Thread(target=self._flip, args=(kind, number), name=kind.plural)
            self._flippers.append(thread)
            thread.start()
        try:
            yield
        finally:
            self._stop_flips()

    def _stop_flips(self) -> None:
        self._stopping.set()
        for thread in self._flippers:
            thread.join()
        self._flippers.clear()
        self._stopping.clear()

    def _flip(self, kind: Kind, number: int) -> None:
        chance = random.Random(f"{self._seed}/{kind.plural}")
        while not self._stopping.wait(chance.uniform(*FLIP_SECONDS)):
            if self._flips_held.is_set():
                continue
            try:
                self.flips_done += self.flip_once(kind, server=number % len(self.ports))
            except OSError:
                continue  # that server is down

    def flip_once(self, kind: Kind, *, server: int = 0) -> bool:
        """Switches to the other storage version; returns whether the server accepted it."""
        path = f"{CRDS}/{kind.name}"
        reply = self.request("GET", path, server=server)
        if reply.status != 200:
            return False
        found = reply.json
        for version in found["spec"]["versions"]:
            version["storage"] = not version["storage"]
        return self.request("PUT", path, found, server=server).status == 200

    # The end.

    def census(self) -> subprocess.CompletedProcess[str]:
        return self.up.run("census", "-o=json")

    def wait_migrated(self) -> None:
        """Waits until a raw census finds no object in an old version."""
        wait_for(
            lambda: self.census().returncode == 0,
            "all objects are migrated",
            log=lambda: self.census().stdout + self.up.output,
        )

    def stop_load(self) -> LoadRecord:
        """Writes the last objects, and stops; returns all responses."""
        self.load.send_stop_signal()
        code = self.load.wait_stopped(seconds_max=LOAD_STOPPED_SECONDS_MAX)
        assert code == 0, self.load.log_tail()
        return LoadRecord.load(self.load.record_file)

    def finish(self) -> Outcome:
        """Ends the load, waits until all objects are migrated, stops the cluster, and checks
        everything."""
        self._stop_flips()
        record = self.stop_load()
        self.wait_ready()
        self.wait_migrated()
        ports = self.ports
        ledger = Ledger.of(record.operations)
        problems = [] if record.ended_well else ["the last objects could not be written"]
        more, objects = self.compare_servers(ledger)
        problems += more
        problems += self._compare_census(objects // len(ports))
        assert self.up.stop() == 0, self.up.output
        more, raw, values, versions = asyncio.run(self._judge(record, ledger, ports))
        return Outcome(
            acknowledged=ledger.acknowledged,
            operations=len(record.operations),
            unknown=ledger.unknown,
            put_off=sum(
                each.status in PUT_OFF or each.status in (NOT_SENT, NOT_SERVED)
                for each in record.operations
            ),
            objects=objects + raw,
            values=values,
            flips=self.flips_done,
            versions=versions,
            problems=tuple((problems + more)[:PROBLEMS_MAX]),
        )

    def compare_servers(self, ledger: Ledger) -> tuple[list[str], int]:
        """Compares the lists of all servers; returns the violations, and the number of objects."""
        problems, objects = list[str](), 0
        for index in range(len(self.ports)):
            found = self.read_server(index)
            objects += len(found)
            problems += ledger.compare(found, where=f"server {index}")
        return problems, objects

    def read_server(self, server: int) -> dict[Key, Found]:
        """Returns all objects of the load, as one server lists them in their last version."""
        found: dict[Key, Found] = {}
        for kind in KINDS.values():
            for item in self._list(kind, server):
                metadata = item["metadata"]
                namespace, name = metadata["namespace"], metadata["name"]
                if namespace in NAMESPACES and is_written(name):
                    revision = int(metadata["resourceVersion"])
                    found[kind.key_of(namespace, name)] = Found(revision, kind.content_of(item))
        return found

    def _list(self, kind: Kind, server: int) -> list[dict[str, Any]]:
        """Returns all objects of a kind; a server that is not ready for it is retried."""
        replies: list[Reply] = []

        def is_answered() -> bool:
            path = kind.path_of(kind.versions[-1])
            replies.append(self.request("GET", path, server=server))
            return replies[-1].status != 503

        wait_for(is_answered, f"{kind.name} are listed", log=lambda: self.up.output)
        assert replies[-1].status == 200, replies[-1].body
        found: list[dict[str, Any]] = replies[-1].json["items"]
        return found

    def _compare_census(self, count: int) -> list[str]:
        """Checks that the census counts what servers list, all in the target version."""
        told = json.loads(self.census().stdout)
        names = {each.name for each in KINDS.values()}
        rows = [each for each in told["resources"] if each["resource"] in names]
        counted = sum(row["objects"] for each in rows for row in each["stored"])
        system = len(self._of_servers())
        if counted - system != count or told["stale"]:
            return [f"census: {counted} objects, {system} of servers; the API lists {count}"]
        return []

    def _of_servers(self) -> list[str]:
        """ConfigMaps and Secrets that servers have created."""
        found = []
        for plural in ("configmaps", "secrets"):
            for item in self.ask("GET", f"/api/v1/{plural}")["items"]:
                metadata = item["metadata"]
                if metadata["namespace"] not in NAMESPACES or not is_written(metadata["name"]):
                    found.append(f"{plural}/{metadata['name']}")
        return found

    async def _judge(
        self, record: LoadRecord, ledger: Ledger, ports: tuple[int, ...]
    ) -> tuple[list[str], int, int, Counter[str]]:
        """Compares everything with the raw store and its log."""
        storage = await open_storage(self.store, Runtime.system())
        try:
            raw = found_in((await storage.range(EVERYTHING)).items)
            truth, problems = await read_truth(storage)
        finally:
            await storage.close()
        problems += ledger.compare(raw, where="raw store")
        problems += check_operations(record.operations, truth)
        asked = {
            (each.key, each.revision): each.server
            for each in record.operations
            if each.is_write and each.is_done and each.revision
        }
        catalog = release_catalog(shipped_release("x+2"))
        found = audit(truth, catalog, ports=ports, asked=asked, custom=CUSTOM)
        problems += found.problems
        if self.store.startswith("sqlite:"):
            problems += check_file(Path(self.store.removeprefix("sqlite:")))
        return problems, len(raw), found.values, found.versions


def has_succeeded(migration: dict[str, Any]) -> bool:
    conditions = migration.get("status", {}).get("conditions") or []
    return any((each["type"], each["status"]) == ("Succeeded", "True") for each in conditions)


def end_process(process: subprocess.Popen[str]) -> None:
    """Ends a process that was started here, if it still runs."""
    if process.poll() is None:
        process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
