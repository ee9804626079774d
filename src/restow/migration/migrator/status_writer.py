"""Writes of a running migration to its object: conditions, progress, position, proof.

    migration.k8s.io          conditions with lastUpdateTime; status.progress, status.failedObjects;
                              the token also in spec.continueToken
    storagemigration.k8s.io   standard conditions; restow writes nothing else to the status

Conditions are a list, which a merge patch replaces as a whole: each status is computed from the
last one that was read, written with its resource version as precondition, and retried a bounded
number of times. Annotations are patched with only the uid as precondition. The end of
a migration is final, whichever client has written it.

Not here: the times of the writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from restow.apimachinery.status import Conflict, NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis.migration_v1alpha1 import GROUP
from restow.client import ApiClient, ConnectionFailed, Object, version_of
from restow.migration.migration_objects import is_proven, mapping, phase_of
from restow.migration.migration_values import MigrationPhase
from restow.migration.migrator.migration_watch import Followed, MigrationDeleted
from restow.migration.migrator.options import FAILURES_SHOWN_MAX, EngineOptions
from restow.migration.migrator.passes import ObjectFailure
from restow.migration.migrator.position import Position, Purpose
from restow.migration.migrator.progress import Progress
from restow.migration.names import (
    FAILED,
    POSITION_ANNOTATION,
    PROOF_ANNOTATION,
    REASON_RUNNING,
    RUNNING,
    SUCCEEDED,
)
from restow.migration.times import time_text

ATTEMPTS_MAX: Final = 8
MESSAGE_LENGTH_MAX: Final = 1024
FAILURE_LENGTH_MAX: Final = 256

logger = logging.getLogger(__name__)

Said = tuple[str, str, str]
"""Status, reason, message."""
Conditions = Mapping[str, Said]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The evidence that all objects are stored in the target version."""

    target: str
    mark: str
    by: str
    objects: int
    time: datetime

    def to_text(self) -> str:
        value = {
            "target": self.target,
            "mark": self.mark,
            "by": self.by,
            "objects": self.objects,
            "time": time_text(self.time),
        }
        return orjson.dumps(value).decode()


