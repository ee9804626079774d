"""Webhooks as plug-ins: other people's servers that have a say in writes, or change them.

    mutating      one after the other, in the order of their names, each on what the one before
                  has made of the object; those that wish it once more when a later one changed it
    validating    all at once; the first refusal in order counts

A webhook that fails lets the write through or refuses it, as its configuration says. Nothing waits
for one but the writes that it has a say in, and those no longer than their own deadline.

Not asked: about configurations of webhooks and policies themselves, so that nobody is locked out.

Not here: connections (`webhooks_transport`), what they are told (`request_values`,
`webhooks_objects`), and what a webhook is about (`matchers`, `webhooks_conditions`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from restow.admission.matchers import Hosted, Namespaces
from restow.admission.offload import OffloadedEvaluations
from restow.admission.request_values import request_values
from restow.admission.review import Attributes, WriteOf, renamed
from restow.admission.slot_queue import TOO_LATE
from restow.admission.webhooks_conditions import (
    AuthorizerValues,
    conditions_hold,
    no_authorizer,
)
from restow.admission.webhooks_index import AdmissionWebhook, Concerned, KnownHooks
from restow.admission.webhooks_metrics import Type, WebhookMetrics
from restow.admission.webhooks_objects import back_in_version, completed, in_version
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

AT_ONCE_MAX: Final = 64
"""Validating webhooks that are asked about one write at the same time."""
ROUNDS: Final = 2
"""How often a mutating webhook is asked about one try of a write, at most."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What both kinds of webhooks need to be asked."""

    calls: HookCalls
    namespaces: Namespaces
    metrics: WebhookMetrics
    runtime: Runtime
    offloaded: OffloadedEvaluations
    authorizer: AuthorizerValues = no_authorizer


class MutatingWebhooks:
    """Satisfies `Mutation`."""

    def __init__(self, known: KnownHooks, asking: Asking) -> None:
        self._known = known
        self._asker = _Asker(asking, "admit")

    def concerns(self, write: WriteOf) -> bool:
        return bool(self._known.concerned(write))

    async def mutate(self, attributes: Attributes) -> Object | None:
        """The object as webhooks want it, None if they leave it."""
        before = attributes.obj
        concerned = self._known.concerned(attributes.write)
        asked_before: set[AdmissionWebhook] = set()
        again: set[AdmissionWebhook] = set()
        for number in range(ROUNDS):
            for index, each in enumerate(concerned):
                hook = each.hook
                if number and hook not in again:
                    continue
                where = f"round_{number}_index_{index}"
                changed = await self._ask(each, attributes, where)
                if changed is None:
                    continue
                if changed is not attributes.obj:
                    attributes = replace(attributes, obj=changed)
                    # Who was asked before this one has not seen what it did.
                    again |= asked_before
                    asked_before.clear()
                if hook.is_reinvoked:
                    asked_before.add(hook)
            if not again:
                break
        return None if attributes.obj is before else attributes.obj

    async def _ask(self, each: Concerned, attributes: Attributes, where: str) -> Object | None:
        """The object as one webhook wants it; None if it was not asked, or is for a delete."""
        hosted = await self._asker.way(each, attributes)
        if hosted is None:
            return None
        context, hook = attributes.context, each.hook
        verdict = await self._asker.ask(
            hook, attributes, hosted, failed_open=f"failed-open.mutation.{_NOTES}/{where}"
        )
        changed = attributes.obj
        if verdict is not None and verdict.patch is not None:
            changed = await self._patched(hook, attributes, hosted, verdict)
        is_changed = changed is not attributes.obj
        said = {"configuration": hook.configuration, "webhook": hook.name, "mutated": is_changed}
        context.annotate(f"mutation.{_NOTES}/{where}", orjson.dumps(said).decode())
        return changed

    async def _patched(
        self, hook: AdmissionWebhook, attributes: Attributes, hosted: Hosted, verdict: ReviewAnswer
    ) -> Object | None:
        shown = await in_version(attributes, hosted, attributes.obj)
        assert verdict.patch is not None
        if shown is None:
            raise status.internal(
                f'admission webhook "{hook.name}" attempted to modify the object, which is not'
                " supported for this operation"
            )
        try:
            patched = completed(attributes, hosted, verdict.patch.apply(shown))
        except (StatusError, MachineryError) as error:
            # Neither the client nor the failure policy has a part in it: it was answered.
            raise status.internal(f'admission webhook "{hook.name}": {error}') from error
        if path := renamed(shown, patched):
            told = f'admission webhook "{hook.name}" attempted to change {path}'
            raise status.internal(told)
        if patched == shown and orjson.dumps(patched) == orjson.dumps(shown):
            return attributes.obj
        return await back_in_version(attributes, hosted, patched)


