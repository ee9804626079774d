"""Conversion webhooks: external servers that convert custom resources between versions.

A webhook may be slow, unavailable or wrong; only requests that need it must be affected. So each
one has its own connections and its own limit of calls in flight, each call has a timeout, and the
size of a response is limited.

The objects of a call are converted together or not at all. `restow.apimachinery.conversion_review`
validates the response. Redirects are not followed: only the server that a CRD names is called.

Not here: when a conversion is needed (`restow.registry`), and admission webhooks.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote, urlsplit

import orjson

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.conversion_review import (
    failure,
    kind_text,
    read_review,
    review_version,
    write_review,
)
from restow.apimachinery.errors import ConversionFailed
from restow.client.config import ClientConfig
from restow.client.connections import ConnectionLimits
from restow.client.errors import ConfigInvalid, ConnectionFailed
from restow.client.transport import ClientRequest, HttpTransport
from restow.registry.custom.conversion import ConversionError, ConversionRefused
from restow.registry.custom.crds import Conversion, CustomResourceDefinition, Webhook
from restow.registry.resource import Object, RemoteConversion

CALL_SECONDS_MAX: Final = 30.0
"""Time limit of one call, from waiting for a slot until the response is read."""
CONNECT_SECONDS_MAX: Final = 10.0
CALLS_MAX: Final = 8
"""Calls in flight to one webhook; further ones wait."""
OBJECTS_MAX: Final = 500
QUESTION_BYTES_MAX: Final = 4 * 1024 * 1024
"""Approximate limit of a request's size; a single object may be larger."""
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
SHOWN_BYTES_MAX: Final = 512
RETIRED_SECONDS: Final = 60.0
"""Time for which requests in flight may still call a webhook that was replaced."""
RETIRED_MAX: Final = 100_000
PORT_DEFAULT: Final = 443

_LIMITS: Final = ConnectionLimits(
    requests_max=CALLS_MAX,
    streams_max=1,
    kept_max=CALLS_MAX,
    connect_seconds_max=CONNECT_SECONDS_MAX,
)
_HEADERS: Final = (("Content-Type", "application/json"), ("Accept", "application/json"))


class WebhookConversion:
    """Client of one webhook. Implements `restow.registry.resource.RemoteConversion`."""

    def __init__(
        self, webhook: Webhook, runtime: Runtime, *, seconds_max: float = CALL_SECONDS_MAX
    ) -> None:
        self._webhook = webhook
        self._clock = runtime.clock
        self._ids = runtime.ids
        self._seconds_max = seconds_max
        self._review_version = review_version(webhook.conversion_review_versions or ())
        self._transport: HttpTransport | None = None
        self._target = ""
        self._shown_url = ""
        self._is_closed = False

    async def convert(self, objects: Sequence[Object], target: str) -> list[Object]:
        """Return the objects in version `target`, in the same order. Raises a `ConversionError`."""
        converted: list[Object] = []
        for some, fragments in _batches(objects):
            converted += await self._ask(some, fragments, target)
        return converted

    async def close(self) -> None:
        """Close its connections. Later calls get a 503, and the retry uses the new webhook."""
        self._is_closed = True
        if self._transport is not None:
            await self._transport.close()

    async def _ask(
        self, objects: Sequence[Object], fragments: list[bytes], target: str
    ) -> list[Object]:
        about = kind_text(objects[0])
        if self._is_closed:
            raise status.unavailable(
                f"the conversion webhook of {about} has changed; try again", retry_after_seconds=1
            )
        uid, version = self._ids.uid(), self._review_version
        if not version:
            raise ConversionError("no supported conversion review versions")
        question = write_review(fragments, target=target, uid=uid, version=version)
        try:
            answer = await self._post(question)
        except _CallFailed as error:
            raise ConversionError(str(failure(about, str(error)))) from error
        try:
            return read_review(answer, objects, target=target, uid=uid, version=version)
        except ConversionFailed as error:
            raise ConversionRefused(str(error)) from error

    async def _post(self, question: bytes) -> bytes:
        transport = self._transport or self._connect()
        request = ClientRequest(
            method="POST",
            target=self._target,
            headers=_HEADERS,
            body=question,
            is_repeatable=True,  # a conversion has no side effects
        )
        try:
            async with (
                self._clock.timeout(self._seconds_max),
                transport.send(request) as response,
            ):
                if not 200 <= response.status < 300:
                    body = await response.read(bytes_max=ANSWER_BYTES_MAX)
                    raise _CallFailed(_refusal(response.status, body))
                return await response.read(bytes_max=ANSWER_BYTES_MAX)
        except TimeoutError as error:
            raise self._failed(f"no response within {self._seconds_max:g} seconds") from error
        except ConnectionFailed as error:
            raise self._failed(error.what) from error
        except ValueError as error:  # the request would be invalid HTTP
            raise self._failed(str(error)) from error

    def _failed(self, why: str) -> _CallFailed:
        return _CallFailed(f'Post "{self._shown_url}": {why}')

    def _connect(self) -> HttpTransport:
        """The transport to the webhook; created on first use, as most are never needed."""
        server, path = address_of(self._webhook)
        self._target = f"{path}?timeout={self._seconds_max:g}s"
        self._shown_url = server + self._target
        try:
            config = ClientConfig(
                server=server, ca_pem=_ca_pem(self._webhook), source="the conversion webhook"
            )
            self._transport = HttpTransport(config, clock=self._clock, limits=_LIMITS)
        except (ConfigInvalid, ValueError) as error:
            raise self._failed(str(error)) from error
        return self._transport


