"""The server's own rewrite: one page per call, through the subresource `rewrite` of a migration.

The server converts and commits; the objects are not transferred. The page size is adapted so that a
page takes about a second, which bounds how long an aborted migration runs on. With a rate limit the
next page waits until the rate allows it.

Not here: the choice of the method, and the evaluation of a pass (`engine`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

from restow.apimachinery.names import GroupVersion, GroupVersionKind, GroupVersionResource
from restow.apimachinery.status import Conflict
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.version_hash import storage_version_hash
from restow.client import NO_RETRY, ApiClient, ApiResource, ConnectionFailed, Object
from restow.migration.migration_values import MigrationRef
from restow.migration.migrator.options import EngineOptions
from restow.migration.migrator.passes import AgreementLost, ObjectFailure, PageDone

SUBRESOURCE: Final = "rewrite"
REWRITE_FAILED: Final = "RewriteFailed"
"""The reason of a failed object; the message is the server's."""
LIMIT_MIN: Final = 50
WAIT_SECONDS_MAX: Final = 30.0
QUICK: Final = 0.5
SLOW: Final = 1.5
"""Fractions of the target duration: outside of them the page limit is adapted."""
GROWTH_MAX: Final = 4

logger = logging.getLogger(__name__)


class ServerRewrite:
    """The server's own rewrite. Satisfies `passes.Pages`."""

    def __init__(
        self,
        client: ApiClient,
        request_ref: MigrationRef,
        resource: ApiResource,
        *,
        target_api_version: str,
        target_hash: str = "",
        epoch: int | None,
        options: EngineOptions | None = None,
    ) -> None:
        self.limit = (options or EngineOptions()).page_limit_first
        """Number of objects of the next page."""
        group_version = GroupVersion.parse(request_ref.api_version)
        self._migrations_api = GroupVersionResource(*group_version, "storageversionmigrations")
        self._name = request_ref.name
        self._resource = resource
        self._target = target_api_version
        self._target_hash = target_hash
        self._epoch = epoch
        self._options = options or EngineOptions()
        self._rate = self._options.patch.objects_per_second
        self._next_at = 0.0
        """No page is requested before this time."""
        # Retried here, where it is known that repeating a page is safe.
        self._client = client.with_retry(NO_RETRY)

    async def page(self, token: str) -> PageDone:
        """See `Pages`. A server names only a limited number of failed objects: if there are more,
        the page is repeated with that limit."""
        done = await self._page(token)
        if not done.failed > len(done.failures) > 0:
            return done
        self.limit = len(done.failures)
        again = await self._page(token)
        # Objects that the first try rewrote count as unchanged in the second.
        return replace(again, rewritten=again.rewritten + done.rewritten)

    async def _page(self, token: str) -> PageDone:
        clock = self._client.runtime.clock
        await clock.sleep(max(self._next_at - clock.monotonic(), 0.0))
        body: Object = {"limit": self._limit_now()}
        if token:
            body["continue"] = token
        if self._target:
            body["target"] = self._target
        if self._epoch is not None:
            body["epoch"] = self._epoch
        began = clock.monotonic()
        answer = await self._ask(body)
        done = self._read(answer)
        self._adapt(done.scanned, clock.monotonic() - began)
        if self._rate is not None:
            self._next_at = began + done.scanned / self._rate
        return done

    def _limit_now(self) -> int:
        """The page limit, reduced so that a page does not exceed the rate limit."""
        if self._rate is None:
            return self.limit
        return max(1, min(self.limit, int(self._rate * self._options.page_seconds)))

    async def _ask(self, body: Object) -> Object:
        runtime, options = self._client.runtime, self._options
        attempts = 0
        while True:
            try:
                return await self._client.create(
                    self._migrations_api, body, name=self._name, subresource=SUBRESOURCE
                )
            except Conflict as error:
                raise AgreementLost(error.message) from error
            except (StatusError, ConnectionFailed) as error:
                attempts += 1
                wait_seconds = options.retry_backoff.delay_seconds(attempts, runtime.randomness)
                if isinstance(error, StatusError):
                    if error.code != 429 and error.code < 500:
                        raise
                    asked = min(float(error.retry_after_seconds), WAIT_SECONDS_MAX)
                    wait_seconds = max(wait_seconds, asked)
                if attempts >= options.page_attempts_max:
                    raise
                logger.info("the page is retried in %.1f s: %s", wait_seconds, error)
            await runtime.clock.sleep(wait_seconds)

    def _read(self, answer: Object) -> PageDone:
        self._check_target(answer)
        failed = answer.get("failed")
        failures = (
            tuple(_failure(each) for each in failed or () if isinstance(each, dict))
            if isinstance(failed, list)
            else ()
        )
        return PageDone(
            token=str(answer.get("continue") or ""),
            scanned=_count(answer, "scanned"),
            rewritten=_count(answer, "rewritten"),
            unchanged=_count(answer, "skipped"),
            settled=_count(answer, "settled"),
            failed=max(_count(answer, "failedCount"), len(failures)),
            failures=failures,
            moment=str(answer.get("epoch") or ""),
            is_verified=answer.get("verified") is True,
        )

    def _check_target(self, answer: Object) -> None:
        """Check that all pages have one target: without one in the request the server chooses."""
        target = str(answer.get("target") or "")
        if not self._target:
            hashed = (
                storage_version_hash(GroupVersionKind.of(target, self._resource.kind))
                if target
                else ""
            )
            if self._target_hash and hashed != self._target_hash:
                raise AgreementLost(
                    f"the server rewrites to {target}, which is not what discovery shows"
                )
            self._target = target
        if target != self._target:
            raise AgreementLost(f"the server rewrites to {target}, not to {self._target}")

    def _adapt(self, scanned: int, seconds: float) -> None:
        """Adapt the page limit to the duration of this page; a short page does not raise it."""
        target_seconds = self._options.page_seconds
        if seconds > target_seconds * SLOW:
            smaller = int(self.limit * target_seconds / seconds)
            self.limit = max(min(LIMIT_MIN, self._options.page_limit_max), smaller)
        elif seconds < target_seconds * QUICK and scanned >= self.limit:
            growth = min(GROWTH_MAX, target_seconds / max(seconds, 0.001))
            self.limit = min(self._options.page_limit_max, int(self.limit * growth))


def _failure(value: dict[str, Any]) -> ObjectFailure:
    return ObjectFailure(
        namespace=str(value.get("namespace") or ""),
        name=str(value.get("name") or ""),
        reason=REWRITE_FAILED,
        message=str(value.get("reason") or ""),
    )


def _count(answer: Object, name: str) -> int:
    found = answer.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else 0