class ValidatingWebhooks:
    """Satisfies `Admission`."""

    def __init__(self, known: KnownHooks, asking: Asking) -> None:
        self._known = known
        self._asker = _Asker(asking, "validating")

    def concerns(self, write: WriteOf) -> bool:
        return bool(self._known.concerned(write))

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        concerned = self._known.concerned(attributes.write)
        return self._review(concerned, attributes) if concerned else None

    async def _review(self, concerned: Sequence[Concerned], attributes: Attributes) -> None:
        ways = [(each.hook, await self._asker.way(each, attributes)) for each in concerned]
        asked = [(hook, hosted) for hook, hosted in ways if hosted is not None]
        for first in range(0, len(asked), AT_ONCE_MAX):
            outcomes = await asyncio.gather(
                *(
                    self._asker.ask(
                        hook,
                        attributes,
                        hosted,
                        failed_open=f"failed-open.validating.{_NOTES}/round_0_index_{index}",
                    )
                    for index, (hook, hosted) in enumerate(
                        asked[first : first + AT_ONCE_MAX], first
                    )
                ),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome


_NOTES: Final = "webhook.admission.k8s.io"


class _Asker:
    """Asks webhooks of one kind."""

    def __init__(self, asking: Asking, type_: Type) -> None:
        self._asking = asking
        self._type: Type = type_
        self._clock = asking.runtime.clock

    async def way(self, each: Concerned, attributes: Attributes) -> Hosted | None:
        """In which version a webhook is asked about a write; None if it is not."""
        hook, ways = each
        namespace = None
        if hook.matcher.has_namespace_selector and attributes.resource.kind.namespaced:
            found = self._asking.namespaces.known(attributes.namespace)
            namespace = found or await self._asking.namespaces.get(attributes.namespace)
        hosted = hook.matcher.matches(attributes, ways, namespace)
        if hosted is None or not hook.conditions:
            return hosted
        holds = await conditions_hold(
            hook,
            attributes,
            hosted,
            obj=await in_version(attributes, hosted, attributes.obj),
            old=await in_version(attributes, hosted, attributes.old),
            authorizer=self._asking.authorizer,
            offloaded=self._asking.offloaded,
        )
        if not holds:
            self._asking.metrics.excluded(hook.name, self._type, attributes.operation)
        return hosted if holds else None

    async def ask(
        self, hook: AdmissionWebhook, attributes: Attributes, hosted: Hosted, *, failed_open: str
    ) -> ReviewAnswer | None:
        """What a webhook says; None: it failed, and that does not matter. Raises a StatusError:
        a refusal, or a 500 for a webhook that failed."""
        began = self._clock.monotonic()
        try:
            verdict = await self._call(hook, attributes, hosted)
        except WebhookCallFailed as failed:
            self._failed(hook, attributes, began, failed=failed, failed_open=failed_open)
            return None
        except StatusError as error:
            told = "apiserver_internal_error"
            self._count(hook, attributes, began, error=error, error_type=told)
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
        operation, metrics = attributes.operation, self._asking.metrics
        seconds = self._clock.monotonic() - began
        told = f'failed calling webhook "{hook.name}": {failed}'
        metrics.asked(
            hook.name,
            self._type,
            operation,
            code=failed.code,
            rejected=not hook.fails_open,
            seconds=seconds,
        )
        if not hook.fails_open:
            logger.warning("%s (failing closed)", told)
            metrics.rejected(
                hook.name,
                self._type,
                operation,
                error_type="calling_webhook_error",
                code=failed.code,
            )
            raise status.internal(told)
        logger.warning("%s (failing open)", told)
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
        operation, metrics = attributes.operation, self._asking.metrics
        is_rejected = error is not None
        metrics.asked(
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
            known = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise WebhookCallFailed(f"could not create admission objects: {known}", code=400)
        if self._seconds_left(attributes) <= 0:
            raise status.timeout(TOO_LATE)
        uid = self._asking.runtime.ids.uid()
        question = write_review(
            {
                "uid": uid,
                **request_values(attributes, hosted),
                "object": await in_version(attributes, hosted, attributes.obj),
                "oldObject": await in_version(attributes, hosted, attributes.old),
            },
            version=hook.review_version,
        )
        body = await self._asking.calls.post(
            hook.client,
            question,
            seconds_max=hook.seconds_max,
            user=attributes.user,
            by_seconds=attributes.context.request.answer_by_seconds,
        )
        if self._seconds_left(attributes) <= 0:
            # The client has been told that nothing came of it: a late answer must not store it.
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
