"""The API client: all verbs, for restow and any Kubernetes API server.

    async with ApiClient.connect(config, runtime=runtime) as client:
        config_maps = (await client.discover()).find("cm").resource
        async for page in client.pages(config_maps, namespace="default"):
            ...
        async with client.watch(config_maps, resource_version=page.resource_version) as events:
            async for event in events:
                ...

Objects are plain dictionaries. An error of the API is a subclass of StatusError, and an unreachable
server is a ConnectionFailed.

Not here: caches (`informer`), and knowledge of specific kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import restow
from restow.aio import Runtime
from restow.apimachinery.names import GroupVersion, GroupVersionResource
from restow.apimachinery.status import Expired, NotFound
from restow.apimachinery.status_error import StatusError
from restow.client import discovery
from restow.client.caller import Caller, ClientLimits
from restow.client.config import ClientConfig
from restow.client.connections import ConnectionLimits
from restow.client.discovery import ApiGroup, ApiResource, DiscoveredResources
from restow.client.errors import ConnectionFailed
from restow.client.objects import Object, key_of, metadata_of, version_of
from restow.client.paths import (
    JSON,
    PARTIAL,
    PARTIAL_LIST,
    ListOptions,
    PatchType,
    Propagation,
    WriteOptions,
    delete_options,
    group_version_path,
    resource_path,
    with_query,
)
from restow.client.retry_policy import RetryPolicy
from restow.client.transport import HttpTransport, Transport
from restow.client.watcher import Watcher, WatchEvent, WatchPolicy

USER_AGENT: Final = f"restow/{restow.__version__}"
DISCOVERY_IN_FLIGHT_MAX: Final = 8
# Limit of consecutive 410 responses to a continue token.
EXPIRATIONS_MAX: Final = 3

_LIST_DEFAULT: Final = ListOptions()
_WRITE_DEFAULT: Final = WriteOptions()
_NO_QUERY: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list."""

    items: list[Object]
    resource_version: str
    """The version of the whole list: if the pages are consistent, a watch can start from it."""
    continue_token: str
    """The token for the next page; empty on the last one."""
    remaining: int | None
    """The number of remaining objects, if the server sends it."""
    is_consistent: bool = True
    """Whether all pages so far are from the same resource version."""


