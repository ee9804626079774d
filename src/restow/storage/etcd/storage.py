"""EtcdStorage: the storage contract on etcd. It only joins the parts; see the package."""

from __future__ import annotations

import logging
from typing import Final

from restow.aio import Runtime, TaskFailure
from restow.storage.checks import check_key
from restow.storage.errors import Compacted, OpenRefused, StoreDamaged, StoreReplaced
from restow.storage.etcd.commit import EtcdCommitter
from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.encoding import encode_key, encode_revision, encode_span
from restow.storage.etcd.errors import EtcdCallFailed, translate, translate_opening
from restow.storage.etcd.hub import Hub
from restow.storage.etcd.messages import (
    COMPACT,
    RANGE,
    STATUS,
    CompactionRequest,
    RangeRequest,
    StatusRequest,
)
from restow.storage.etcd.options import EtcdOptions
from restow.storage.etcd.reader import EtcdReader
from restow.storage.etcd.releases import VERSION_MIN, is_too_old, known_fault
from restow.storage.etcd.stream import find_compacted
from restow.storage.identity import IDENTITY_KEY, Seen, decode_record
from restow.storage.interface import (
    Item,
    Key,
    Outcome,
    RangePage,
    Revision,
    Span,
    Transaction,
    Watch,
)

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 30.0
"""Interval at which the certificate files are checked for changes."""

TASKS_MAX: Final = 10_000
"""One for each watch that reads its backlog, and a few more."""


async def open_etcd(options: EtcdOptions, runtime: Runtime) -> EtcdStorage:
    """Connect, log in, and check that etcd replies; raises `OpenRefused` or `Unavailable`."""
    connection = EtcdConnection(options, runtime)
    try:
        await connection.log_in()
        status = await connection.call(
            STATUS,
            StatusRequest(),
            timeout_seconds=options.request_timeout_seconds,
            repeatable=True,
        )
        _check_version(status.version)
        storage = EtcdStorage(connection)
        await storage.revision()
    except EtcdCallFailed as failed:
        await connection.close()
        raise translate_opening(failed) from failed
    except BaseException:
        await connection.close()
        raise
    return storage


class EtcdStorage:
    """Satisfies `interface.Storage`. Made by `open_etcd`."""

    def __init__(self, connection: EtcdConnection) -> None:
        self._connection = connection
        self._tasks = connection.runtime.tasks(
            "etcd", tasks_max=TASKS_MAX, on_failure=self._on_failure
        )
        self._reader = EtcdReader(connection, self._tasks)
        self._committer = EtcdCommitter(connection, self._reader)
        self._hub: Hub | None = None
        connection.replacements.subscribe(self._on_replaced)
        if connection.options.has_files:
            self._tasks.spawn_loop("certificates", self._follow_files())

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        check_key(key)
        return await self._reader.get(key, revision=revision)

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> RangePage:
        return await self._reader.range(span, limit=limit, revision=revision, with_total=with_total)

    async def count(self, span: Span, *, revision: Revision | None = None) -> int:
        return await self._reader.count(span, revision=revision)

    async def revision(self) -> Revision:
        return await self._reader.revision()

    def revision_now(self) -> Revision | None:
        """None: only etcd has the current revision, so a request is needed."""
        self._connection.check_open()
        self._connection.check_usable()
        return None

    async def commit(self, transaction: Transaction) -> Outcome:
        self._connection.check_open()
        return await self._committer.commit(transaction)

    def watch(self, span: Span, *, after: Revision) -> Watch:
        self._connection.check_open()
        encode_span(span)  # raises for a span that is invalid in a range as well
        if self._hub is None:
            self._hub = Hub(self._connection, self._reader, self._tasks)
            if self._connection.replaced is not None:
                self._hub.block(self._connection.replaced)
        return self._hub.feed.watch(span, after=after)

    async def compact(self, revision: Revision) -> None:
        self._connection.check_open()
        self._connection.check_usable()
        try:
            if revision < 1:
                raise Compacted(await find_compacted(self._connection))
            await self._connection.call(
                COMPACT,
                CompactionRequest(revision=encode_revision(revision)),
                timeout_seconds=self._connection.options.request_timeout_seconds,
                repeatable=False,
            )
        except EtcdCallFailed as failed:
            raise await self._reader.explain(failed, revision) from failed
        if self._hub is not None:
            self._hub.feed.forget_upto(revision)

    async def close(self) -> None:
        self._connection.refuse_calls()
        if self._hub is not None:
            self._hub.close()
        await self._tasks.close()
        self._reader.close()
        await self._connection.close()

    # Whether it is still the etcd that was opened (`identity.IdentifiedStorage`).

    @property
    def newest(self) -> Revision:
        return self._connection.newest

    @property
    def blocked(self) -> StoreReplaced | None:
        return self._connection.replaced

    @property
    def places(self) -> tuple[None, None]:
        return None, None

    async def look(self) -> Seen:
        """Queries etcd even while it is blocked; the caller decides what follows from the
        reply."""
        connection = self._connection
        try:
            response = await connection.call(
                RANGE,
                RangeRequest(key=encode_key(IDENTITY_KEY)),
                timeout_seconds=connection.options.request_timeout_seconds,
                repeatable=True,
            )
        except EtcdCallFailed as failed:
            raise translate(failed) from failed
        record = decode_record(response.kvs[0].value if response.kvs else None)
        header = response.header
        return Seen(record, Revision(header.revision), cluster_id=f"{header.cluster_id:x}")

    def block(self, problem: StoreReplaced) -> None:
        self._connection.block(str(problem))

    def unblock(self, seen: Seen) -> None:
        self._connection.resume(seen)
        if self._hub is not None:
            self._hub.restart(seen.revision)

    def _on_replaced(self, error: StoreReplaced) -> None:
        logger.error("%s", error)
        if self._hub is not None:
            self._hub.block(error)

    async def _follow_files(self) -> None:
        """Load changed certificates; keep the old ones if the new are unusable, and log it once."""
        clock, said = self._connection.runtime.clock, ""
        while True:
            await clock.sleep(LOOK_SECONDS)
            try:
                if await self._connection.renew():
                    logger.info("the certificates for etcd were reloaded")
                said = ""
            except OpenRefused as error:
                if str(error) != said:
                    logger.warning("etcd: the old certificates stay in use: %s", error)
                said = str(error)

    def _on_failure(self, failure: TaskFailure) -> None:
        if self._hub is not None:
            self._hub.feed.fail(StoreDamaged(f"{failure.name} failed: {failure.error!r}"))


def _check_version(text: str) -> None:
    if is_too_old(text):
        wanted = ".".join(map(str, VERSION_MIN))
        raise OpenRefused(f"etcd {text} is too old; restow needs {wanted} or newer")
    if fault := known_fault(text):
        logger.info("%s", fault)