def proves(text: str, *, target: str, mark: str) -> bool:
    """Whether an annotation is a proof for an agreement. Without a mark it is never valid later."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    said = (value.get("target"), value.get("mark")) if isinstance(value, dict) else ("", "")
    return bool(mark) and said == (target, mark)


class MigrationWriter:
    """Writes to one migration. Every method raises `MigrationDeleted` if it is deleted."""

    def __init__(self, client: ApiClient, followed: Followed, *, options: EngineOptions) -> None:
        self._client = client
        self._followed = followed
        self._options = options
        self._clock = client.runtime.clock
        self._is_ksvm_api = followed.resource.group == GROUP
        self._current = followed.latest
        """The last state that was read or written."""
        self._next_position_at = 0.0
        self._next_progress_at = 0.0

    async def begin(self, position: Position, purpose: Purpose) -> None:
        """Save the position of the start, and remove an earlier proof."""
        await self._mark(position, purpose, {PROOF_ANNOTATION: None}, attempts_max=ATTEMPTS_MAX)

    async def save(self, position: Position, purpose: Purpose, *, is_due: bool = False) -> None:
        """Save a position, unless the last one was saved a moment ago."""
        if is_due or self._clock.monotonic() >= self._next_position_at:
            await self._mark(position, purpose, {}, attempts_max=1)

    async def prove(self, proof: Proof) -> None:
        """Write the proof: before the success, since a success without a proof does not count."""
        said = {PROOF_ANNOTATION: proof.to_text(), POSITION_ANNOTATION: None}
        await self._annotate(
            said, token="" if self._is_ksvm_api else None, attempts_max=ATTEMPTS_MAX
        )

    async def running(
        self, progress: Progress, message: str, *, reason: str = REASON_RUNNING
    ) -> None:
        """Write that the migration is running, or that it is paused."""
        conditions = {RUNNING: ("True", reason, message)}
        await self._write(conditions, progress=progress, failures=None)

    async def progress(
        self, progress: Progress, failures: Sequence[ObjectFailure], *, is_due: bool = False
    ) -> None:
        """Write the progress, unless it was written a moment ago."""
        if is_due or self._clock.monotonic() >= self._next_progress_at:
            conditions = {RUNNING: ("True", REASON_RUNNING, progress.text())}
            await self._write(conditions, progress=progress, failures=failures, attempts_max=1)

    async def succeeded(self, reason: str, message: str, progress: Progress | None) -> None:
        conditions = {
            RUNNING: ("False", reason, message),
            SUCCEEDED: ("True", reason, message),
        }
        await self._write(conditions, progress=progress, failures=())

    async def failed(
        self,
        reason: str,
        message: str,
        *,
        progress: Progress | None = None,
        failures: Sequence[ObjectFailure] = (),
    ) -> None:
        conditions = {RUNNING: ("False", reason, message), FAILED: ("True", reason, message)}
        await self._write(conditions, progress=progress, failures=failures)

    # Patches.

    async def _mark(
        self,
        position: Position,
        purpose: Purpose,
        annotations: dict[str, str | None],
        *,
        attempts_max: int,
    ) -> None:
        token = position.token if self._is_ksvm_api else None
        said = {POSITION_ANNOTATION: position.to_text(purpose), **annotations}
        await self._annotate(said, token=token, attempts_max=attempts_max)
        self._next_position_at = self._clock.monotonic() + self._options.position_seconds

    async def _annotate(
        self, annotations: dict[str, str | None], *, token: str | None = None, attempts_max: int
    ) -> bool:
        patch: Object = {"metadata": {"uid": self._followed.uid, "annotations": annotations}}
        if token is not None:
            patch["spec"] = {"continueToken": token or None}
        return await self._send(lambda: patch, attempts_max=attempts_max)

    async def _write(
        self,
        conditions: Conditions,
        *,
        progress: Progress | None,
        failures: Sequence[ObjectFailure] | None,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> None:
        def make() -> Object | None:
            if not self._may(conditions):
                return None
            version = version_of(self._current)
            return {
                "metadata": {"uid": self._followed.uid, "resourceVersion": version},
                "status": self._status(conditions, progress=progress, failures=failures),
            }

        await self._send(make, subresource="status", attempts_max=attempts_max)
        self._next_progress_at = self._clock.monotonic() + self._options.progress_seconds

    async def _send(
        self, make: Callable[[], Object | None], *, attempts_max: int, subresource: str = ""
    ) -> bool:
        """Send a patch, computed for each attempt. With only one attempt it may fail silently."""
        runtime, followed = self._client.runtime, self._followed
        for attempt in range(attempts_max):
            patch = make()
            if patch is None:
                return True  # there is nothing left to write
            try:
                written = await self._client.patch(
                    followed.resource, followed.name, patch, subresource=subresource
                )
            except NotFound as error:
                raise MigrationDeleted(f"{followed.name} was deleted") from error
            except (StatusError, ConnectionFailed) as error:
                if not _is_passing(error):
                    raise
                logger.info("%s could not be written: %s", followed.name, error)
                if isinstance(error, Conflict):
                    # The object was recreated with another uid, or changed concurrently.
                    self._current = await followed.read()
                if attempt == attempts_max - 1:
                    if attempts_max > 1:
                        raise
                    return False
            else:
                self._current = written
                followed.see(written)
                return True
            backoff = self._options.retry_backoff
            await runtime.clock.sleep(backoff.delay_seconds(attempt, runtime.randomness))
        return False

    def _may(self, conditions: Conditions) -> bool:
        """Whether these conditions may be written. A failure is final; so is a success, except that
        one without a proof becomes a failure where the API allows both."""
        match phase_of(self._current):
            case MigrationPhase.FAILED:
                return False
            case MigrationPhase.SUCCEEDED:
                is_open = FAILED in conditions and not is_proven(self._current)
                return is_open and self._is_ksvm_api
            case _:
                return True

    def _status(
        self,
        conditions: Conditions,
        *,
        progress: Progress | None,
        failures: Sequence[ObjectFailure] | None,
    ) -> Object:
        now = time_text(self._clock.wall())
        make = _ksvm_condition if self._is_ksvm_api else _standard_condition
        found = mapping(self._current, "status").get("conditions")
        before = {
            each.get("type"): each
            for each in (found if isinstance(found, list) else ())
            if isinstance(each, dict)
        }
        for kind, said in conditions.items():
            before[kind] = make(kind, said, before.get(kind), now)
        status: Object = {"conditions": list(before.values())}
        if self._is_ksvm_api:
            if progress is not None:
                status["progress"] = progress.to_status()
            if failures is not None:
                status["failedObjects"] = [_shown(each) for each in failures[:FAILURES_SHOWN_MAX]]
        return status


def _is_passing(error: StatusError | ConnectionFailed) -> bool:
    """Whether the error is transient."""
    if isinstance(error, ConnectionFailed):
        return True
    return isinstance(error, Conflict) or error.code == 429 or error.code >= 500


def _ksvm_condition(kind: str, said: Said, _before: Object | None, now: str) -> Object:
    status, reason, message = said
    return {
        "type": kind,
        "status": status,
        "lastUpdateTime": now,
        "reason": reason,
        "message": message[:MESSAGE_LENGTH_MAX],
    }


def _standard_condition(kind: str, said: Said, before: Object | None, now: str) -> Object:
    status, reason, message = said
    is_same = before is not None and before.get("status") == status
    since = before.get("lastTransitionTime") if before is not None and is_same else None
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": since or now,
        "reason": reason,
        "message": message[:MESSAGE_LENGTH_MAX],
    }


def _shown(failure: ObjectFailure) -> dict[str, Any]:
    return {
        "namespace": failure.namespace,
        "name": failure.name,
        "reason": failure.reason,
        "message": failure.message[:FAILURE_LENGTH_MAX],
    }
