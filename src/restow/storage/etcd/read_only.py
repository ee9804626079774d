"""Reads all keys of a running etcd in pages at one revision, without a write: for the census.

The driver's own range is made for lists of clients, and requests small pages. For each page etcd
walks over all remaining keys, so a census of a large store must request larger ones. But a page is
limited by its number of keys only, whatever their size, so a large one is only requested within a
resource whose values have been read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from restow.aio import Runtime
from restow.storage.errors import Compacted, Unavailable
from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.encoding import encode_span
from restow.storage.etcd.errors import EtcdCallFailed, translate, translate_opening
from restow.storage.etcd.messages import RANGE, RangeRequest
from restow.storage.etcd.options import EtcdOptions
from restow.storage.interface import Revision, Span

KEYS_FIRST: Final = 100
KEYS_MAX: Final = 1000
KEYS_WITHIN_RESOURCE_MAX: Final = 10_000
BYTES_WANTED: Final = 8 * 1024 * 1024
PAGE_SECONDS_MAX: Final = 60.0


class ReadOnlyEtcd:
    """Pages of one revision: that of its first request. Made by `open_read_only`.

    It reads nothing outside the prefixes, so a user with read permission for these suffices.
    """

    def __init__(self, connection: EtcdConnection) -> None:
        self._connection = connection
        self.revision = 0
        """0 before the first request; for etcd that is the current revision."""

    async def count(self, prefixes: Sequence[str]) -> int:
        counted = 0
        for prefix in prefixes:
            start, end = encode_span(Span.of_prefix(prefix))
            counted += (await self._request(key=start, range_end=end, count_only=True)).count
        return counted

    async def pages(self, prefixes: Sequence[str]) -> AsyncIterator[Sequence[tuple[str, bytes]]]:
        for prefix in prefixes:
            async for page in self._pages_of(prefix):
                yield page

    async def _pages_of(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, bytes]]]:
        start, end = encode_span(Span.of_prefix(prefix))
        limit, inner_end = KEYS_FIRST, end
        while True:
            answer = await self._request(key=start, range_end=inner_end, limit=limit)
            kvs = answer.kvs
            if kvs:
                yield [(kv.key.decode("utf-8", "surrogateescape"), kv.value) for kv in kvs]
            if answer.more:
                start = kvs[-1].key + b"\0"
                inner_end = _end_of_resource(kvs[0].key, kvs[-1].key, start=len(prefix)) or end
            elif inner_end != end:
                start, inner_end = inner_end, end
            else:
                return
            limit = _next_limit(answer, is_within=inner_end != end) if kvs else KEYS_FIRST

    async def close(self) -> None:
        await self._connection.close()

    async def _request(self, **request: Any) -> Any:
        try:
            answer = await self._connection.call(
                RANGE,
                RangeRequest(revision=self.revision, **request),
                timeout_seconds=PAGE_SECONDS_MAX,
                repeatable=True,
            )
        except EtcdCallFailed as failed:
            error = translate(failed, asked=Revision(self.revision))
            if not self.revision:
                error = translate_opening(failed)
            if isinstance(error, Compacted):
                raise Unavailable(
                    f"etcd compacted revision {self.revision} during the scan: try again, or take a"
                    " snapshot with `etcdctl snapshot save` and count that"
                ) from failed
            raise error from failed
        self.revision = self.revision or int(answer.header.revision)
        return answer


async def open_read_only(options: EtcdOptions, runtime: Runtime) -> ReadOnlyEtcd:
    """Connect and log in."""
    connection = EtcdConnection(options, runtime)
    try:
        await connection.log_in()
    except EtcdCallFailed as failed:
        await connection.close()
        raise translate_opening(failed) from failed
    except BaseException:
        await connection.close()
        raise
    return ReadOnlyEtcd(connection)


def _end_of_resource(first: bytes, last: bytes, *, start: int) -> bytes | None:
    """The end of the keys of a resource, if a page held nothing else."""
    slash = first.find(b"/", start)
    if slash < 0 or last[: slash + 1] != first[: slash + 1]:
        return None
    return first[:slash] + b"0"  # the character after the slash


def _next_limit(answer: Any, *, is_within: bool) -> int:
    """How many keys to request, so that a page has about the target size."""
    mean_bytes = max(1, int(answer.ByteSize()) // len(answer.kvs))
    keys_max = KEYS_WITHIN_RESOURCE_MAX if is_within else KEYS_MAX
    return max(1, min(keys_max, BYTES_WANTED // mean_bytes))
