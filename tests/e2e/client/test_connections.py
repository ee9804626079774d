"""The client and connection failures of a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from restow.aio import Backoff, Runtime, Tasks
from restow.apimachinery import status
from restow.apimachinery.names import GroupVersionResource
from restow.client import (
    ApiClient,
    ClientConfig,
    ConnectionFailed,
    EventType,
    Informer,
    LeaderTiming,
    ListOptions,
    WatchEvent,
    WatchPolicy,
    key_of,
    lease_elector,
    read_kubeconfig,
    version_of,
)
from tests.e2e.client.conftest import CONFIG_MAPS, NAMESPACES
from tests.support.certificates import make_certificate
from tests.support.server_process import ServerProcess

LEASES = GroupVersionResource("coordination.k8s.io", "v1", "leases")
QUICK = WatchPolicy(
    failures_max=1_000,
    backoff=Backoff(initial_seconds=0.02, factor=2, max_seconds=0.1, jitter=0.5),
)


def config_of(server: ServerProcess) -> ClientConfig:
    return read_kubeconfig([server.kubeconfig])


async def ask(config: ClientConfig) -> None:
    async with ApiClient.connect(config, runtime=Runtime.system()) as client:
        await client.list_page(NAMESPACES)


async def until(condition: Callable[[], bool]) -> None:
    """Waits for an effect of other tasks."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (the conditions have no events)
            await asyncio.sleep(0.01)


async def test_a_foreign_authority(client_server: ServerProcess, tmp_path: Path) -> None:
    """A server certificate of another CA is refused, and the message says what to do."""
    ca_pem = make_certificate(tmp_path, name="other").ca_file.read_text()
    with pytest.raises(ConnectionFailed, match=r"not trusted: .*Check certificate-authority"):
        await ask(replace(config_of(client_server), ca_pem=ca_pem))


async def test_a_certificate_for_another_name(client_server: ServerProcess) -> None:
    """The certificate must have the host name; tls-server-name overrides it."""
    config = config_of(client_server)
    with pytest.raises(ConnectionFailed, match=r"not trusted: .*elsewhere"):
        await ask(replace(config, server_name="elsewhere.example"))
    await ask(replace(config, server_name="localhost"))


async def test_without_verification(client_server: ServerProcess) -> None:
    """With insecure-skip-tls-verify the request succeeds."""
    await ask(replace(config_of(client_server), ca_pem=None, is_verified=False))


async def test_a_wrong_token(client_server: ServerProcess, tmp_path: Path) -> None:
    """The client raises Unauthorized; a token file that was renewed is read before the next
    attempt."""
    config = config_of(client_server)
    good, path = config.token, tmp_path / "token"
    assert good is not None
    with pytest.raises(status.Unauthorized):
        await ask(replace(config, token="wrong"))
    path.write_text("out-of-date")
    runtime = Runtime.system()
    renewed = replace(config, token=None, token_file=path)
    async with ApiClient.connect(renewed, runtime=runtime) as client:
        with pytest.raises(status.Unauthorized):
            await client.list_page(NAMESPACES)
        path.write_text(good)
        await client.list_page(NAMESPACES)


async def test_a_watch_survives_a_server_restart(
    client: ApiClient, client_server: ServerProcess, namespace: str
) -> None:
    """After a server restart the watch continues: each change once, in order."""
    page = await client.list_page(CONFIG_MAPS, namespace=namespace)
    seen: list[WatchEvent] = []

    async def follow() -> None:
        async with client.watch(
            CONFIG_MAPS,
            resource_version=page.resource_version,
            namespace=namespace,
            options=ListOptions(label_selector="app=w"),
            policy=QUICK,
        ) as events:
            async for event in events:
                if event.type is not EventType.BOOKMARK:
                    seen.append(event)

    async with Tasks("test") as tasks:
        tasks.spawn("follow", follow())
        made = []
        for number in range(6):
            if number == 3:
                client_server.kill()
                client_server.start()
            body = {"metadata": {"name": f"w{number}", "labels": {"app": "w"}}}
            made.append(await client.create(CONFIG_MAPS, body, namespace=namespace))
        await until(lambda: len(seen) == 6)
        await asyncio.sleep(0.05)
    assert [event.resource_version for event in seen] == [version_of(each) for each in made]


