"""Server-side rewrite: stores objects that are in another version, or under another encryption key,
again as agreed.

A page reads raw values in key order, in batches, each time their current state. Values that are
already in the target version are skipped; the others are converted and committed, each in its own
transaction, many concurrently:

    value in the target version     -> skipped
    not an object, or not convertible -> failed, listed by name
    committed                       -> rewritten
    the object has changed          -> read again: in the target version or deleted -> settled,
                                       otherwise retried a bounded number of times
    the fence failed                -> `Aborted`: the agreement is lost; nothing more is encoded

Every commit is guarded by the object's revision and by the fence of this server for the target
version. So a rewrite overwrites no update, restores no deleted object, and may be repeated or run
twice concurrently.

The epoch is read before the first value, at intervals, and after the last commit. A pass over all
keys whose pages all report the same epoch has therefore read every value that was written before
the agreement; later values are in the agreed version.

Other requests have priority. The commits of a rewrite have a low priority in the store; while this
server has other requests, few of them run at a time, with pauses between.

A pass is *clean* if none of its pages rewrote an object or failed. The server that runs the last
page records it: see `verification`.

Not here: the clients that call it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from restow.aio import Clock
from restow.apimachinery import status
from restow.registry.encoding import EncodingPolicy
from restow.registry.resource import Resource
from restow.registry.store import ResourceStore
from restow.storage.identity import IDENTITY_KEY, decode_record
from restow.storage.interface import Span
from restow.storageversion.foreground_load import ForegroundLoad
from restow.storageversion.object_codec import decode_report, report_key
from restow.storageversion.records import decode_epoch, epoch_key, name_of
from restow.storageversion.rewrite_page import PageSource, PageWork, RewrittenPage, Values
from restow.storageversion.rewrite_plan import Aborted
from restow.storageversion.rules import Agreement
from restow.storageversion.verification import CleanPass, record_clean_pass, record_failures

LIMIT_MAX: Final = 10_000
"""Maximum number of values that one page reads."""
BYTES_MAX: Final = 64 * 1024 * 1024
SECONDS_MAX: Final = 10.0
"""Time limit of a page; it returns the position reached by then."""
PAGES_AT_ONCE_MAX: Final = 4


class Standing(NamedTuple):
    """The agreement of the servers on a resource, with the ids that a migration records."""

    epoch: int
    """0 when no server has ever reported the resource."""
    agreement: Agreement | None
    report_uid: str
    """Uid of the StorageVersion; empty when there is none."""
    store_id: str = ""
    """Id of the store; empty when it has none."""


class Rewriter:
    """Rewrites the objects of one server's resources."""

    def __init__(
        self,
        store: ResourceStore,
        policy: EncodingPolicy,
        clock: Clock,
        foreground: ForegroundLoad | None = None,
    ) -> None:
        """`foreground` detects other requests; None: there are none."""
        self._store = store
        self._storage = store.storage
        self._values = Values(store.storage, store.sealed)
        self._policy = policy
        self._clock = clock
        self._pages = 0
        self.foreground = ForegroundLoad(clock.monotonic) if foreground is None else foreground

    def target(self, resource: Resource) -> str:
        """Return the version that this server writes. Raises a 503 when it may not write."""
        return self._policy.encoding(resource).api_version

    async def rewrite_page(
        self,
        resource: Resource,
        *,
        target_version: str,
        start_key: str = "",
        limit: int = LIMIT_MAX,
        bytes_max: int = BYTES_MAX,
        epoch: int | None = None,
    ) -> RewrittenPage:
        """Rewrite stale objects from a key on, up to a limit.

        Raises `Aborted` when this server does not write the target version, the servers do not
        agree on it, or their epoch is not the given one; a 429 when too many pages are in progress.
        """
        assert 0 < limit <= LIMIT_MAX, limit
        if self._pages >= PAGES_AT_ONCE_MAX:
            raise status.too_many_requests(
                f"{PAGES_AT_ONCE_MAX} rewrites are under way already",
            )
        self._pages += 1
        try:
            standing = await self._read_standing(resource)
            # KEP-2339 3.71: objects are rewritten under the agreed key
            target = Agreement(target_version, self._policy.encoding(resource).key_id)
            self._check(resource, target, standing, epoch)
            confirm = partial(self._confirm, resource, standing.epoch)
            page = RewrittenPage(
                epoch=standing.epoch, report_uid=standing.report_uid, store_id=standing.store_id
            )
            source = PageSource(
                self._values,
                Span.of_prefix(resource.root).starting_at(start_key),
                page,
                limit=limit,
                bytes_max=bytes_max,
                confirm=confirm,
                is_late=self._is_after(SECONDS_MAX),
            )
            work = PageWork(
                self._store,
                self._clock,
                resource,
                target,
                self._values,
                source,
                page,
                self.foreground.is_idle,
            )
            await work.run()
            await confirm()
        finally:
            self._pages -= 1
        return page

    async def conclude(
        self,
        resource: Resource,
        page: RewrittenPage,
        *,
        target_version: str,
        is_clean: bool,
        migration_uid: str,
    ) -> bool:
        """Record the result of a page; return whether a clean pass was recorded.

        `is_clean`: whether this page and all earlier pages of its pass were clean.
        """
        name = name_of(resource.kind.group_resource)
        if page.failed:
            await record_failures(self._storage, name)
            return False
        # Without an epoch there is no agreement and no fence under which a pass could be clean.
        if not is_clean or page.next_key is not None or not page.epoch:
            return False
        target = Agreement(target_version, self._policy.encoding(resource).key_id)
        found = CleanPass(target, page.epoch, page.revision, migration_uid)
        return await record_clean_pass(self._storage, name, found)

    def _is_after(self, seconds: float) -> Callable[[], bool]:
        ends_at = self._clock.monotonic() + seconds
        return lambda: self._clock.monotonic() >= ends_at

    async def _confirm(self, resource: Resource, epoch: int) -> None:
        """Raise `Aborted` when the agreement has changed since the page began.

        The fence would let the rest of the page commit, because this server still writes the
        target.
        """
        item = await self._storage.get(epoch_key(name_of(resource.kind.group_resource)))
        if (0 if item is None else decode_epoch(item.value).epoch) != epoch:
            raise Aborted(f"the agreement on {resource.kind.group_resource} has changed meanwhile")

    async def _read_standing(self, resource: Resource) -> Standing:
        name = name_of(resource.kind.group_resource)
        report = await self._storage.get(report_key(name))
        uid = "" if report is None else str(decode_report(report).metadata.get("uid") or "")
        identity = await self._storage.get(IDENTITY_KEY)
        store = decode_record(None if identity is None else identity.value)
        store_id = "" if store is None else store.id
        item = await self._storage.get(epoch_key(name))
        if item is None:
            return Standing(0, None, uid, store_id)
        record = decode_epoch(item.value)
        return Standing(record.epoch, record.agreement, uid, store_id)

    def _check(
        self, resource: Resource, target: Agreement, standing: Standing, epoch: int | None
    ) -> None:
        """Check that the servers agree on the target, whose key is the one this server writes
        with."""
        what, own = resource.kind.group_resource, self.target(resource)
        if own != target.version:
            raise Aborted(f"this server writes {what} in {own}, not in {target.version}")
        if epoch is not None and epoch != standing.epoch:
            raise Aborted(
                f"the agreement on {what} has changed: its epoch is {standing.epoch}, not {epoch}"
            )
        # Servers that never report leave no epoch and have no fence.
        if standing.epoch and standing.agreement != target:
            key = f" under {target.key_id}" if target.key_id else ""
            raise Aborted(f"the servers do not agree on {target.version}{key} for {what}")
