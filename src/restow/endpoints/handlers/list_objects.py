"""list: objects of a collection, in pages, at the requested resource version.

First pages and unpaginated lists are read from the cache. A page of a list whose revision the cache
no longer has is read from the store at that revision. Objects that a webhook converts are converted
first, in batches: selectors apply to the objects as the client gets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import orjson

from restow.apimachinery import field_errors, status
from restow.apimachinery.codec import LONG_BODY_SIZE
from restow.apimachinery.names import GroupKind
from restow.endpoints.continue_tokens import INCONSISTENT, PageStart
from restow.endpoints.handlers.get import (
    fresh_enough,
    parse_resource_version,
    resource_of,
    wait_for_version,
)
from restow.endpoints.handlers.server import Server
from restow.endpoints.list_selectors import ListSelectors
from restow.endpoints.partial_metadata import (
    META_V1,
    PARTIAL_LIST,
    PARTIAL_OBJECT,
    partial_object_bytes,
)
from restow.endpoints.representations import list_in_form
from restow.httpserver.response import Answer
from restow.registry.errors import VersionUnknown, translate
from restow.registry.resource import Resource
from restow.registry.watch_cache import CachedObjects as Slice
from restow.registry.watch_cache import Entry, WatchCache
from restow.request.context import Context
from restow.request.protobuf_messages import items_of, list_message
from restow.request.responses import Bodies, respond_list, respond_message, wants_message
from restow.storage.errors import CannotOpen, Compacted, StorageError, StoreDamaged
from restow.storage.interface import Revision, Span

LIMIT_MAX: Final = 1 << 31
LISTS_KEPT_MAX: Final = 16
"""Complete lists cached per resource, until one of its objects changes."""
SLICE_ITEMS: Final = 500
"""Objects processed per iteration of the event loop: a few milliseconds if all must be decoded."""
SLICE_BYTES: Final = 1024 * 1024
"""The same in bytes of objects."""
FEW_ITEMS: Final = 50
"""So many objects need no slices."""
_MATCHES: Final = ("Exact", "NotOlderThan")


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The parsed parameters of a list."""

    limit: int
    version: int | None
    """None: the latest."""
    exact: bool
    place: PageStart | None
    """The start of the page, if a continue token was given."""


@dataclass(slots=True)
class FoundPage:
    """The objects of one page."""

    paths: list[str]
    entries: list[Entry]
    revision: int
    next_start: str = ""
    remaining: int | None = None


async def list_objects(server: Server, context: Context) -> Answer:
    """GET of a collection."""
    resource = resource_of(context)
    selection = ListSelectors(resource, context.info)
    query = read_query(server, context, selection)
    if query.place is None and not query.exact:
        cache = await fresh_enough(server, context, query.version)
        if _must_wait(context, cache, selection):
            found = await _from_cache_in_slices(server, context, cache, selection, query)
            return await _answer(server, context, selection, found)
        return await _answer_now(server, context, cache, selection, query)
    cache = await server.store.loaded(resource)
    place = query.place or PageStart(query.version or 0, "")
    if place.revision == INCONSISTENT:
        cache = await fresh_enough(server, context, None)
        found = await _from_cache_in_slices(
            server, context, cache, selection, query, start=place.start
        )
        return await _answer(server, context, selection, found)
    if place.revision > max(server.store.position, cache.changed_at):
        await wait_for_version(server, resource, place.revision)
    if cache.changed_at <= place.revision:
        found = await _from_cache_in_slices(
            server, context, cache, selection, query, start=place.start
        )
        found.revision = place.revision
    else:
        found = await _from_store(server, context, selection, query, place)
    return await _answer(server, context, selection, found)