async def test_a_list_and_an_informer_survive_compaction(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """After compaction a paged list raises Expired or continues at the current version, a watch
    raises Expired, and an informer relists."""
    directory = tmp_path_factory.mktemp("forgetful")
    arguments = ("--compaction-interval", "0.2")
    with ServerProcess(directory, arguments=arguments) as server:
        config = config_of(server)
        async with ApiClient.connect(config, runtime=Runtime.system()) as client:
            for number in range(6):
                body = {"metadata": {"name": f"c{number}"}}
                await client.create(CONFIG_MAPS, body, namespace="default")
            options = ListOptions(limit=2)
            first = await client.list_page(CONFIG_MAPS, namespace="default", options=options)
            informer = Informer(client, CONFIG_MAPS, namespace="default", watch_policy=QUICK)
            async with Tasks("test") as tasks:
                tasks.spawn("informer", informer.run())
                await informer.wait_synced()
                await _forgotten(client, first.continue_token)
                pages = [
                    page
                    async for page in client.pages(
                        CONFIG_MAPS,
                        namespace="default",
                        options=options,
                        continue_token=first.continue_token,
                        continue_when_expired=True,
                    )
                ]
                names = {key_of(item).name for page in (first, *pages) for item in page.items}
                assert {f"c{number}" for number in range(6)} <= names
                assert not pages[0].is_consistent
                server.kill()
                server.start()  # its history in memory has moved on as well
                with pytest.raises(status.Expired):
                    await _first_event(client, first.resource_version)
                made = await client.get(CONFIG_MAPS, "moving", namespace="default")
                await until(lambda: informer.get(key_of(made)) == made)


async def _forgotten(client: ApiClient, token: str) -> None:
    """Writes until the version of the token is compacted."""
    made = await client.create(CONFIG_MAPS, {"metadata": {"name": "moving"}}, namespace="default")
    async with asyncio.timeout(10):
        for number in range(1_000):
            made = await client.update(CONFIG_MAPS, made | {"data": {"n": str(number)}})
            try:
                await client.list_page(
                    CONFIG_MAPS,
                    namespace="default",
                    options=ListOptions(limit=2),
                    continue_token=token,
                )
            except status.Expired:
                return
            await asyncio.sleep(0.02)
    raise AssertionError("nothing is ever forgotten")


async def _first_event(client: ApiClient, version: str) -> WatchEvent:
    async with client.watch(
        CONFIG_MAPS, resource_version=version, namespace="default", policy=QUICK
    ) as events:
        return await anext(events)


async def test_two_candidates(client: ApiClient, client_server: ServerProcess) -> None:
    """One of two candidates leads; when it stops, the other leads at once, and the lease records
    it."""
    timing = LeaderTiming(lease_seconds=2, renew_seconds=1.5, retry_seconds=0.1)
    led: list[str] = []

    async def work(candidate: ApiClient, name: str, stop: asyncio.Event) -> None:
        elector = lease_elector(
            candidate, namespace="kube-system", name="two", identity=name, timing=timing
        )
        async with elector.leading() as term:
            led.append(name)
            await stop.wait()
            term.check()

    stops = {"anna": asyncio.Event(), "bert": asyncio.Event()}
    async with (
        ApiClient.connect(config_of(client_server), runtime=Runtime.system()) as other,
        Tasks("test") as tasks,
    ):
        handles = {
            name: tasks.spawn(name, work(each, name, stops[name]))
            for name, each in (("anna", client), ("bert", other))
        }
        await until(lambda: bool(led))
        await asyncio.sleep(0.5)  # several renewals
        (first,) = led
        lease = await client.get(LEASES, "two", namespace="kube-system")
        assert lease["spec"]["holderIdentity"].startswith(f"{first}_")
        assert lease["spec"]["renewTime"] > lease["spec"]["acquireTime"]
        stops[first].set()
        await handles[first].wait()
        await until(lambda: len(led) == 2)
        stops[led[1]].set()
        await handles[led[1]].wait()
        lease = await client.get(LEASES, "two", namespace="kube-system")
        assert lease["spec"]["leaseTransitions"] == 1
        assert "holderIdentity" not in lease["spec"]
    assert sorted(led) == ["anna", "bert"]
