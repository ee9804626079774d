"""Conversion webhooks: the requests, and the webhook that gets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery.status import ServiceUnavailable
from restow.apiserver.webhooks import (
    CALLS_MAX,
    OBJECTS_MAX,
    QUESTION_BYTES_MAX,
    RETIRED_SECONDS,
    WebhookConversion,
    Webhooks,
    address_of,
    webhook_of,
)
from restow.registry.custom.conversion import ConversionError, ConversionRefused
from restow.registry.custom.crds import (
    CustomResourceDefinition,
    Webhook,
    WebhookClientConfig,
    WebhookServiceReference,
    definition_of,
)
from tests.support.conversion_webhook import ConversionWebhook

V1, V2 = "example.com/v1", "example.com/v2"

Object = dict[str, Any]


def gear(number: int, *, size: int = 0) -> Object:
    return {
        "kind": "Gear",
        "apiVersion": V1,
        "metadata": {"name": f"g-{number}"},
        "data": "x" * size,
    }


def renamed(obj: Object, target: str) -> Object:
    return {**obj, "apiVersion": target}


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[ConversionWebhook]:
    made = await ConversionWebhook.start(tmp_path, renamed)
    yield made
    await made.stop()


def named(server: ConversionWebhook, **changes: Any) -> Webhook:
    found = webhook_of(definition(server.definition_part(**changes)).conversion)
    assert found is not None
    return found


def definition(conversion: Object | None, *, name: str = "gears") -> CustomResourceDefinition:
    return definition_of(
        {
            "metadata": {"name": f"{name}.example.com"},
            "spec": {
                "group": "example.com",
                "names": {"plural": name, "kind": "Gear"},
                "scope": "Cluster",
                "conversion": conversion or {"strategy": "None"},
                "versions": [{"name": "v1", "storage": True, "served": True}],
            },
        }
    )


@pytest_asyncio.fixture
async def conversion(server: ConversionWebhook) -> AsyncIterator[WebhookConversion]:
    made = WebhookConversion(named(server), Runtime.system())
    yield made
    await made.close()


async def test_batches(server: ConversionWebhook, conversion: WebhookConversion) -> None:
    """A request has a bounded number of objects and bytes; a single object may be larger."""
    many = [gear(number) for number in range(OBJECTS_MAX + 1)]
    assert await conversion.convert(many, V2) == [renamed(obj, V2) for obj in many]
    assert [len(question.names) for question in server.questions] == [OBJECTS_MAX, 1]
    server.questions.clear()
    half = QUESTION_BYTES_MAX // 2
    large = [gear(0, size=half), gear(1, size=half), gear(2, size=3 * half), gear(3)]
    assert len(await conversion.convert(large, V2)) == 4
    assert [question.names for question in server.questions] == [["g-0"], ["g-1"], ["g-2"], ["g-3"]]
    assert server.connections == 1  # reused for the next request


async def test_calls_in_flight(server: ConversionWebhook, conversion: WebhookConversion) -> None:
    """The number of calls in flight is limited, and all complete in the end."""
    under_way = most = 0
    all_places_taken = asyncio.Event()

    async def count(review: Object) -> Object:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == CALLS_MAX:
            all_places_taken.set()
        await all_places_taken.wait()
        under_way -= 1
        return server.answer(review)

    server.behave = count
    asked = [conversion.convert([gear(number)], V2) for number in range(5 * CALLS_MAX)]
    assert len(await asyncio.gather(*asked)) == 5 * CALLS_MAX
    assert most == CALLS_MAX
    assert server.connections <= CALLS_MAX


async def test_cancelled_call(server: ConversionWebhook, conversion: WebhookConversion) -> None:
    """A cancelled call releases its slot."""
    hanging, all_places_taken = asyncio.Event(), asyncio.Event()

    async def hang(review: Object) -> Object:
        if len(server.questions) == CALLS_MAX:
            all_places_taken.set()
        await hanging.wait()
        return server.answer(review)

    server.behave = hang
    asked = [
        asyncio.ensure_future(conversion.convert([gear(number)], V2))
        for number in range(2 * CALLS_MAX)
    ]
    await all_places_taken.wait()
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    server.behave = None
    assert await conversion.convert([gear(1)], V2)
    hanging.set()


async def test_refused_or_not_reached(
    server: ConversionWebhook, conversion: WebhookConversion
) -> None:
    """A rejected conversion and a failed call are distinguished: only the first may be about one
    object."""
    server.convert = lambda obj, _: obj
    with pytest.raises(ConversionRefused, match="invalid groupVersion"):
        await conversion.convert([gear(1)], V2)
    await server.stop()
    with pytest.raises(ConversionError, match="connection refused") as raised:
        await conversion.convert([gear(1)], V2)
    assert not isinstance(raised.value, ConversionRefused)
    assert (raised.value.code, raised.value.reason) == (500, "")


UNUSABLE: list[tuple[Webhook, str]] = [
    (
        Webhook(WebhookClientConfig(url="https://127.0.0.1:1"), ["v7"]),
        "no supported conversion review",
    ),
    (Webhook(WebhookClientConfig(), ["v1"]), "neither a service nor a URL"),
    (Webhook(None, ["v1"]), "neither a service nor a URL"),
    (Webhook(WebhookClientConfig(url="http://127.0.0.1:1"), ["v1"]), "not with https"),
    (Webhook(WebhookClientConfig(url="https://[::1"), ["v1"]), "Unparsable URL"),
    (Webhook(WebhookClientConfig(url="https://127.0.0.1:1", ca_bundle="bm8="), ["v1"]), "PEM"),
]


@pytest.mark.parametrize(("webhook", "message"), UNUSABLE)
async def test_unusable(webhook: Webhook, message: str) -> None:
    """An unusable webhook configuration is reported when it is used, and has no other effect."""
    conversion = WebhookConversion(webhook, Runtime.system())
    with pytest.raises(ConversionError, match=message):
        await conversion.convert([gear(1)], V2)
    await conversion.close()


def test_services() -> None:
    """A Service is called by its name, at its port and path."""
    whole = WebhookServiceReference("ns", "hook", "a b/c", 8443)
    short = WebhookServiceReference("ns", "hook")
    addresses = [address_of(Webhook(WebhookClientConfig(service=each))) for each in (whole, short)]
    assert addresses == [
        ("https://hook.ns.svc:8443", "/a%20b/c"),
        ("https://hook.ns.svc:443", "/"),
    ]


async def test_webhooks_of_definitions(server: ConversionWebhook) -> None:
    """The connections of a webhook are kept as long as a CRD names the same webhook."""
    webhooks = Webhooks(Runtime.system())
    part = server.definition_part()
    first = webhooks.of(definition(part))
    assert first is not None
    assert webhooks.of(definition(part)) is first
    await first.convert([gear(1)], V2)
    other = webhooks.of(definition(server.definition_part(url=server.url + "/other")))
    assert other is not None
    assert other is not first
    assert await first.convert([gear(2)], V2)  # by requests in flight
    assert webhooks.of(definition(None)) is None
    assert len(webhooks) == 0
    assert await first.convert([gear(3)], V2)  # its resource is still served
    assert webhooks.of(definition(part, name="wheels")) is not None
    await webhooks.close()
    assert len(webhooks) == 0
    with pytest.raises(ServiceUnavailable, match="has changed"):
        await first.convert([gear(1)], V2)


async def is_asked(webhook: WebhookConversion) -> bool:
    try:
        await webhook.convert([gear(1)], V2)
    except ServiceUnavailable:
        return False
    return True


async def test_a_webhook_goes_with_its_last_resource(server: ConversionWebhook) -> None:
    """It may be called until its resource is no longer served, however long the replacement takes;
    a minute later it is closed."""
    clock = SimulatedClock()
    webhooks = Webhooks(Runtime.simulated("webhooks", clock=clock))
    first = webhooks.of(definition(server.definition_part()))
    other = webhooks.of(definition(server.definition_part(url=server.url + "/other")))
    assert first is not None
    await clock.advance(2 * RETIRED_SECONDS)
    assert await is_asked(first)
    webhooks.retire(other)
    webhooks.retire(first)
    await clock.advance(RETIRED_SECONDS + 1)
    assert not await is_asked(first)
    assert other is not None
    assert await is_asked(other)
    await webhooks.close()
    assert not await is_asked(other)
