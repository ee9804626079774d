"""Get, range, count, and the store's revision. All reads are linearizable.

A range is fetched in pages at one revision, so that neither etcd nor the event loop is blocked for
long. Nothing is written here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from restow.aio import Tasks
from restow.storage.errors import Compacted, FutureRevision, StorageClosed, StorageError
from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.encoding import (
    decode_item,
    decode_items,
    encode_key,
    encode_revision,
    encode_span,
)
from restow.storage.etcd.errors import EtcdCallFailed, translate
from restow.storage.etcd.messages import RANGE, RangeRequest
from restow.storage.etcd.stream import find_compacted
from restow.storage.identity import IDENTITY_KEY, decode_record
from restow.storage.interface import REVISION_FIRST, Item, Key, RangePage, Revision, Span

PAGE_KEYS_FIRST: Final = 500
PAGE_KEYS_MAX: Final = 2000
PAGE_BYTES_WANTED: Final = 2 * 1024 * 1024
_RANGE_ATTEMPTS_MAX: Final = 3


class EtcdReader:
    """Read methods of `EtcdStorage`."""

    def __init__(self, connection: EtcdConnection, tasks: Tasks) -> None:
        self._connection = connection
        self._revision = SharedRequest(self._request_revision, tasks)

    async def get(self, key: Key, *, revision: Revision | None) -> Item | None:
        response = await self._request({"key": encode_key(key)}, revision)
        return decode_item(response.kvs[0]) if response.kvs else None

    async def count(self, span: Span, *, revision: Revision | None) -> int:
        start, end = encode_span(span)
        request = {"key": start, "range_end": end, "count_only": True}
        return int((await self._request(request, revision)).count)

    async def revision(self) -> Revision:
        """The current revision; concurrent callers share the next request that is sent."""
        self._connection.check_open()
        return await self._revision.answer()

    def close(self) -> None:
        """Fail the callers that wait for a revision. The owner of the tasks ends the request."""
        self._revision.close()

    async def range(
        self, span: Span, *, limit: int, revision: Revision | None, with_total: bool
    ) -> RangePage:
        for attempts_left in reversed(range(_RANGE_ATTEMPTS_MAX)):
            try:
                return await self._pages(
                    span, limit=limit, revision=revision, with_total=with_total
                )
            except Compacted:
                # Only a range without a revision may start again: its revision was chosen here.
                if revision is not None or not attempts_left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _pages(
        self, span: Span, *, limit: int, revision: Revision | None, with_total: bool
    ) -> RangePage:
        start, end = encode_span(span)
        items: list[Item] = []
        count, asked, page_keys = None, revision, PAGE_KEYS_FIRST
        while True:
            wanted = min(page_keys, limit - len(items)) if limit else page_keys
            request = {"key": start, "range_end": end, "limit": wanted}
            response = await self._request(request, asked)
            if count is None:
                count = int(response.count)
                asked = asked if asked is not None else Revision(response.header.revision)
            kvs = response.kvs
            items += decode_items(kvs)
            if not response.more or (limit and len(items) >= limit):
                assert asked is not None
                return RangePage(items, asked, bool(response.more), count if with_total else None)
            start = kvs[-1].key + b"\0"
            page_keys = _next_page_keys(response)

    async def _request(self, request: dict[str, Any], revision: Revision | None) -> Any:
        """One Range request; raises the errors of the contract."""
        connection = self._connection
        connection.check_usable()
        before = connection.newest
        if revision is not None:
            # In etcd, 0 is the current revision. Here it is before everything, like the first one.
            request["revision"] = encode_revision(max(revision, REVISION_FIRST))
        try:
            response = await connection.call(
                RANGE,
                RangeRequest(**request),
                timeout_seconds=connection.options.request_timeout_seconds,
                repeatable=True,
            )
        except EtcdCallFailed as failed:
            raise await self.explain(failed, revision) from failed
        connection.note(response.header, before=before)
        return response

    async def explain(self, failed: EtcdCallFailed, asked: Revision | None) -> StorageError:
        """The error for a failed call at revision `asked`, with the compacted or newest one."""
        error = translate(failed, asked=asked)
        try:
            if isinstance(error, Compacted):
                return Compacted(max(await find_compacted(self._connection), asked or Revision(0)))
            if isinstance(error, FutureRevision):
                return FutureRevision(asked or Revision(0), await self.revision())
        except EtcdCallFailed as second:
            return translate(second)
        return error

    async def _request_revision(self) -> Revision:
        """The reply also carries the store's identity: a revision alone does not identify it once
        another client has raised it."""
        expected = self._connection.identity
        response = await self._request({"key": encode_key(IDENTITY_KEY)}, None)
        record = decode_record(response.kvs[0].value if response.kvs else None)
        self._connection.check_identity(record, expected=expected)
        return Revision(response.header.revision)


class SharedRequest:
    """Batches many callers into one request at a time.

    A caller may only join a request that has not been sent: the reply to one in flight may be
    older than a commit that had returned when the caller called.
    """

    def __init__(self, ask: Callable[[], Awaitable[Revision]], tasks: Tasks) -> None:
        self._request = ask
        self._tasks = tasks
        self._next: asyncio.Future[Revision] | None = None
        self._is_running = False

    async def answer(self) -> Revision:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if not self._is_running:
                self._is_running = True
                self._tasks.spawn("revision", self._run())
        return await asyncio.shield(self._next)

    def close(self) -> None:
        """Fail the pending request: its task may have been cancelled before it ever ran."""
        if self._next is not None and not self._next.done():
            _fail(self._next, StorageClosed("the store has been closed"))

    async def _run(self) -> None:
        asked: asyncio.Future[Revision] | None = None
        try:
            while (asked := self._next) is not None:
                self._next = None
                try:
                    asked.set_result(await self._request())
                except StorageError as error:
                    _fail(asked, error)
        finally:
            self._is_running = False
            for future in (asked, self._next):
                if future is not None and not future.done():
                    _fail(future, StorageClosed("the store has been closed"))
            self._next = None


def _fail(future: asyncio.Future[Revision], error: StorageError) -> None:
    future.set_exception(error)
    future.exception()  # mark as retrieved, even if every caller was cancelled


def _next_page_keys(response: Any) -> int:
    """How many keys to request next, so that a page has about the target size."""
    mean_bytes = max(1, int(response.ByteSize()) // len(response.kvs))
    return max(1, min(PAGE_KEYS_MAX, PAGE_BYTES_WANTED // mean_bytes))