class ApiClient:
    """A client for one server and one user."""

    def __init__(
        self,
        transport: Transport,
        *,
        runtime: Runtime,
        retry: RetryPolicy | None = None,
        limits: ClientLimits | None = None,
        user_agent: str = USER_AGENT,
    ) -> None:
        self._caller = Caller(
            transport,
            runtime=runtime,
            retry=retry or RetryPolicy(),
            limits=limits or ClientLimits(),
            user_agent=user_agent,
        )

    @classmethod
    def connect(
        cls,
        config: ClientConfig,
        *,
        runtime: Runtime,
        connections: ConnectionLimits | None = None,
        retry: RetryPolicy | None = None,
        limits: ClientLimits | None = None,
        user_agent: str = USER_AGENT,
    ) -> Self:
        """A client over HTTP. It connects on the first request."""
        transport = HttpTransport(config, clock=runtime.clock, limits=connections)
        return cls(transport, runtime=runtime, retry=retry, limits=limits, user_agent=user_agent)

    @property
    def server(self) -> str:
        """The server address, for messages."""
        return self._caller.transport.server

    @property
    def runtime(self) -> Runtime:
        return self._caller.runtime

    def with_retry(self, retry: RetryPolicy) -> ApiClient:
        """The same client with another retry policy, on the same connections."""
        caller = self._caller
        return ApiClient(
            caller.transport,
            runtime=caller.runtime,
            retry=retry,
            limits=caller.limits,
            user_agent=caller.user_agent,
        )

    async def close(self) -> None:
        await self._caller.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Reads.

    async def get(
        self,
        resource: GroupVersionResource,
        name: str,
        *,
        namespace: str = "",
        subresource: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
    ) -> Object:
        """Get an object. With a resource version, the state is at least as new."""
        path = resource_path(
            resource, namespace=namespace, name=_named(name), subresource=subresource
        )
        return await self._caller.call_json(
            "GET",
            with_query(path, {"resourceVersion": resource_version}),
            accept=PARTIAL if metadata_only else JSON,
        )

    async def list_page(
        self,
        resource: GroupVersionResource,
        *,
        namespace: str = "",
        options: ListOptions = _LIST_DEFAULT,
        continue_token: str = "",
        metadata_only: bool = False,
    ) -> ListPage:
        """List one page. An empty namespace means all namespaces."""
        path = resource_path(resource, namespace=namespace)
        body = await self._caller.call_json(
            "GET",
            with_query(path, options.query(continue_token)),
            accept=PARTIAL_LIST if metadata_only else JSON,
        )
        return self._read_page(body)

    async def pages(
        self,
        resource: GroupVersionResource,
        *,
        namespace: str = "",
        options: ListOptions = _LIST_DEFAULT,
        continue_token: str = "",
        metadata_only: bool = False,
        continue_when_expired: bool = False,
    ) -> AsyncGenerator[ListPage, None]:
        """List all pages, starting at a continue token if given.

        When the token is expired, Expired is raised or, with `continue_when_expired`, the list
        continues at the current version: no remaining object is missing, but it is inconsistent.
        """
        token, is_consistent, expirations = continue_token, True, 0
        for _ in range(self._caller.limits.pages_max):
            try:
                page = await self.list_page(
                    resource,
                    namespace=namespace,
                    options=options,
                    continue_token=token,
                    metadata_only=metadata_only,
                )
            except Expired as error:
                expirations += 1
                can_continue = continue_when_expired and error.continue_token
                if not can_continue or expirations > EXPIRATIONS_MAX:
                    raise
                token, is_consistent = error.continue_token, False
                continue
            if page.continue_token and page.continue_token == token:
                raise self._invalid("a page whose continue token is its own")
            expirations, token = 0, page.continue_token
            yield page if is_consistent else replace(page, is_consistent=False)
            if not token:
                return
        raise self._invalid(f"more than {self._caller.limits.pages_max} pages")

    async def items(
        self,
        resource: GroupVersionResource,
        *,
        namespace: str = "",
        options: ListOptions = _LIST_DEFAULT,
        metadata_only: bool = False,
        continue_when_expired: bool = False,
    ) -> AsyncGenerator[Object, None]:
        """List all objects, page by page."""
        pages = self.pages(
            resource,
            namespace=namespace,
            options=options,
            metadata_only=metadata_only,
            continue_when_expired=continue_when_expired,
        )
        async with aclosing(pages):
            async for page in pages:
                for item in page.items:
                    yield item

    @asynccontextmanager
    async def watch(
        self,
        resource: GroupVersionResource,
        *,
        resource_version: str,
        namespace: str = "",
        options: ListOptions = _LIST_DEFAULT,
        metadata_only: bool = False,
        policy: WatchPolicy | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Watch from a resource version, with bookmarks; only the selectors of the options apply.

        It is reopened when it ends or breaks. After Expired, list again and watch from there.
        """
        watcher = Watcher(
            self._caller,
            resource_path(resource, namespace=namespace),
            query=options.selectors(),
            resource_version=resource_version,
            policy=policy or WatchPolicy(),
            metadata_only=metadata_only,
        )
        async with aclosing(watcher.events()) as events:
            yield events

    # Writes.

    async def create(
        self,
        resource: GroupVersionResource,
        body: Object,
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        options: WriteOptions = _WRITE_DEFAULT,
    ) -> Object:
        """Create an object, in the given namespace or its own. A name is only for a subresource."""
        path = resource_path(
            resource,
            namespace=namespace or key_of(body).namespace,
            name=name,
            subresource=subresource,
        )
        return await self._caller.call_json("POST", with_query(path, options.query()), body=body)

    async def update(
        self,
        resource: GroupVersionResource,
        body: Object,
        *,
        namespace: str = "",
        subresource: str = "",
        options: WriteOptions = _WRITE_DEFAULT,
    ) -> Object:
        """Replace an object; a resource version in it is a precondition."""
        key = key_of(body)
        path = resource_path(
            resource,
            namespace=namespace or key.namespace,
            name=_named(key.name),
            subresource=subresource,
        )
        return await self._caller.call_json("PUT", with_query(path, options.query()), body=body)

    async def patch(
        self,
        resource: GroupVersionResource,
        name: str,
        patch: Object | list[Any],
        *,
        patch_type: PatchType = PatchType.MERGE,
        namespace: str = "",
        subresource: str = "",
        options: WriteOptions = _WRITE_DEFAULT,
        metadata_only: bool = False,
    ) -> Object:
        """Patch an object. An apply needs a field manager, and creates a missing object.

        With `metadata_only`, the response has only the metadata of the object.
        """
        if patch_type is PatchType.APPLY and not options.field_manager:
            raise ValueError("an apply needs a field manager")
        path = resource_path(
            resource, namespace=namespace, name=_named(name), subresource=subresource
        )
        return await self._caller.call_json(
            "PATCH",
            with_query(path, options.query()),
            accept=PARTIAL if metadata_only else JSON,
            body=patch,
            content_type=str(patch_type),
        )

    async def delete(
        self,
        resource: GroupVersionResource,
        name: str,
        *,
        namespace: str = "",
        subresource: str = "",
        query: Mapping[str, str] = _NO_QUERY,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete an object, with uid and resource version as preconditions. Returns a Status, or
        the object while it is terminating. `query` has parameters of a subresource."""
        body = delete_options(
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
            grace_period_seconds=grace_period_seconds,
            dry_run=dry_run,
        )
        path = resource_path(
            resource, namespace=namespace, name=_named(name), subresource=subresource
        )
        return await self._caller.call_json("DELETE", with_query(path, query), body=body)

    async def delete_collection(
        self,
        resource: GroupVersionResource,
        *,
        namespace: str = "",
        options: ListOptions = _LIST_DEFAULT,
        propagation: Propagation | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete all objects that match the selectors, one after another."""
        body = delete_options(propagation=propagation, dry_run=dry_run)
        path = resource_path(resource, namespace=namespace)
        return await self._caller.call_json(
            "DELETE", with_query(path, options.selectors()), body=body
        )

    # Discovery.

    async def version(self) -> dict[str, Any]:
        """Return the document at `/version`."""
        return await self._caller.call_json("GET", "/version")

    async def text(self, path: str) -> str:
        """Return a document that is not an object, such as `/readyz` or `/metrics`."""
        return (await self._caller.call("GET", path, accept="*/*")).decode(errors="replace")

    async def groups(self) -> list[ApiGroup]:
        """Return the API groups, the core group first, in the order of name lookups."""
        found: list[ApiGroup] = []
        try:
            core = discovery.read_core(await self._caller.call_json("GET", "/api"))
            found += [core] if core else []
        except NotFound:
            pass  # a server without the core group
        found += discovery.read_groups(await self._caller.call_json("GET", "/apis"))
        if sum(len(group.versions) for group in found) > discovery.GROUP_VERSIONS_MAX:
            raise self._invalid(f"more than {discovery.GROUP_VERSIONS_MAX} group versions")
        return found

    async def resources(self, group_version: GroupVersion) -> list[ApiResource]:
        """Return the resources of one group version."""
        path = group_version_path(group_version)
        document = await self._caller.call_json("GET", path)
        return discovery.read_resources(document, group_version)

    async def discover(self) -> DiscoveredResources:
        """Discover all resources. Group versions that cannot be read are listed in `failures`."""
        groups = await self.groups()
        wanted = [GroupVersion(each.name, version) for each in groups for version in each.versions]
        found: dict[GroupVersion, list[ApiResource]] = {}
        failures: dict[GroupVersion, Exception] = {}
        slots = asyncio.Semaphore(DISCOVERY_IN_FLIGHT_MAX)

        async def read(group_version: GroupVersion) -> None:
            async with slots:
                try:
                    found[group_version] = await self.resources(group_version)
                except (StatusError, ConnectionFailed) as error:
                    failures[group_version] = error

        async with asyncio.TaskGroup() as group:
            for each in wanted:
                group.create_task(read(each))
        resources = tuple(each for place in wanted for each in found.get(place, ()))
        if len(resources) > discovery.RESOURCES_MAX:
            raise self._invalid(f"more than {discovery.RESOURCES_MAX} resources")
        return DiscoveredResources(tuple(groups), resources, failures)

    def _read_page(self, body: Object) -> ListPage:
        items = body.get("items")
        kind = body.get("kind")
        if items is None:
            items = []
        if not isinstance(items, list) or not isinstance(kind, str) or "metadata" not in body:
            raise self._invalid("a response that is not a list")
        metadata = metadata_of(body)
        remaining = metadata.get("remainingItemCount")
        return ListPage(
            items=_with_kinds(items, kind, body.get("apiVersion")),
            resource_version=version_of(body),
            continue_token=str(metadata.get("continue") or ""),
            remaining=remaining if isinstance(remaining, int) else None,
        )

    def _invalid(self, what: str) -> ConnectionFailed:
        return ConnectionFailed(
            self.server,
            f"the server sent {what}",
            advice="The server does not conform to the API: please report it",
        )


def _named(name: str) -> str:
    if not name:
        raise ValueError("the object has no name")
    return name


def _with_kinds(items: list[Any], list_kind: str, api_version: object) -> list[Object]:
    """Add `kind` and `apiVersion` to the items, which lists of built-in kinds omit."""
    objects = [item for item in items if isinstance(item, dict)]
    kind = list_kind.removesuffix("List")
    if kind != list_kind:
        for item in objects:
            item.setdefault("apiVersion", api_version)
            item.setdefault("kind", kind)
    return objects
