"""Admission webhooks: external servers that validate or mutate writes.

    mutating      called one after the other, ordered by configuration name, each with the object
                  as the previous one returned it; those with `reinvocationPolicy: IfNeeded` are
                  called again if a later one changed the object
    validating    called concurrently; the first refusal in order is returned

The failure policy of a webhook decides whether a failed call allows or refuses the write. Only the
writes that a webhook matches wait for it, and no longer than the request's deadline.

Webhooks are not called for webhook configurations and policies, so that these can be repaired.

Not here: connections (`webhooks_transport`), the content of a review (`request_values`,
`webhooks_objects`), and matching (`matchers`, `webhooks_conditions`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from restow.admission.matchers import Hosted, Namespaces
from restow.admission.request_values import request_values
from restow.admission.review import Attributes, WriteOf, renamed
from restow.admission.webhooks_conditions import (
    AuthorizerValues,
    conditions_hold,
    no_authorizer,
)
from restow.admission.webhooks_index import AdmissionWebhook, MatchingWebhook, WebhookIndex
from restow.admission.webhooks_metrics import Type, WebhookMetrics
from restow.admission.webhooks_objects import back_in_version, in_version, validated_patch
from restow.admission.webhooks_transport import HookCalls, WebhookCallFailed
from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.admission_review import (
    AnswerInvalid,
    ReviewAnswer,
    read_review,
    refusal,
    write_review,
)
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status_error import StatusError
from restow.registry.resource import Object
from restow.request.offload import Offload
from restow.request.slot_queue import TOO_LATE

PARALLEL_CALLS_MAX: Final = 64
"""Maximum number of validating webhooks called concurrently for one write."""
ROUNDS: Final = 2
"""Maximum number of calls of a mutating webhook for one attempt of a write."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDependencies:
    """The dependencies of both kinds of webhooks."""

    calls: HookCalls
    namespaces: Namespaces
    metrics: WebhookMetrics
    runtime: Runtime
    offload: Offload
    authorizer: AuthorizerValues = no_authorizer


class MutatingWebhooks:
    """The mutating webhooks as a plug-in. Satisfies `Mutation`."""

    def __init__(self, index: WebhookIndex, dependencies: WebhookDependencies) -> None:
        self._index = index
        self._caller = _WebhookCaller(dependencies, "admit")

    def concerns(self, write: WriteOf) -> bool:
        return bool(self._index.matching(write))

    async def mutate(self, attributes: Attributes) -> Object | None:
        """Return the object as the webhooks changed it, or None if unchanged."""
        before = attributes.obj
        matching = self._index.matching(attributes.write)
        called_before: set[AdmissionWebhook] = set()
        again: set[AdmissionWebhook] = set()
        for number in range(ROUNDS):
            for index, each in enumerate(matching):
                hook = each.hook
                if number and hook not in again:
                    continue
                where = f"round_{number}_index_{index}"
                changed = await self._call_one(each, attributes, where)
                if changed is None:
                    continue
                if changed is not attributes.obj:
                    attributes = replace(attributes, obj=changed)
                    # Webhooks called before this one have not seen its changes.
                    again |= called_before
                    called_before.clear()
                if hook.is_reinvoked:
                    called_before.add(hook)
            if not again:
                break
        return None if attributes.obj is before else attributes.obj

    async def _call_one(
        self, each: MatchingWebhook, attributes: Attributes, where: str
    ) -> Object | None:
        """Return the object after one webhook; None for a delete or if the webhook does not
        match."""
        hosted = await self._caller.match(each, attributes)
        if hosted is None:
            return None
        context, hook = attributes.context, each.hook
        verdict = await self._caller.call(
            hook, attributes, hosted, failed_open=f"failed-open.mutation.{_ANNOTATIONS}/{where}"
        )
        changed = attributes.obj
        if verdict is not None and verdict.patch is not None:
            changed = await self._patched(hook, attributes, hosted, verdict)
        is_changed = changed is not attributes.obj
        record = {"configuration": hook.configuration, "webhook": hook.name, "mutated": is_changed}
        context.annotate(f"mutation.{_ANNOTATIONS}/{where}", orjson.dumps(record).decode())
        return changed

    async def _patched(
        self, hook: AdmissionWebhook, attributes: Attributes, hosted: Hosted, verdict: ReviewAnswer
    ) -> Object | None:
        sent = await in_version(attributes, hosted, attributes.obj)
        assert verdict.patch is not None
        if sent is None:
            raise status.internal(
                f'admission webhook "{hook.name}" attempted to modify the object, which is not'
                " supported for this operation"
            )
        try:
            patched = validated_patch(attributes, hosted, verdict.patch.apply(sent))
        except (StatusError, MachineryError) as error:
            # The webhook responded, so this is an internal error whatever the failure policy.
            raise status.internal(f'admission webhook "{hook.name}": {error}') from error
        if path := renamed(sent, patched):
            message = f'admission webhook "{hook.name}" attempted to change {path}'
            raise status.internal(message)
        if patched == sent and orjson.dumps(patched) == orjson.dumps(sent):
            return attributes.obj
        return await back_in_version(attributes, hosted, patched)


