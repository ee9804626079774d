"""Ways to webhooks: by a URL and by a Service, within a deadline, and no more bytes than there may
be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from restow.runtime import Runtime
from restow.serving.admission import webhooks_transport
from restow.serving.admission.webhooks_transport import CallFailed, HookCalls, HookClient
from restow.serving.aggregation.interface import ServiceRef
from restow.serving.aggregation.pools import BackendLimits
from restow.serving.aggregation.services import NoPlace, Place
from restow.testing.admission_webhook import AdmissionWebhook, Object, answer
from restow.testing.conversion_webhook import Raw

QUESTION = b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u"}}'


class Places:
    """A Service, if it has a port."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def places(self, service: ServiceRef) -> Sequence[Place]:
        if not self.port:
            raise NoPlace("ServiceNotFound", f"there is no {service.name}")
        return [Place("127.0.0.1", self.port)]


@pytest_asyncio.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[AdmissionWebhook]:
    made = await AdmissionWebhook.start(tmp_path / "webhook")
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def calls(webhook: AdmissionWebhook) -> AsyncIterator[HookCalls]:
    made = HookCalls(Places(webhook.port), Runtime.system(), allows_loopback=True)
    yield made
    await made.close()


def service_of(webhook: AdmissionWebhook) -> HookClient:
    service = {"namespace": "default", "name": "hook", "path": "/by/service"}
    return HookClient.of({**webhook.client_config(), "url": None, "service": service})


async def test_both_ways(webhook: AdmissionWebhook, calls: HookCalls) -> None:
    """Connections are kept; a Service is known by its name, wherever it is."""
    by_url = HookClient.of(webhook.client_config("/by/url"))
    for client in (by_url, by_url, service_of(webhook), service_of(webhook)):
        body = await calls.post(client, QUESTION, seconds_max=5)
        assert b'"allowed":true' in body
    assert webhook.paths == ["/by/url?timeout=5s"] * 2 + ["/by/service?timeout=5s"] * 2
    assert webhook.connections == 2
    calls.keep([by_url])
    await calls.post(by_url, QUESTION, seconds_max=5)
    assert webhook.connections == 2
    await calls.post(service_of(webhook), QUESTION, seconds_max=5)
    assert webhook.connections == 3


async def test_what_fails(
    webhook: AdmissionWebhook, calls: HookCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is too long or too late, a Service that is not there, a URL that is none: all
    of it is a failed call with a reason, and none says what the webhook said."""
    client = HookClient.of(webhook.client_config())
    hanging = asyncio.Event()

    async def hang() -> Object:
        await hanging.wait()
        return {}

    webhook.respond = lambda _request: hang()
    with pytest.raises(CallFailed, match="context deadline exceeded"):
        await calls.post(client, QUESTION, seconds_max=0.05)
    hanging.set()
    monkeypatch.setattr(webhooks_transport, "ANSWER_BYTES_MAX", 100)
    webhook.respond = answer(Raw(b"x" * 101))
    with pytest.raises(CallFailed, match="more than 100 bytes"):
        await calls.post(client, QUESTION, seconds_max=5)
    nowhere = HookCalls(Places(0), Runtime.system())
    with pytest.raises(CallFailed, match="there is no hook"):
        await nowhere.post(service_of(webhook), QUESTION, seconds_max=5)
    for url in ("http://a", "https://", "https://[x"):
        with pytest.raises(CallFailed, match="Unparsable URL"):
            await calls.post(HookClient.of({"url": url}), QUESTION, seconds_max=5)
    with pytest.raises(CallFailed, match="either service or URL"):
        HookClient.of({})
    await calls.close()
    with pytest.raises(CallFailed, match="stopping"):
        await calls.post(client, QUESTION, seconds_max=5)


async def test_link_local_addresses_are_refused(calls: HookCalls) -> None:
    """Where a cloud keeps the credentials of a machine there is no webhook."""
    client = HookClient.of({"url": "https://169.254.169.254/latest"})
    with pytest.raises(CallFailed, match="where no backend may be"):
        await calls.post(client, QUESTION, seconds_max=5)


async def test_no_more_calls_than_there_may_be(webhook: AdmissionWebhook) -> None:
    """One that hangs costs so many calls, and then fails at once."""
    release = asyncio.Event()

    async def hang() -> Object:
        await release.wait()
        return {"allowed": True}

    webhook.respond = lambda _request: hang()
    client = HookClient.of(webhook.client_config())
    count = 4
    limits = BackendLimits(requests_max=count)
    calls = HookCalls(Places(0), Runtime.system(), limits=limits)
    asked = [calls.post(client, QUESTION, seconds_max=30) for _ in range(count)]
    waiting = asyncio.gather(*asked)
    await asyncio.sleep(0)
    with pytest.raises(CallFailed, match="which is the limit"):
        await calls.post(client, QUESTION, seconds_max=30)
    release.set()
    assert len(await waiting) == count
    await calls.close()
