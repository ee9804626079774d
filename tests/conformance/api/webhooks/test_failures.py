"""Conversion webhooks with wrong, late or missing responses: a clear error, and no effect on
other requests."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from restow.apiserver.webhooks import ANSWER_BYTES_MAX
from tests.conformance.api.servers import CONFIG_MAPS, TOKEN, RunningServer, config_map
from tests.conformance.api.webhooks.conftest import Host, make
from tests.conformance.api.webhooks.gears import (
    KEY,
    NEW,
    OLD,
    V1,
    V2,
    Object,
    changed,
    convert,
    gear,
)
from tests.support.api_client import ApiClient
from tests.support.certificates import make_certificate
from tests.support.conversion_webhook import ConversionWebhook
from tests.support.webhook_server import Raw

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
HANG_SECONDS = 0.2
FAILED = f"conversion webhook for {V1}, Kind=Gear failed: "


WRONG_OBJECTS = [
    (changed(name="other"), "returned invalid object: must have the same name: g-0000 != other"),
    (
        changed(namespace="other"),
        "returned invalid object: must have the same namespace: default != other",
    ),
    (changed(uid="u"), "returned invalid object: must have the same UID: "),
    (
        changed(labels={"a": 1}),
        "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted",
    ),
    (changed(labels={"a": "no label!"}), "returned invalid metadata: metadata.labels: Invalid"),
    (
        lambda obj, _: obj,
        f"returned invalid object at index 0: invalid groupVersion (expected {V2}, received {V1})",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_OBJECTS)
async def test_wrong_objects(
    server: RunningServer,
    webhook: ConversionWebhook,
    wrong: Callable[[Object, str], Object],
    message: str,
) -> None:
    """A converted object with another identity is refused, and nothing is stored or served."""
    api = server.client
    await make(api, 1)
    webhook.convert = wrong
    for reply in (await api.get(f"{NEW}/g-0000"), await api.get(NEW)):
        assert (reply.status, reply.reason) == (500, "")
        assert reply.message.startswith(f"conversion webhook for {V1}, Kind=Gear {message}")
    webhook.convert = convert
    assert (await api.get(f"{NEW}/g-0000")).status == 200


async def test_metadata_is_restored(server: RunningServer, webhook: ConversionWebhook) -> None:
    """All other metadata in the webhook's response is replaced by the original."""
    api = server.client
    await make(api, 1, finalizers=["example.com/hold"])
    before = (await api.get(f"{OLD}/g-0000")).json["metadata"]
    webhook.convert = changed(
        finalizers=[], generation=77, creationTimestamp=None, annotations={"a": "b"}
    )
    seen = (await api.get(f"{NEW}/g-0000")).json["metadata"]
    assert seen == {**before, "labels": {"seen-in": "v2"}, "annotations": {"a": "b"}}


WRONG_ANSWERS = [
    (lambda _: Raw(b"{"), "couldn't get version/kind; json parse error: "),
    (lambda _: {"kind": "Status"}, "expected webhook response of "),
    (lambda _: Raw(b"gone", "404 Not Found"), "the server could not find the requested resource"),
    (
        lambda _: Raw(b"", "302 Found", (("Location", "https://127.0.0.1:1/"),)),
        "the server responded with the status code 302 but did not return more information",
    ),
    (
        lambda _: Raw(b"no idea", "503 Service Unavailable"),
        'an error on the server ("no idea") has prevented the request from succeeding',
    ),
    (lambda _: Raw(b" " * (ANSWER_BYTES_MAX + 1)), "Post "),
]


@pytest.mark.parametrize(("behave", "message"), WRONG_ANSWERS)
async def test_wrong_answers(
    server: RunningServer, webhook: ConversionWebhook, behave: Any, message: str
) -> None:
    """A response that is no ConversionReview fails the request, and only that."""
    api = server.client
    await make(api, 1)
    webhook.behave = behave
    reply = await api.get(f"{NEW}/g-0000")
    assert reply.status == 500
    assert reply.message.startswith(FAILED + message)
    refused = await api.post(NEW, gear("b", 1, version="v2"))
    assert refused.status == 500
    assert await server.raw(f"{KEY}/b") is None
    assert (await api.get(f"{OLD}/g-0000")).status == 200
    webhook.behave = None
    assert (await api.get(f"{NEW}/g-0000")).status == 200


async def test_failure_message_of_the_webhook(
    server: RunningServer, webhook: ConversionWebhook
) -> None:
    """The message of a refused conversion is returned to the client."""
    api = server.client
    await make(api, 1)

    def refuse(review: Object) -> Object:
        answer = webhook.answer(review)
        answer["response"]["result"] = {"status": "Failed", "message": "no gears today"}
        return answer

    webhook.behave = refuse
    assert (await api.get(f"{NEW}/g-0000")).message == f"{FAILED}no gears today"


async def test_hanging(host: Host, webhook: ConversionWebhook) -> None:
    """While a webhook hangs, other kinds and the stored version are served; then it times out."""
    server: RunningServer = await host(webhook.definition_part(), seconds_max=HANG_SECONDS)
    api = server.client
    await make(api, 1)
    hanging = asyncio.Event()

    async def hang(review: Object) -> Object:
        await hanging.wait()
        return webhook.answer(review)

    webhook.behave = hang
    clients = [ApiClient(server.port, token=TOKEN) for _ in range(20)]
    try:
        waiting = [asyncio.ensure_future(each.get(f"{NEW}/g-0000")) for each in clients]
        assert (await api.post(CONFIG_MAPS, config_map("c"))).status == 201
        assert (await api.get(f"{OLD}/g-0000")).status == 200
        assert (await api.post(OLD, gear("b", 1))).status == 201
        replies = await asyncio.gather(*waiting)
    finally:
        for each in clients:
            await each.close()
    why = f"no response within {HANG_SECONDS:g} seconds"
    assert {reply.status for reply in replies} == {500}
    assert all(reply.message.startswith(f'{FAILED}Post "https:') for reply in replies)
    assert all(reply.message.endswith(why) for reply in replies)
    hanging.set()
    webhook.behave = None
    assert (await api.get(f"{NEW}/g-0000")).status == 200


async def test_stopped_and_restarted(server: RunningServer, webhook: ConversionWebhook) -> None:
    """A stopped webhook fails requests; one that was only restarted does not."""
    api = server.client
    await make(api, 3)
    assert (await api.get(f"{NEW}/g-0000")).status == 200
    webhook.cut()
    assert (await api.get(f"{NEW}/g-0001")).status == 200
    assert webhook.connections == 2
    await webhook.stop()
    gone = await api.get(f"{NEW}/g-0002")
    assert gone.status == 500
    assert gone.message == f'{FAILED}Post "{webhook.url}?timeout=30s": connection refused'
    assert (await api.get(f"{OLD}/g-0002")).status == 200
    await webhook.listen()
    assert (await api.get(f"{NEW}/g-0002")).status == 200


async def test_ca_bundle(host: Host, webhook: ConversionWebhook, tmp_path: Path) -> None:
    """Only a webhook whose certificate is signed by the CRD's caBundle is called."""
    other_ca = make_certificate(tmp_path / "stranger", name="stranger")
    pem = other_ca.ca_file.read_bytes()
    other = webhook.definition_part()
    other["webhook"]["clientConfig"]["caBundle"] = base64.b64encode(pem).decode()
    server: RunningServer = await host(other)
    await make(server.client, 1)
    reply = await server.client.get(f"{NEW}/g-0000")
    assert reply.status == 500
    assert "certificate is not trusted" in reply.message
    assert not webhook.questions