class ValidatingWebhooks:
    """The validating webhooks as a plug-in. Satisfies `Admission`."""

    def __init__(self, index: WebhookIndex, dependencies: WebhookDependencies) -> None:
        self._index = index
        self._caller = _WebhookCaller(dependencies, "validating")

    def concerns(self, write: WriteOf) -> bool:
        return bool(self._index.matching(write))

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        matching = self._index.matching(attributes.write)
        return self._review(matching, attributes) if matching else None

    async def _review(self, matching: Sequence[MatchingWebhook], attributes: Attributes) -> None:
        matches = [(each.hook, await self._caller.match(each, attributes)) for each in matching]
        calls = [(hook, hosted) for hook, hosted in matches if hosted is not None]
        for first in range(0, len(calls), PARALLEL_CALLS_MAX):
            outcomes = await asyncio.gather(
                *(
                    self._caller.call(
                        hook,
                        attributes,
                        hosted,
                        failed_open=f"failed-open.validating.{_ANNOTATIONS}/round_0_index_{index}",
                    )
                    for index, (hook, hosted) in enumerate(
                        calls[first : first + PARALLEL_CALLS_MAX], first
                    )
                ),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome


_ANNOTATIONS: Final = "webhook.admission.k8s.io"


class _WebhookCaller:
    """Calls webhooks of one kind."""

    def __init__(self, dependencies: WebhookDependencies, type_: Type) -> None:
        self._dependencies = dependencies
        self._type: Type = type_
        self._clock = dependencies.runtime.clock

    async def match(self, each: MatchingWebhook, attributes: Attributes) -> Hosted | None:
        """Return the resource and version in which a webhook matches a write, or None."""
        hook, matches = each
        namespace = None
        if hook.matcher.has_namespace_selector and attributes.resource.kind.namespaced:
            found = self._dependencies.namespaces.cached(attributes.namespace)
            namespace = found or await self._dependencies.namespaces.get(attributes.namespace)
        hosted = hook.matcher.matches(attributes, matches, namespace)
        if hosted is None or not hook.conditions:
            return hosted
        holds = await conditions_hold(
            hook,
            attributes,
            hosted,
            obj=await in_version(attributes, hosted, attributes.obj),
            old=await in_version(attributes, hosted, attributes.old),
            authorizer=self._dependencies.authorizer,
            offload=self._dependencies.offload,
        )
        if not holds:
            self._dependencies.metrics.excluded(hook.name, self._type, attributes.operation)
        return hosted if holds else None

    async def call(
        self, hook: AdmissionWebhook, attributes: Attributes, hosted: Hosted, *, failed_open: str
    ) -> ReviewAnswer | None:
        """Call a webhook and return its verdict, or None if it failed and its failure policy is
        `Ignore`. Raises a StatusError: the refusal, or a 500 for a failed call."""
        began = self._clock.monotonic()
        try:
            verdict = await self._call(hook, attributes, hosted)
        except WebhookCallFailed as failed:
            self._failed(hook, attributes, began, failed=failed, failed_open=failed_open)
            return None
        except StatusError as error:
            message = "apiserver_internal_error"
            self._count(hook, attributes, began, error=error, error_type=message)
            raise
        if not verdict.is_allowed:
            denied = refusal(hook.name, verdict.result)
            self._count(hook, attributes, began, error=denied, error_type="no_error")
            raise denied
        self._count(hook, attributes, began)
        return verdict

    def _failed(
        self,
        hook: AdmissionWebhook,
        attributes: Attributes,
        began: float,
        *,
        failed: WebhookCallFailed,
        failed_open: str,
    ) -> None:
        operation, metrics = attributes.operation, self._dependencies.metrics
        seconds = self._clock.monotonic() - began
        message = f'failed calling webhook "{hook.name}": {failed}'
        metrics.called(
            hook.name,
            self._type,
            operation,
            code=failed.code,
            rejected=not hook.fails_open,
            seconds=seconds,
        )
        if not hook.fails_open:
            logger.warning("%s (failing closed)", message)
            metrics.rejected(
                hook.name,
                self._type,
                operation,
                error_type="calling_webhook_error",
                code=failed.code,
            )
            raise status.internal(message)
        logger.warning("%s (failing open)", message)
        metrics.failed_open(hook.name, self._type)
        attributes.context.annotate(failed_open, hook.name)
        if self._seconds_left(attributes) <= 0:
            raise status.timeout(TOO_LATE)

    def _count(
        self,
        hook: AdmissionWebhook,
        attributes: Attributes,
        began: float,
        *,
        error: StatusError | None = None,
        error_type: Any = "",
    ) -> None:
        code = 200 if error is None else error.code
        seconds = self._clock.monotonic() - began
        operation, metrics = attributes.operation, self._dependencies.metrics
        is_rejected = error is not None
        metrics.called(
            hook.name, self._type, operation, code=code, rejected=is_rejected, seconds=seconds
        )
        if is_rejected:
            metrics.rejected(hook.name, self._type, operation, error_type=error_type, code=code)

    async def _call(
        self, hook: AdmissionWebhook, attributes: Attributes, hosted: Hosted
    ) -> ReviewAnswer:
        if attributes.dry_run and not hook.allows_dry_run:
            raise status.bad_request(f'admission webhook "{hook.name}" does not support dry run')
        if hook.problem:
            raise WebhookCallFailed(hook.problem)
        if not hook.review_version:
            index = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise WebhookCallFailed(f"could not create admission objects: {index}", code=400)
        if self._seconds_left(attributes) <= 0:
            raise status.timeout(TOO_LATE)
        uid = self._dependencies.runtime.ids.uid()
        question = write_review(
            {
                "uid": uid,
                **request_values(attributes, hosted),
                "object": await in_version(attributes, hosted, attributes.obj),
                "oldObject": await in_version(attributes, hosted, attributes.old),
            },
            version=hook.review_version,
        )
        body = await self._dependencies.calls.post(
            hook.client,
            question,
            seconds_max=hook.seconds_max,
            user=attributes.user,
            by_seconds=attributes.context.request.answer_by_seconds,
        )
        if self._seconds_left(attributes) <= 0:
            # The client already got a timeout error: a late response must not store the object.
            raise status.timeout(TOO_LATE)
        try:
            verdict = read_review(
                body,
                uid=uid,
                version=hook.review_version,
                may_patch=self._type == "admit",
            )
        except AnswerInvalid as error:
            raise WebhookCallFailed(f"received invalid webhook response: {error}") from None
        for name, value in verdict.annotations:
            attributes.context.annotate(f"{hook.name}/{name}", value)
        for warning in verdict.warnings:
            attributes.context.warn(warning)
        return verdict

    def _seconds_left(self, attributes: Attributes) -> float:
        return attributes.context.request.answer_by_seconds - self._clock.monotonic()
