"""Lists the metadata of all objects of a resource, page by page. No object is ever left out.

An expired continue token is exchanged for the inconsistent one that the server offers, which
continues at the same key over the current objects: earlier pages are done, and new objects were
written by servers that agree. A list never starts over.

A server cannot list an object that it cannot decode, and does not always name it. So a list that
fails is repeated with half the limit, until all objects before the broken one have been listed.
Then it ends with an error that names the place.

Not here: the processing of the objects.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Final

import orjson

from restow.aio import Backoff, Runtime
from restow.apimachinery.status import Expired, NotAcceptable, StatusError, UnsupportedMediaType
from restow.client import (
    AnswerTooLarge,
    ApiClient,
    ApiResource,
    ConnectionFailed,
    ListOptions,
    ListPage,
    ObjectKey,
)
from restow.migration.migrator.object_writer import ObjectRef, ref_of
from restow.migration.migrator.write_errors import Means, classify, message_of

EXPIRATIONS_MAX: Final = 8
WAIT_SECONDS_MAX: Final = 60.0
BACKOFF: Final = Backoff(initial_seconds=0.1, factor=2, max_seconds=5, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One page of objects."""

    refs: list[ObjectRef]
    token: str
    """The continue token of the next page; empty on the last one."""
    remaining: int | None


class ObjectList:
    """Lists one resource in all namespaces."""

    def __init__(
        self, client: ApiClient, resource: ApiResource, *, runtime: Runtime, limit: int
    ) -> None:
        self._client = client
        self._resource = resource.resource
        self._name = str(resource.group_resource)
        self._runtime = runtime
        self._limit_max = limit
        self._limit = limit
        self._has_partial = True
        self._last: tuple[str, ObjectKey] | None = None
        """The continue token of the last page, and the last object on that page."""

    async def page(self, token: str) -> Listed:
        """Return the page of a token, with retries. Raises StatusError or ConnectionFailed."""
        failures = 0
        while True:
            try:
                return await self.page_once(token)
            except (StatusError, ConnectionFailed) as error:
                failures += 1
                wait_seconds = self._next_try(error, failures, token=token)
            await self._runtime.clock.sleep(wait_seconds)

    async def page_once(self, token: str) -> Listed:
        """List a page without retries, except for expired tokens and unsupported formats."""
        asked, expirations = token, 0
        while True:
            try:
                page = await self._client.list_page(
                    self._resource,
                    options=ListOptions(limit=self._limit),
                    continue_token=asked,
                    metadata_only=self._has_partial,
                )
            except Expired as error:
                expirations += 1
                if not error.continue_token or expirations > EXPIRATIONS_MAX:
                    raise
                asked = error.continue_token
            except (NotAcceptable, UnsupportedMediaType):
                if not self._has_partial:
                    raise
                self._has_partial = False
            else:
                return self._seen(page, asked)

    def _seen(self, page: ListPage, token: str) -> Listed:
        if page.continue_token and page.continue_token == token:
            raise ConnectionFailed(
                self._client.server,
                f"the list of {self._name} has a page that leads to itself",
                advice="This is no API server as it should be: please report it",
            )
        refs = [ref_of(item) for item in page.items]
        if refs and page.continue_token:
            self._last = (page.continue_token, ObjectKey(refs[-1].namespace, refs[-1].name))
        self._limit = min(self._limit * 2, self._limit_max)
        return Listed(refs=refs, token=page.continue_token, remaining=page.remaining)

    def _next_try(
        self, error: StatusError | ConnectionFailed, failures: int, *, token: str
    ) -> float:
        """Seconds until the next try, perhaps with a smaller page; raises if a retry is useless."""
        verdict = classify(error)
        if verdict.means is not Means.RETRY:
            raise error
        has_tries = failures < verdict.attempts_max and not isinstance(error, AnswerTooLarge)
        is_shrinking = self._limit < self._limit_max or not has_tries
        if is_shrinking and self._limit > 1 and _may_be_for_its_size(error):
            self._limit //= 2
            return 0.0
        if not has_tries:
            raise self._stuck(error, token) from error
        delay_seconds = BACKOFF.delay_seconds(failures - 1, self._runtime.randomness)
        return min(max(verdict.wait_seconds, delay_seconds), WAIT_SECONDS_MAX)

    def _stuck(
        self, error: StatusError | ConnectionFailed, token: str
    ) -> StatusError | ConnectionFailed:
        """The error, with the place where the list ended."""
        if isinstance(error, ConnectionFailed) or not _may_be_for_its_size(error):
            return error
        place = "at its first object"
        if token:
            is_known = self._last is not None and self._last[0] == token
            last = str(self._last[1]) if self._last and is_known else _last_before(token)
            place = f"behind {last}" if last else "in the middle"
        return StatusError(
            f"the list of {self._name} ends {place}, because an object there cannot be read; "
            "those behind it have not been looked at (restow census names it, if it may read the "
            f"store): {message_of(error)}",
            code=error.code,
            reason=error.reason or "InternalError",
            details=error.details,
        )


def _may_be_for_its_size(error: StatusError | ConnectionFailed) -> bool:
    """Whether a smaller page may succeed: one object may be broken, or all be too large."""
    if isinstance(error, ConnectionFailed):
        return isinstance(error, AnswerTooLarge) or isinstance(error.__cause__, TimeoutError)
    return error.code in {500, 504}


def _last_before(token: str) -> str:
    """The last object before a token in the format of Kubernetes: only for messages."""
    try:
        found = orjson.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        start = found["start"]
    except (ValueError, TypeError, KeyError):
        return ""
    return start.rstrip("\0") if isinstance(start, str) else ""