def read_query(server: Server, context: Context, selection: ListSelectors) -> ListQuery:
    """Read and check the parameters of a list."""
    info = context.info
    limit = info.number("limit") or 0
    limit = max(limit, 0)
    text, match, token = (
        info.parameter(name) for name in ("resourceVersion", "resourceVersionMatch", "continue")
    )
    if info.flag("sendInitialEvents"):
        raise _invalid("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match:
        _check_match(match, text, token)
    version = parse_resource_version(text) if text else None
    if token:
        if version:
            raise status.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        place = server.tokens.read(token, bound_to=selection.bound_to)
        return ListQuery(min(limit, LIMIT_MAX), None, exact=True, place=place)
    exact = match == "Exact" or (not match and bool(version) and limit > 0)
    return ListQuery(min(limit, LIMIT_MAX), version, exact=exact, place=None)


def _check_match(match: str, text: str, token: str) -> None:
    if token:
        raise _invalid("resourceVersionMatch", "forbidden when continue is provided")
    if not text:
        raise _invalid("resourceVersionMatch", "forbidden unless resourceVersion is provided")
    if match not in _MATCHES:
        cause = field_errors.not_supported("resourceVersionMatch", match, _MATCHES)
        raise status.invalid(GroupKind("meta.k8s.io", "ListOptions"), "", [cause])
    if match == "Exact" and text == "0":
        raise _invalid("resourceVersionMatch", 'forbidden for "Exact" when resourceVersion is "0"')


def _invalid(field: str, why: str) -> status.StatusError:
    cause = field_errors.forbidden(field, why)
    return status.invalid(GroupKind("meta.k8s.io", "ListOptions"), "", [cause])


async def _answer_now(
    server: Server, context: Context, cache: WatchCache, selection: ListSelectors, query: ListQuery
) -> Answer:
    """A list from its beginning, from a cache that is as fresh as required."""
    if selection or query.limit or cache.damaged:
        return await _answer(
            server, context, selection, _from_cache(server, cache, selection, query)
        )
    resource = resource_of(context)
    api_version = resource.api_version(context.info.version)
    wanted = (selection.prefix, api_version)
    # Before anything is awaited: the list is of this revision.
    revision = max(server.store.position, cache.changed_at)
    bodies: Bodies | None = cache.memo.get(wanted)
    if bodies is None:
        entries = cache.select(selection.prefix).entries
        if any(entry[1] != api_version for entry in entries):
            # Converted objects are not cached: they would be in memory twice.
            bodies = await bodies_of(server, context, entries, api_version)
        else:
            bodies = Bodies.of([entry[2] for entry in entries])
            if len(cache.memo) >= LISTS_KEPT_MAX:
                cache.memo.clear()
            cache.memo[wanted] = bodies
    return await list_answer(server, context, bodies, {"resourceVersion": str(revision)})


def _from_cache(
    server: Server,
    cache: WatchCache,
    selection: ListSelectors,
    query: ListQuery,
    *,
    start: str = "",
) -> FoundPage:
    revision = max(server.store.position, cache.changed_at)
    if cache.damaged:
        refuse_damaged(server, cache, selection)
    if selection.single is not None and not start:
        entry = cache.get(selection.single)
        hit = entry is not None and selection.matches(selection.single, entry)
        return (
            FoundPage([selection.single], [entry], revision)
            if hit and entry
            else FoundPage([], [], revision)
        )
    if not selection:
        page = cache.select(selection.prefix, start=start, limit=query.limit)
        found = FoundPage(page.keys, page.entries, revision)
        if query.limit and len(page.keys) == query.limit:
            following = page.keys[-1] + "\0"
            if remaining := cache.count(selection.prefix, start=following):
                found.next_start, found.remaining = following, remaining
        return found
    page = cache.select(selection.prefix, start=start)
    found = FoundPage([], [], revision)
    _match(found, page, selection, query)
    return found


def _takes_long(cache: WatchCache, selection: ListSelectors) -> bool:
    """Whether so many objects must be read that other requests would be delayed."""
    return (
        bool(selection) and selection.single is None and cache.count(selection.prefix) > FEW_ITEMS
    )


def _must_wait(context: Context, cache: WatchCache, selection: ListSelectors) -> bool:
    """Whether a list must be done in steps: it takes long, or webhooks must convert objects."""
    resource = selection.resource
    if resource.remote is None:
        return _takes_long(cache, selection)
    api_version = resource.api_version(context.info.version)
    if not selection and (selection.prefix, api_version) in cache.memo:
        return _takes_long(cache, selection)
    return _takes_long(cache, selection) or any(
        entry[1] != api_version for entry in cache.select(selection.prefix).entries
    )


async def _from_cache_in_slices(
    server: Server,
    context: Context,
    cache: WatchCache,
    selection: ListSelectors,
    query: ListQuery,
    *,
    start: str = "",
) -> FoundPage:
    """`_from_cache` in slices: yields to the event loop between them, and waits for conversions."""
    resource = selection.resource
    api_version = resource.api_version(context.info.version)
    if not selection or (resource.remote is None and not _takes_long(cache, selection)):
        found = _from_cache(server, cache, selection, query, start=start)
        found.entries = await server.store.in_version(resource, found.entries, api_version)
        return found
    if cache.damaged:
        refuse_damaged(server, cache, selection)
    # All of one revision: changes during later slices are not seen.
    page = _candidates(cache, selection, start)
    found = FoundPage([], [], max(server.store.position, cache.changed_at))
    for first, last in slices_of(page.entries):
        entries = await server.store.in_version(resource, page.entries[first:last], api_version)
        some = Slice(page.keys[first:last], entries, page.revision)
        if _match(found, some, selection, query):
            break
        await server.runtime.clock.sleep(0)
    return found


def slices_of(entries: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """The first and last position of the objects to process per iteration of the event loop."""
    first = nbytes = 0
    for index, entry in enumerate(entries):
        nbytes += len(entry[2])
        if nbytes > SLICE_BYTES or index - first >= SLICE_ITEMS:
            yield first, max(index, first + 1)
            first, nbytes = max(index, first + 1), len(entry[2])
    if first < len(entries):
        yield first, len(entries)


def _candidates(cache: WatchCache, selection: ListSelectors, start: str) -> Slice:
    """The objects that may match, judged by their paths alone."""
    if selection.single is None or start:
        return cache.select(selection.prefix, start=start)
    entry = cache.get(selection.single)
    if entry is None:
        return Slice([], [], cache.changed_at)
    return Slice([selection.single], [entry], cache.changed_at)


def refuse_damaged(server: Server, cache: WatchCache, selection: ListSelectors) -> None:
    """Raise a 500 if any of the requested objects cannot be decoded."""
    found = {path: why for path, why in cache.damaged.items() if selection.may_match(path)}
    if found:
        raise server.store.damaged(selection.resource, found)


def _match(found: FoundPage, page: Slice, selection: ListSelectors, query: ListQuery) -> bool:
    """Add matching objects; return whether the page is full."""
    for path, entry in zip(page.keys, page.entries, strict=True):
        if selection.matches(path, entry):
            if query.limit and len(found.paths) == query.limit:
                found.next_start = found.paths[-1] + "\0"
                return True
            found.paths.append(path)
            found.entries.append(entry)
    return False


async def _from_store(
    server: Server, context: Context, selection: ListSelectors, query: ListQuery, place: PageStart
) -> FoundPage:
    """A page at a revision that the cache no longer has."""
    resource = resource_of(context)
    span = Span.of_prefix(resource.root + selection.prefix)
    api_version = resource.api_version(context.info.version)
    splicer = server.store.splicer(resource)
    found = FoundPage([], [], place.revision)
    start = place.start
    while True:
        try:
            page = await server.store.storage.range(
                span.starting_at(resource.root + start) if start else span,
                limit=query.limit,
                revision=Revision(place.revision),
                with_total=not selection,
            )
        except Compacted as error:
            raise _expired(server, selection, place, has_token=query.place is not None) from error
        except StorageError as error:
            raise translate(error) from error
        entries: list[Entry] = []
        for position, item in enumerate(page.items, start=1):
            if position % SLICE_ITEMS == 0:
                await server.runtime.clock.sleep(0)
            try:
                entries.append(splicer.serve(item.value, item.revision))
            except (CannotOpen, VersionUnknown) as error:
                # The encryption key or version of that time may be gone. The current state is
                # readable, and the client reads it after this error.
                has_token = query.place is not None
                raise _expired(server, selection, place, has_token=has_token) from error
            except StoreDamaged as error:
                path = item.key[len(resource.root) :]
                raise server.store.damaged(resource, {path: error.client_message}) from error
        entries = await server.store.in_version(resource, entries, api_version)
        for position, (item, entry) in enumerate(zip(page.items, entries, strict=True), start=1):
            if selection and position % SLICE_ITEMS == 0:
                await server.runtime.clock.sleep(0)
            path = item.key[len(resource.root) :]
            if not selection or selection.matches(path, entry):
                found.paths.append(path)
                found.entries.append(entry)
                if query.limit and len(found.paths) == query.limit:
                    if page.more or position < len(page.items):
                        found.next_start = path + "\0"
                    if page.more and page.total is not None:
                        found.remaining = page.total - len(page.items)
                    return found
        if not page.more:
            return found
        start = page.items[-1].key[len(resource.root) :] + "\0"


def _expired(
    server: Server, selection: ListSelectors, place: PageStart, *, has_token: bool
) -> status.StatusError:
    """The 410 for a list that cannot continue; with a token that continues with newer state."""
    if not has_token:
        return status.expired("The resourceVersion for the provided list is too old.")
    token = server.tokens.make(PageStart(INCONSISTENT, place.start), bound_to=selection.bound_to)
    return status.expired(
        "The provided continue parameter is too old to display a consistent list result. You can"
        " start a new list without the continue parameter, or use the continue token in this"
        " response to retrieve the remainder of the results.",
        continue_token=token,
    )


async def _answer(
    server: Server, context: Context, selection: ListSelectors, found: FoundPage
) -> Answer:
    resource = resource_of(context)
    api_version = resource.api_version(context.info.version)
    metadata: dict[str, Any] = {"resourceVersion": str(found.revision)}
    if found.next_start:
        place = PageStart(found.revision, found.next_start)
        metadata["continue"] = server.tokens.make(place, bound_to=selection.bound_to)
        if found.remaining is not None:
            metadata["remainingItemCount"] = found.remaining
    bodies = await bodies_of(server, context, found.entries, api_version)
    return await list_answer(server, context, bodies, metadata)


async def list_answer(
    server: Server, context: Context, bodies: Bodies, metadata: dict[str, Any]
) -> Answer:
    """The response with a list of objects, in the requested form."""
    if wants_message(context, bodies.nbytes):
        return await _list_in_messages(server, context, bodies, metadata)
    if context.form.as_kind:
        return list_in_form(context, bodies, metadata, clock=server.runtime.clock)
    resource = resource_of(context)
    head = b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[' % (
        orjson.dumps(resource.kind.list_kind),
        orjson.dumps(resource.api_version(context.info.version)),
        orjson.dumps(metadata),
    )
    return respond_list(context, head, bodies, b"]}")


async def _list_in_messages(
    server: Server, context: Context, bodies: Bodies, metadata: dict[str, Any]
) -> Answer:
    """A list in protobuf. It starts with its length, so nothing can be sent before all of it is
    encoded."""
    work = partial(_encode_messages, context, bodies.items, metadata)
    if bodies.nbytes > LONG_BODY_SIZE:
        return respond_message(context, await server.offload.encode(context, work))
    return respond_message(context, work())


def _encode_messages(context: Context, bodies: list[bytes], metadata: dict[str, Any]) -> bytes:
    resource = resource_of(context)
    names = resource.api_version(context.info.version), resource.kind.kind
    list_kind = resource.kind.list_kind
    if context.form.as_kind:
        names, list_kind = (META_V1, PARTIAL_OBJECT), PARTIAL_LIST
        bodies = [partial_object_bytes(body) for body in bodies]
    return list_message(names[0], list_kind, metadata, [items_of(*names, bodies)])


async def bodies_of(
    server: Server, context: Context, entries: list[Entry], api_version: str
) -> Bodies:
    """Encoded objects in the requested version; those stored in it are used unchanged."""
    work = partial(_converted, server.store.body_of, resource_of(context), entries, api_version)
    nbytes = sum([len(entry[2]) for entry in entries if entry[1] != api_version])
    return await server.offload.encode(context, work) if nbytes > LONG_BODY_SIZE else work()


def _converted(
    body_of: Callable[[Resource, Entry, str], bytes],
    resource: Resource,
    entries: list[Entry],
    api_version: str,
) -> Bodies:
    return Bodies.of(
        [
            entry[2] if entry[1] == api_version else body_of(resource, entry, api_version)
            for entry in entries
        ]
    )
