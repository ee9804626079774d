"""Connections to webhooks: by URL and by Service, with deadlines and a limit on answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from restow.admission import webhooks_transport
from restow.admission.webhooks_transport import HookCalls, HookClient, WebhookCallFailed
from restow.aggregator.interface import ServiceRef
from restow.aggregator.pools import BackendLimits
from restow.aggregator.services import NoServiceEndpoint, ServiceEndpoint
from restow.aio import Runtime
from restow.apimachinery import status
from restow.request.context import User
from tests.support.admission_webhook import AdmissionWebhook, answer
from tests.support.webhook_server import Object, Raw

ALICE, BOB = User("alice"), User("bob")
MASTER = User("root", ("system:masters",))
QUESTION = b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u"}}'


class Places:
    """A Service with one endpoint, or without endpoints for port 0."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def places(self, service: ServiceRef) -> Sequence[ServiceEndpoint]:
        if not self.port:
            raise NoServiceEndpoint("ServiceNotFound", f"there is no {service.name}")
        return [ServiceEndpoint("127.0.0.1", self.port)]


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


async def test_url_and_service(webhook: AdmissionWebhook, calls: HookCalls) -> None:
    """Connections are reused; a Service is addressed by its DNS name."""
    by_url = HookClient.of(webhook.client_config("/by/url"))
    for client in (by_url, by_url, service_of(webhook), service_of(webhook)):
        body = await calls.post(client, QUESTION, seconds_max=5, user=ALICE)
        assert b'"allowed":true' in body
    assert webhook.paths == ["/by/url?timeout=5s"] * 2 + ["/by/service?timeout=5s"] * 2
    assert webhook.connections == 2
    calls.keep([by_url])
    await calls.post(by_url, QUESTION, seconds_max=5, user=ALICE)
    assert webhook.connections == 2
    await calls.post(service_of(webhook), QUESTION, seconds_max=5, user=ALICE)
    assert webhook.connections == 3


