"""Whether the objects of a cluster can be read: every resource is listed, page by page.

A value that a server cannot decode makes each list of its resource fail with 500, independently
of StorageStates. Lists are metadata-only, and no page is kept.

Not here: storage versions of the objects, and remedies for those that cannot be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from restow.apimachinery.status import MethodNotAllowed, NotFound, ServerTimeout
from restow.apimachinery.status_error import StatusError
from restow.client import ApiClient, ApiResource, ClientError, ListOptions
from restow.client.retry_policy import NO_RETRY

PAGE_OBJECTS: Final = 500
IN_FLIGHT_MAX: Final = 8
INTERNAL_ERROR: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A resource that could not be listed."""

    resource: str
    is_damaged: bool
    """The store holds values that the server cannot decode. False: the list failed otherwise."""
    why: str


async def find_unread(
    client: ApiClient, resources: Iterable[ApiResource], *, pages_max: int | None = None
) -> list[Unread]:
    """List all resources that support it, up to `pages_max` pages each; return the failures.

    A restow server fails the first page if any value of the resource cannot be read; other servers
    fail the page that has it.
    """
    places = asyncio.Semaphore(IN_FLIGHT_MAX)
    once = client.with_retry(NO_RETRY)
    found: list[Unread] = []

    async def read(resource: ApiResource) -> None:
        async with places:
            if (unread := await _read(once, resource, pages_max)) is not None:
                found.append(unread)

    async with asyncio.TaskGroup() as group:
        for each in resources:
            if "list" in each.verbs:
                group.create_task(read(each), name=f"list {each.group_resource}")
    return sorted(found, key=lambda each: each.resource)


async def _read(client: ApiClient, resource: ApiResource, pages_max: int | None) -> Unread | None:
    options = ListOptions(limit=PAGE_OBJECTS)
    pages = client.pages(
        resource.resource, options=options, metadata_only=True, continue_when_expired=True
    )
    count = 0
    try:
        async with aclosing(pages):
            async for _ in pages:
                count += 1
                if count == pages_max:
                    break
    except (NotFound, MethodNotAllowed):
        return None  # removed concurrently, or without lists after all
    except (StatusError, ClientError) as error:
        is_damaged = (
            isinstance(error, StatusError)
            and error.code == INTERNAL_ERROR
            and not isinstance(error, ServerTimeout)
        )
        return Unread(resource=str(resource.group_resource), is_damaged=is_damaged, why=str(error))
    return None
