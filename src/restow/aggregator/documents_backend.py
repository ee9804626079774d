"""The documents of one backend: fetched, validated, and cached.

A backend is one address, and may serve several APIs. Its documents for all of them are fetched
once. After a failure the cached documents stay; an invalid document is never cached.

Not here: when it is queried (`documents`), and how the documents are used.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

import orjson

from restow.aggregator.documents_discovery import (
    AGGREGATED_ACCEPT,
    DiscoveryBad,
    is_aggregated,
    read_aggregated,
    read_plain,
)
from restow.aggregator.documents_fetch import Fetched, FetchFailed, Wanted, fetch
from restow.aggregator.interface import Backends, RemoteApi, ServiceRef
from restow.aio import Clock
from restow.apimachinery.names import GroupVersion
from restow.openapi import (
    Document,
    ForeignDocumentBad,
    ForeignSpec,
    converted,
    foreign_spec,
)
from restow.openapi.documents import finish

DISCOVERY_SECONDS_MAX: Final = 5.0
OPENAPI_SECONDS_MAX: Final = 30.0
DISCOVERY_BYTES_MAX: Final = 4 * 1024 * 1024
INDEX_BYTES_MAX: Final = 1024 * 1024
OPENAPI_BYTES_MAX: Final = 16 * 1024 * 1024

_APIS: Final = Wanted(
    target="/apis",
    accept=AGGREGATED_ACCEPT,
    bytes_max=DISCOVERY_BYTES_MAX,
    seconds_max=DISCOVERY_SECONDS_MAX,
)
_INDEX: Final = Wanted(
    target="/openapi/v3", bytes_max=INDEX_BYTES_MAX, seconds_max=OPENAPI_SECONDS_MAX
)
_V2: Final = Wanted(
    target="/openapi/v2", bytes_max=OPENAPI_BYTES_MAX, seconds_max=OPENAPI_SECONDS_MAX
)

T = TypeVar("T")


class BackendOrigin(NamedTuple):
    """Address and TLS trust of a backend."""

    service: ServiceRef
    ca_pem: str | None
    is_unverified: bool

    @classmethod
    def of(cls, api: RemoteApi) -> BackendOrigin:
        return cls(api.service, api.ca_pem, api.is_unverified)

    def __str__(self) -> str:
        return f"{self.service.namespace}/{self.service.name}:{self.service.port}"


@dataclass(slots=True)
class _Kept:
    """Validators of a document, to skip reading an unchanged one."""

    tag: str = ""
    """The backend's ETag."""
    digest: bytes = b""
    """A hash computed by this server, for backends without ETags."""


