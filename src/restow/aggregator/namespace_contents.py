"""Deletes the objects of aggregated APIs in a terminating namespace.

The aggregated servers are called through their API, like by the namespace controller of Kubernetes:
all objects of every namespaced, deletable resource are deleted. Their own documents define the
resources, so an unavailable API blocks the deletion of the namespace: its content is unknown. A
server that hangs blocks only its own API, and each call has a timeout.

Implements `restow.controllers.RemoteContents`. Not here: when a namespace may be removed, and
resources that this server hosts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct, field

from restow.aggregator.documents_index import Remotes, RemoteVersion
from restow.aggregator.interface import Backends, Directory, RemoteApi
from restow.aggregator.pools import BackendBusy
from restow.aio import Clock
from restow.aio.events import EventChannel
from restow.client.errors import AnswerTooLarge, ConnectionFailed
from restow.client.transport import ClientRequest
from restow.controllers.namespace_conditions import Leftovers
from restow.registry.reconcile_loops import for_each

ASK_SECONDS_MAX: Final = 10.0
"""Time limit of one call."""
API_SECONDS_MAX: Final = 30.0
"""Time limit of all calls to one API in one pass; the next pass continues."""
PAGE: Final = 500
PAGES_MAX: Final = 20
"""Deletions per resource and pass, where deletecollection is not supported."""
LIST_BYTES_MAX: Final = 16 * 1024 * 1024
ERROR_BYTES_MAX: Final = 64 * 1024
REASON_CHARACTERS_MAX: Final = 256

_JSON: Final = ("Content-Type", "application/json")
# Objects may be large, and only their metadata is needed.
_ACCEPT: Final = (
    "Accept",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
)
# Identity of the calls. A server without RBAC allows its masters everything.
IDENTITY: Final = (
    ("X-Remote-User", "system:serviceaccount:kube-system:namespace-controller"),
    ("X-Remote-Group", "system:serviceaccounts"),
    ("X-Remote-Group", "system:serviceaccounts:kube-system"),
    ("X-Remote-Group", "system:authenticated"),
    ("X-Remote-Group", "system:masters"),
)
_OPTIONS: Final = b'{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}'


class _Named(Struct):
    name: str = ""
    finalizers: list[str] | None = None


class _Item(Struct):
    metadata: _Named = field(default_factory=_Named)


class _ListMeta(Struct, rename="camel"):
    continue_: str = field(default="", name="continue")
    remaining_item_count: int | None = None


class _Listed(Struct):
    metadata: _ListMeta = field(default_factory=_ListMeta)
    items: list[_Item] | None = None


class _Said(Struct):
    message: str = ""


class _Offered(Struct):
    resource: str
    scope: str
    verbs: list[str]


_read_list = msgspec.json.Decoder(_Listed).decode
_read_status = msgspec.json.Decoder(_Said).decode
_read_offers = msgspec.json.Decoder(list[_Offered]).decode


class _CallFailed(Exception):
    """A call did not return the expected response. The message contains the reason."""


@dataclass(frozen=True, slots=True)
class _Collection:
    """The objects of one resource in one namespace."""

    api: RemoteApi
    resource: str
    verbs: frozenset[str]
    namespace: str

    @property
    def title(self) -> str:
        return f"{self.resource}.{self.api.group}"

    @property
    def path(self) -> str:
        root = f"/apis/{self.api.group}/{self.api.version}"
        return f"{root}/namespaces/{self.namespace}/{quote(self.resource, safe='')}"


class RemoteNamespaceContents:
    """Deletes the content of namespaces at the servers of all aggregated APIs."""

    def __init__(
        self,
        directory: Directory,
        documents: Remotes,
        backends: Backends,
        clock: Clock,
        *,
        on_failed: Callable[[str], None],
    ) -> None:
        """`on_failed` is called with the name of an API whose backend failed."""
        self._directory = directory
        self._documents = documents
        self._backends = backends
        self._clock = clock
        self._on_failed = on_failed

    @property
    def changed(self) -> EventChannel[[str]]:
        """Called with a group whose known resources have changed."""
        return self._documents.discovery_changed

    async def empty(self, namespace: str, left: Leftovers) -> None:
        """Delete the objects in a namespace, and record those that remain."""
        versions = list(self._documents.versions())
        for each in versions:
            if not each.is_fresh:
                name = f"{each.api.group}/{each.api.version}"
                why = self._directory.unavailable(each.api) or "it has not been discovered yet"
                left.undiscovered[name] = why
        by_api: dict[RemoteApi, list[_Collection]] = {}
        for collection in _collections(versions, namespace):
            by_api.setdefault(collection.api, []).append(collection)

        async def one(found: tuple[RemoteApi, list[_Collection]]) -> None:
            await self._empty_api(found[0], found[1], left)

        await for_each(by_api.items(), one)

    async def _empty_api(
        self, api: RemoteApi, collections: list[_Collection], left: Leftovers
    ) -> None:
        try:
            async with self._clock.timeout(API_SECONDS_MAX):
                for each in collections:
                    try:
                        await self._empty_one(each, left)
                    except _CallFailed as error:  # continue with the other resources
                        left.failures.append(f"{each.title}: {error}")
        except TimeoutError:
            left.failures.append(f"{api.name}: timed out")
            self._on_failed(api.name)
        except BackendBusy as error:
            left.failures.append(f"{api.name}: {error.what}")
        except ConnectionFailed as error:
            self._on_failed(api.name)
            left.failures.append(f"{api.name}: {error.what}")

    async def _empty_one(self, collection: _Collection, left: Leftovers) -> None:
        """Delete one resource's objects. Raises _CallFailed, ConnectionFailed or TimeoutError."""
        if "list" in collection.verbs:
            found = await self._list(collection)
            if found is None or not found.items:
                return
        if "deletecollection" not in collection.verbs or not await self._delete(
            collection.api, collection.path
        ):
            await self._delete_each(collection)
        if "list" in collection.verbs:
            found = await self._list(collection)
            if found is not None and found.items:
                _note(collection, found, left)

    async def _delete_each(self, collection: _Collection) -> None:
        """Delete objects one by one, for a server without deletecollection."""
        if "list" not in collection.verbs:
            return
        token = ""
        for _ in range(PAGES_MAX):
            found = await self._list(collection, token)
            if found is None:
                return
            for item in found.items or ():
                name = quote(item.metadata.name, safe="")
                if name:
                    await self._delete(collection.api, f"{collection.path}/{name}")
            token = found.metadata.continue_
            if not token:
                return

    async def _list(self, collection: _Collection, token: str = "") -> _Listed | None:
        """Return a page; None if the resource does not exist, although the documents list it."""
        query = {"limit": str(PAGE), **({"continue": token} if token else {})}
        status, body = await self._ask(
            collection.api, "GET", f"{collection.path}?{urlencode(query)}"
        )
        if status in {404, 405}:
            return None
        if status != 200:
            raise _CallFailed(_reason(status, body))
        try:
            return _read_list(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _CallFailed("invalid list response") from error

    async def _delete(self, api: RemoteApi, path: str) -> bool:
        """Delete one object, or all; returns whether the resource exists."""
        status, body = await self._ask(api, "DELETE", path, _OPTIONS)
        if status in {404, 405}:
            return False
        if not 200 <= status < 300 and status != 409:  # on a conflict the next pass retries
            raise _CallFailed(_reason(status, body))
        return True

    async def _ask(
        self, api: RemoteApi, method: str, target: str, body: bytes = b""
    ) -> tuple[int, bytes]:
        headers = (_ACCEPT, *([_JSON] if body else []), *IDENTITY)
        request = ClientRequest(method=method, target=target, headers=headers, body=body)
        async with (
            self._clock.timeout(ASK_SECONDS_MAX),
            self._backends.send(api, request) as response,
        ):
            bytes_max = LIST_BYTES_MAX if response.status < 300 else ERROR_BYTES_MAX
            try:
                return response.status, await response.read(bytes_max=bytes_max)
            except AnswerTooLarge:
                if method != "DELETE" and response.status < 300:
                    raise
                return response.status, b""  # the status is sufficient


def _collections(versions: list[RemoteVersion], namespace: str) -> Iterator[_Collection]:
    """The deletable resources in a namespace, each once: in the preferred version."""
    seen: set[tuple[str, str]] = set()
    for each in versions:
        if not each.is_fresh:
            continue
        for offer in _read_offers(b"[" + each.resources + b"]"):
            name = (each.api.group, offer.resource)
            if offer.scope == "Namespaced" and "delete" in offer.verbs and name not in seen:
                seen.add(name)
                yield _Collection(each.api, offer.resource, frozenset(offer.verbs), namespace)


def _note(collection: _Collection, found: _Listed, left: Leftovers) -> None:
    items = found.items or []
    left.counts[collection.title] = len(items) + max(found.metadata.remaining_item_count or 0, 0)
    for item in items:
        for finalizer in item.metadata.finalizers or ():
            left.finalizers[finalizer] = left.finalizers.get(finalizer, 0) + 1


def _reason(status: int, body: bytes) -> str:
    try:
        said = _read_status(body).message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = ""
    return f"status {status}{': ' if said else ''}{said[:REASON_CHARACTERS_MAX]}"