async def test_invalid_answers_are_failed_calls(
    webhook: AdmissionWebhook, calls: HookCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is too long or late, a missing Service and an invalid URL are failed calls,
    whose messages do not contain the answer."""
    client = HookClient.of(webhook.client_config())
    hanging = asyncio.Event()

    async def hang() -> Object:
        await hanging.wait()
        return {}

    webhook.respond = lambda _request: hang()
    with pytest.raises(WebhookCallFailed, match="context deadline exceeded"):
        await calls.post(client, QUESTION, seconds_max=0.05, user=ALICE)
    hanging.set()
    monkeypatch.setattr(webhooks_transport, "ANSWER_BYTES_MAX", 100)
    webhook.respond = answer(Raw(b"x" * 101))
    with pytest.raises(WebhookCallFailed, match="more than 100 bytes"):
        await calls.post(client, QUESTION, seconds_max=5, user=ALICE)
    nowhere = HookCalls(Places(0), Runtime.system())
    with pytest.raises(WebhookCallFailed, match="there is no hook"):
        await nowhere.post(service_of(webhook), QUESTION, seconds_max=5, user=ALICE)
    for url in ("http://a", "https://", "https://[x"):
        with pytest.raises(WebhookCallFailed, match="Unparsable URL"):
            await calls.post(HookClient.of({"url": url}), QUESTION, seconds_max=5, user=ALICE)
    with pytest.raises(WebhookCallFailed, match="either service or URL"):
        HookClient.of({})
    await calls.close()
    with pytest.raises(status.ServiceUnavailable, match="stopping"):
        await calls.post(client, QUESTION, seconds_max=5, user=ALICE)


async def test_link_local_addresses_are_refused(calls: HookCalls) -> None:
    """Link-local addresses, which serve credentials in clouds, are refused."""
    client = HookClient.of({"url": "https://169.254.169.254/latest"})
    with pytest.raises(WebhookCallFailed, match="not permitted for a backend"):
        await calls.post(client, QUESTION, seconds_max=5, user=ALICE)


class Held:
    """A webhook whose answers are held until `let_go`."""

    def __init__(self, webhook: AdmissionWebhook) -> None:
        self._webhook = webhook
        self._turns: asyncio.Queue[None] = asyncio.Queue()
        webhook.respond = lambda _request: self._answer()

    async def _answer(self) -> Object:
        await self._turns.get()
        return {"allowed": True}

    def let_go(self, count: int = 1) -> None:
        for _ in range(count):
            self._turns.put_nowait(None)

    async def wait_for_calls(self, count: int) -> None:
        """Wait until the webhook has received so many calls."""
        async with asyncio.timeout(10):
            while len(self._webhook.requests) < count:  # noqa: ASYNC110  (there is no event)
                await asyncio.sleep(0.002)


@pytest_asyncio.fixture
async def few(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HookCalls]:
    """Connections with a limit of two calls, and one more for `system:masters`."""
    monkeypatch.setattr(webhooks_transport, "CALLS_MAX", 2)
    made = HookCalls(Places(0), Runtime.system(), limits=BackendLimits(requests_max=3))
    yield made
    await made.close()


def ask(calls: HookCalls, client: HookClient, user: User, **times: float) -> asyncio.Task[bytes]:
    posted = calls.post(client, QUESTION, user=user, **{"seconds_max": 30.0, **times})
    return asyncio.ensure_future(posted)


async def test_the_own_limit_is_not_a_webhook_failure(
    webhook: AdmissionWebhook, few: HookCalls
) -> None:
    """A call over the limit waits for a slot; one that waits too long gets a 429, one past the
    request's deadline a 504: neither counts as a failure of the webhook."""
    held = Held(webhook)
    client = HookClient.of(webhook.client_config())
    first = [ask(few, client, ALICE) for _ in range(2)]
    await held.wait_for_calls(2)
    with pytest.raises(status.TooManyRequests) as refused:
        await ask(few, client, ALICE, seconds_max=0.02)
    assert refused.value.retry_after_seconds == 1
    soon = Runtime.system().clock.monotonic() + 0.02
    with pytest.raises(status.Timeout):
        await ask(few, client, ALICE, by_seconds=soon)
    third = ask(few, client, ALICE)
    given_up = ask(few, client, ALICE)
    await asyncio.sleep(0)
    given_up.cancel()
    held.let_go(3)
    for each in (*first, third):
        assert b"true" in await each
    assert len(webhook.requests) == 3


async def test_slots_are_shared_between_users(webhook: AdmissionWebhook, few: HookCalls) -> None:
    """A user without a slot comes before a user who holds all slots; `system:masters` have their
    own limit."""
    held = Held(webhook)
    client = HookClient.of(webhook.client_config())
    flood = [ask(few, client, ALICE) for _ in range(6)]
    await held.wait_for_calls(2)
    good = ask(few, client, BOB)
    master = ask(few, client, MASTER)
    await held.wait_for_calls(3)
    with pytest.raises(status.TooManyRequests):
        await ask(few, client, MASTER)
    held.let_go(3)
    await master
    await held.wait_for_calls(5)
    held.let_go(2)  # one call of alice, and that of bob
    await good
    assert sum(each.done() for each in flood) <= 3
    held.let_go(3)
    await asyncio.gather(*flood)


async def test_calls_complete_after_their_configuration_is_deleted(
    webhook: AdmissionWebhook, few: HookCalls
) -> None:
    """Calls in flight and queued calls complete after their configuration is deleted."""
    held = Held(webhook)
    client = HookClient.of(webhook.client_config())
    wait_for_calls = [ask(few, client, ALICE) for _ in range(3)]
    await held.wait_for_calls(2)
    few.keep([])
    held.let_go(3)
    for each in wait_for_calls:
        assert b"true" in await each
    assert webhook.connections == 2  # the last call reused a connection
    again = ask(few, client, ALICE)
    held.let_go()
    await again
    assert webhook.connections == 3


async def test_stopping_is_not_a_webhook_failure(webhook: AdmissionWebhook, few: HookCalls) -> None:
    """Calls in flight or queued when the server stops get a 503, and the webhook is not skipped."""
    held = Held(webhook)
    client = HookClient.of(webhook.client_config())
    wait_for_calls = [ask(few, client, ALICE) for _ in range(3)]
    await held.wait_for_calls(2)
    await few.close()
    await webhook.stop()
    for each in wait_for_calls:
        with pytest.raises(status.ServiceUnavailable) as refused:
            await each
        assert refused.value.retry_after_seconds == 1