class BackendDocuments:
    """Documents of one backend."""

    def __init__(
        self, backends: Backends, clock: Clock, *, reading: asyncio.Lock, apis: Sequence[RemoteApi]
    ) -> None:
        """`reading`: large documents are parsed one at a time, as each needs much memory."""
        self._backends = backends
        self._clock = clock
        self._reading = reading
        self.apis = tuple(apis)
        self.resources: dict[GroupVersion, bytes] = {}
        """Aggregated discovery; a group version without an entry was never read."""
        self.fresh: set[GroupVersion] = set()
        """Group versions whose last query succeeded."""
        self.v3: dict[GroupVersion, Document] = {}
        self.v2: dict[GroupVersion, ForeignSpec] = {}
        self._kept: dict[str, _Kept] = {}
        """By request target."""
        self._places_v3: dict[GroupVersion, str] = {}
        """Path and hash of each document, from the index."""
        self._without_v3: dict[GroupVersion, bytes] = {}
        """Group versions without an OpenAPI v3 document, with the hash of their v2 source."""

    def renew(self, apis: Sequence[RemoteApi]) -> None:
        """Set APIs of the same group versions; what was read of them stays."""
        self.apis = tuple(apis)

    def replace(self, apis: Sequence[RemoteApi]) -> None:
        """Set the APIs of the backend; all of them are read again."""
        self.apis = tuple(apis)
        self._kept.clear()
        self._places_v3.clear()
        served = {api.group_version for api in apis}
        self.fresh &= served
        self.resources = {key: each for key, each in self.resources.items() if key in served}
        self.v3 = {key: each for key, each in self.v3.items() if key in served}
        self.v2 = {key: each for key, each in self.v2.items() if key in served}
        self._without_v3 = {key: each for key, each in self._without_v3.items() if key in served}

    async def discover(self, apis: Sequence[RemoteApi]) -> None:
        """Read the resources of the available APIs. Raises FetchFailed."""
        try:
            answer = await self._fetch(apis[0], _APIS)
            if answer.is_unchanged:
                self.fresh = set(self.resources)
                return
            if answer.status == 200 and is_aggregated(answer.content_type):
                found = await self._read(_APIS.target, lambda: read_aggregated(answer.body))
                # All current APIs: they may have changed since the query was sent.
                self.resources = {
                    api.group_version: found.get(api.group_version, b"") for api in self.apis
                }
                self.fresh = set(self.resources)
                self._keep(_APIS.target, answer)
                return
        except FetchFailed:
            self.fresh.clear()
            raise
        self._kept.pop(_APIS.target, None)
        await _each(self._discover_plain, apis)

    async def _discover_plain(self, api: RemoteApi) -> None:
        wanted = Wanted(
            target=f"/apis/{_path(api)}",
            bytes_max=DISCOVERY_BYTES_MAX,
            seconds_max=DISCOVERY_SECONDS_MAX,
        )
        self.fresh.discard(api.group_version)
        answer = await self._fetch(api, wanted)
        if not answer.is_unchanged:
            _check_status(wanted, answer)
            resources = await self._read(
                wanted.target, lambda: read_plain(answer.body, api.group_version)
            )
            self._keep(wanted.target, answer)
            self.resources[api.group_version] = resources
        self.fresh.add(api.group_version)

    async def describe(self, apis: Sequence[RemoteApi]) -> None:
        """Read the OpenAPI documents, v2 and v3, even if one fails. Raises FetchFailed."""

        async def ask(describe: Callable[[Sequence[RemoteApi]], Awaitable[None]]) -> None:
            await describe(apis)

        await _each(ask, (self._describe_v3, self._describe_v2, self._convert))

    async def _describe_v3(self, apis: Sequence[RemoteApi]) -> None:
        answer = await self._fetch(apis[0], _INDEX)
        places: dict[str, str] = {}
        if answer.status != 404:
            _check_status(_INDEX, answer)
            places = await self._read(_INDEX.target, lambda: _read_index(answer.body))

        async def describe(api: RemoteApi) -> None:
            name = api.group_version
            place = places.get(f"apis/{name}")
            if place is None:
                self._places_v3.pop(name, None)
                self._kept.pop(_v3_target(api), None)
                if self._without_v3.setdefault(name, b"") == b"":
                    self.v3.pop(name, None)
            elif "hash=" not in place or self._places_v3.get(name) != place:
                await self._describe_one(api)
                self._places_v3[name] = place
                self._without_v3.pop(name, None)

        await _each(describe, apis)

    async def _describe_one(self, api: RemoteApi) -> None:
        # Not the address in the index: it may point anywhere.
        wanted = Wanted(
            target=_v3_target(api),
            bytes_max=OPENAPI_BYTES_MAX,
            seconds_max=OPENAPI_SECONDS_MAX,
        )
        answer = await self._fetch(api, wanted)
        if answer.is_unchanged:
            return
        _check_status(wanted, answer)
        self.v3[api.group_version] = await self._read(
            wanted.target, lambda: _checked_v3(answer.body)
        )
        self._keep(wanted.target, answer)

    async def _describe_v2(self, apis: Sequence[RemoteApi]) -> None:
        answer = await self._fetch(apis[0], _V2)
        if answer.is_unchanged:
            return
        if answer.status == 404:
            self.v2 = {}
            self._kept.pop(_V2.target, None)
            return
        _check_status(_V2, answer)
        known = self._kept.get(_V2.target)
        if known is not None and known.digest == _digest(answer.body):
            return
        served = self.apis
        wanted = [api.group_version for api in served]
        found = await self._read(_V2.target, lambda: _read_v2(answer.body, wanted))
        if self.apis is served:  # else they have changed, and are read again
            self.v2 = found
            self._keep(_V2.target, answer)

    async def _convert(self, _apis: Sequence[RemoteApi]) -> None:
        """Derive the documents that the backend does not have from its OpenAPI v2 document."""
        for name, digest in list(self._without_v3.items()):
            spec = self.v2.get(name)
            if spec is None:
                self._without_v3[name] = b""
                self.v3.pop(name, None)
            elif spec.digest != digest:
                async with self._reading:
                    self.v3[name] = await asyncio.to_thread(converted, spec, title=str(name))
                self._without_v3[name] = spec.digest

    async def _fetch(self, api: RemoteApi, wanted: Wanted) -> Fetched:
        kept = self._kept.get(wanted.target)
        tag = kept.tag if kept is not None else ""
        return await fetch(self._backends, api, wanted, clock=self._clock, tag=tag)

    def _keep(self, target: str, answer: Fetched) -> None:
        self._kept[target] = _Kept(answer.tag, _digest(answer.body))

    async def _read(self, target: str, read: Callable[[], T]) -> T:
        """Parse a document in a thread. Raises FetchFailed if it is invalid."""
        try:
            async with self._reading:
                return await asyncio.to_thread(read)
        except (DiscoveryBad, ForeignDocumentBad, RecursionError, orjson.JSONDecodeError) as error:
            raise FetchFailed(f"{target}: invalid response: {error}") from error


async def _each(ask: Callable[[T], Awaitable[None]], about: Iterable[T]) -> None:
    """Call `ask` for all items in sequence, and raise the first failure at the end."""
    failed: FetchFailed | None = None
    for each in about:
        try:
            await ask(each)
        except FetchFailed as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _path(api: RemoteApi) -> str:
    return f"{quote(api.group, safe='')}/{quote(api.version, safe='')}"


def _v3_target(api: RemoteApi) -> str:
    return f"/openapi/v3/apis/{_path(api)}"


def _check_status(wanted: Wanted, answer: Fetched) -> None:
    if answer.status != 200:
        raise FetchFailed(f"{wanted.target}: the response has status {answer.status}")


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _read_index(body: bytes) -> dict[str, str]:
    document = orjson.loads(body)
    paths = document.get("paths") if isinstance(document, dict) else None
    if not isinstance(paths, dict):
        raise ForeignDocumentBad("it is not an index of OpenAPI v3 documents")
    return {
        name: str(entry.get("serverRelativeURL"))
        for name, entry in paths.items()
        if isinstance(entry, dict)
    }


def _checked_v3(body: bytes) -> Document:
    """Return a document unchanged if it is an OpenAPI v3 document."""
    document = orjson.loads(body)
    if not isinstance(document, dict) or not str(document.get("openapi")).startswith("3."):
        raise ForeignDocumentBad("it is not an OpenAPI v3 document")
    if not isinstance(document.get("paths"), dict):
        raise ForeignDocumentBad("it has no paths")
    return finish([body])


def _read_v2(body: bytes, wanted: Sequence[GroupVersion]) -> dict[GroupVersion, ForeignSpec]:
    document = orjson.loads(body)
    found = {
        each: foreign_spec(document, group=each.group, version=each.version) for each in wanted
    }
    return {each: spec for each, spec in found.items() if spec is not None}