class Webhooks:
    """The conversion webhooks of all CRDs of one server."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._tasks = runtime.tasks(
            "conversion-webhooks", tasks_max=RETIRED_MAX, on_failure=lambda _: None
        )
        self._by_name: dict[str, tuple[Webhook, WebhookConversion]] = {}
        """By CRD name: its current webhook."""
        self._open: set[WebhookConversion] = set()
        """All that may still be called, also by a resource whose replacement is pending."""

    def __len__(self) -> int:
        return len(self._by_name)

    def of(self, definition: CustomResourceDefinition) -> WebhookConversion | None:
        """Return the conversion of a CRD by webhook; None if it has no webhook.

        Its connections are kept as long as the CRD names the same webhook.
        """
        webhook = webhook_of(definition.conversion)
        if webhook is None:
            self._by_name.pop(definition.name, None)
            return None
        before = self._by_name.get(definition.name)
        if before is not None and before[0] == webhook:
            return before[1]
        made = WebhookConversion(webhook, self._runtime)
        self._by_name[definition.name] = (webhook, made)
        self._open.add(made)
        return made

    def drop(self, name: str) -> None:
        """Retire the webhook of a deleted CRD."""
        before = self._by_name.pop(name, None)
        if before is not None:
            self.retire(before[1])

    def retire(self, remote: RemoteConversion | None) -> None:
        """Retire the webhook of a resource that is no longer served, unless a CRD still names
        it."""
        named = {each for _, each in self._by_name.values()}
        if isinstance(remote, WebhookConversion) and remote in self._open - named:
            self._open.discard(remote)
            self._tasks.spawn(f"retire {self._runtime.ids.nonce(8)}", self._retire(remote))

    async def _retire(self, webhook: WebhookConversion) -> None:
        """Close it once requests in flight have completed."""
        try:
            await self._runtime.clock.sleep(RETIRED_SECONDS)
        finally:
            await webhook.close()

    async def close(self) -> None:
        for each in self._open:
            await each.close()
        self._open.clear()
        self._by_name.clear()
        await self._tasks.close()


def webhook_of(conversion: Conversion) -> Webhook | None:
    """The webhook of a CRD, if it has one."""
    return (conversion.webhook or Webhook()) if conversion.is_remote else None


def address_of(webhook: Webhook) -> tuple[str, str]:
    """The server URL of a webhook, and the path on it."""
    client = webhook.client_config
    if client is not None and client.service is not None:
        service = client.service
        port = service.port or PORT_DEFAULT
        server = f"https://{service.name}.{service.namespace}.svc:{port}"
        return server, _path(service.path or "")
    if client is None or not client.url:
        raise _CallFailed("the webhook has neither a service nor a URL")
    try:
        parts = urlsplit(client.url)
    except ValueError as error:
        raise _CallFailed(f"Unparsable URL: {error}") from error
    if parts.scheme != "https":
        raise _CallFailed(f"its URL begins with {parts.scheme[:16]!r} and not with https")
    return f"https://{parts.netloc}", _path(parts.path)


class _CallFailed(Exception):
    """The webhook could not be called. The message contains the reason."""


def _refusal(code: int, body: bytes) -> str:
    """The error of an unsuccessful response, with the wording of Kubernetes' client."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    if isinstance(said, dict) and said.get("kind") == "Status" and said.get("message"):
        return str(said["message"])
    if code == 404:
        return "the server could not find the requested resource"
    if code >= 500:
        text = body[:SHOWN_BYTES_MAX].decode(errors="replace").strip()
        why = json.dumps(text or "unknown", ensure_ascii=False)
        return f"an error on the server ({why}) has prevented the request from succeeding"
    return f"the server responded with the status code {code} but did not return more information"


def _batches(objects: Sequence[Object]) -> Iterator[tuple[Sequence[Object], list[bytes]]]:
    """Split objects into batches that fit into one request, with their encoded bytes."""
    first, size = 0, 0
    fragments: list[bytes] = []
    for index, obj in enumerate(objects):
        fragment = orjson.dumps(obj)
        size += len(fragment)
        if fragments and (size > QUESTION_BYTES_MAX or len(fragments) == OBJECTS_MAX):
            yield objects[first:index], fragments
            first, size, fragments = index, len(fragment), []
        fragments.append(fragment)
    if fragments:
        yield objects[first:], fragments


def _path(path: str) -> str:
    return quote(path if path.startswith("/") else f"/{path}", safe="/%:@!$&'()*+,;=~")


def _ca_pem(webhook: Webhook) -> str | None:
    """The only trusted CAs; None: those of the system."""
    bundle = None if webhook.client_config is None else webhook.client_config.ca_bundle
    if not bundle:
        return None
    try:
        text = base64.b64decode(bundle, validate=False).decode("ascii", errors="replace")
    except binascii.Error as error:
        raise ConfigInvalid(f"its caBundle is no base64: {error}") from error
    return text if text.strip() else None
