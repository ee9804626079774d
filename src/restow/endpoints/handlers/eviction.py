"""eviction: deletes a pod, unless its PodDisruptionBudget forbids that.

    POST  {"metadata": {"name": NAME}, "deleteOptions": {…}}

The budget that selects a running pod decides. Its `disruptionsAllowed` is computed by the
disruption controller; it is decremented here in a guarded update before the pod is deleted, so that
concurrent evictions cannot exceed it. A pod that is pending, completed or being deleted is deleted
without that check, and so is one that is not ready where its budget allows that.

    409   the precondition names another pod
    429   the budget allows no more disruptions now, or was not observed since it was changed
    500   several budgets select the pod, as in Kubernetes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import orjson

from restow.apimachinery import status
from restow.apimachinery.names import GroupResource
from restow.apimachinery.status_error import StatusCause, StatusError
from restow.endpoints.handlers.binding import pods_of
from restow.endpoints.handlers.conditions import condition_of, with_condition
from restow.endpoints.handlers.delete import options_of, supported_options
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.subresource_actions import SentKind, done, stored_object
from restow.httpserver.response import HttpResponse
from restow.kinds.validation.fields import selects
from restow.kinds.validation.pod_parts import EVICTION
from restow.registry.resource import Object, Resource
from restow.registry.store import DeleteOptions, ObjectWriteOptions
from restow.registry.strategy import timestamp
from restow.request.context import Context

DISRUPTED_PODS_MAX: Final = 2000
"""Evictions that the disruption controller has not confirmed yet."""
BUDGET_RETRY_AFTER_SECONDS: Final = 10
_TOO_FEW: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_CAUSE: Final = "DisruptionBudget"
_BUDGET: Final = GroupResource("policy", "poddisruptionbudget")
_IGNORED: Final = ("Pending", "Succeeded", "Failed")
_SENT: Final = SentKind("policy", "Eviction", also=("v1beta1",))


async def evict(server: Server, context: Context) -> HttpResponse:
    """POST of an eviction to its pod."""
    context.request.is_shielded = True
    obj = await _SENT.read(server, context)
    if obj["metadata"].get("name") != context.info.name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    options = supported_options(
        server, context, options_of(context, obj.get("deleteOptions") or {})
    )
    asked = server.admission.for_request(context, "CREATE")
    if asked is not None:
        obj = await asked.mutate(obj, None, is_dry_run=options.dry_run)
        options = supported_options(
            server, context, options_of(context, obj.get("deleteOptions") or {})
        )
        await asked.review(obj, None, is_dry_run=options.dry_run)
    await _Evicting(server, context, options).run()
    return done(context)


class _Evicting:
    """One eviction request."""

    def __init__(self, server: Server, context: Context, options: DeleteOptions) -> None:
        self._server = server
        self._options = options
        self._retries = context.retries
        self._pods = pods_of(server)
        self._namespace, self._name = context.info.namespace, context.info.name
        self._path = self._pods.path_of(self._namespace, self._name)

    async def run(self) -> None:
        while True:
            pod = await stored_object(self._server, self._pods, self._namespace, self._name)
            if not _may_ignore_budgets(pod):
                await self._evict_running(pod)
                return
            # A pending pod may start to run meanwhile, and then its budget decides.
            is_pending = not _is_ending_or_over(pod) and not self._options.resource_version
            try:
                await self._delete(self._at(pod) if is_pending else self._options)
            except status.Conflict:
                if not is_pending or self._options.uid not in ("", pod["metadata"]["uid"]):
                    raise
            else:
                return
            if not self._retries.take():
                raise status.server_timeout(self._pods.kind.group_resource, "create")

    async def _evict_running(self, pod: Object) -> None:
        budget = await self._budget_of(pod)
        if budget is None:
            await self._delete(self._options)
            return
        resource, name = budget[0], budget[1]["metadata"]["name"]
        if _is_evictable_unready(pod, budget[1]):
            try:
                # It must still be the pod that is not ready.
                await self._delete(self._at(pod))
            except status.Conflict:
                if self._options.resource_version:
                    raise
                raise _still_processed(name) from None
            return
        now = timestamp(self._server.runtime.clock.wall())
        await self._server.store.update(
            resource,
            "v1",
            resource.path_of(self._namespace, name),
            _decremented(self._name, now=now),
            subresource="status",
            is_patch=True,
            options=self._write_options(),
        )
        await self._delete(self._options)

    async def _budget_of(self, pod: Object) -> tuple[Resource, Object] | None:
        """The budget that selects a pod. Raises a 500 when there are several."""
        resource = self._server.catalog.of_kind("policy", "PodDisruptionBudget")
        if resource is None:
            return None
        store = self._server.store
        cache = await store.read(resource)
        labels, found = pod["metadata"].get("labels") or {}, []
        for entry in cache.select(f"{self._namespace}/").entries:
            budget = store.object_of(resource, entry, resource.api_version("v1"))
            selector = (budget.get("spec") or {}).get("selector")
            if selector is not None and selects(selector, labels):
                found.append(budget)
        if len(found) > 1:
            raise StatusError(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource"
                " does not support."
            )
        return (resource, found[0]) if found else None

    def _at(self, pod: Object) -> DeleteOptions:
        """The DeleteOptions, with the observed resource version of the pod as precondition."""
        if self._options.resource_version:
            return self._options
        return replace(self._options, resource_version=pod["metadata"]["resourceVersion"])

    async def _delete(self, options: DeleteOptions) -> None:
        """Record the reason in the conditions of the pod, and delete it."""
        store, version = self._server.store, options.resource_version
        if not options.dry_run:
            now = timestamp(self._server.runtime.clock.wall())
            written = await store.update(
                self._pods,
                "v1",
                self._path,
                _with_disruption_target(options, now=now),
                subresource=EVICTION,
                is_patch=True,
                options=self._write_options(),
            )
            if version and not written.removed:
                version = _resource_version(written.body)
        sent = replace(options, resource_version=version)
        await store.delete(self._pods, "v1", self._path, sent, options=self._write_options())

    def _write_options(self) -> ObjectWriteOptions:
        """As in Kubernetes, no manager owns the fields. All writes share the request's retries."""
        return ObjectWriteOptions(
            manager=None, dry_run=self._options.dry_run, retries=self._retries
        )


def _resource_version(body: bytes) -> str:
    metadata: dict[str, Any] = orjson.loads(body)["metadata"]
    return str(metadata["resourceVersion"])


def _may_ignore_budgets(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in _IGNORED or bool(pod["metadata"].get("deletionTimestamp"))


def _is_ending_or_over(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed") or bool(pod["metadata"].get("deletionTimestamp"))


def _is_evictable_unready(pod: Object, budget: Object) -> bool:
    """Whether a pod is not ready and its budget allows it to be evicted in that state."""
    ready = condition_of(pod.get("status") or {}, "Ready") or {}
    if ready.get("status") == "True":
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    state = budget.get("status") or {}
    desired = state.get("desiredHealthy") or 0
    return desired > 0 and (state.get("currentHealthy") or 0) >= desired


def _with_disruption_target(options: DeleteOptions, *, now: str) -> Callable[[Object], Object]:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }

    def change(pod: Object) -> Object:
        metadata = pod["metadata"]
        if options.uid and options.uid != metadata["uid"]:
            raise _precondition_failed(
                pod, "UID", options.uid, "have been deleted and then recreated"
            )
        if options.resource_version and options.resource_version != metadata["resourceVersion"]:
            raise _precondition_failed(
                pod, "ResourceVersion", options.resource_version, "have been modified"
            )
        state = with_condition(pod.get("status") or {}, condition, now=now, is_probed=True)
        return {**pod, "status": state}

    return change


def _precondition_failed(pod: Object, what: str, wanted: str, might: str) -> StatusError:
    metadata = pod["metadata"]
    found = metadata["uid" if what == "UID" else "resourceVersion"]
    why = (
        f"the {what} in the precondition ({wanted}) does not match the {what} in record"
        f" ({found}). The object might {might}"
    )
    return status.conflict(GroupResource("", "Pod"), metadata["name"], why=why)


def _decremented(pod: str, *, now: str) -> Callable[[Object], Object]:
    """Decrement the allowed disruptions of a budget. Raises 403 or 429."""

    def change(budget: Object) -> Object:
        state, metadata = budget.get("status") or {}, budget["metadata"]
        allowed = _check_allows(metadata, state) - 1
        fresh = {
            **state,
            "disruptionsAllowed": allowed,
            "disruptedPods": {**(state.get("disruptedPods") or {}), pod: now},
        }
        if not allowed:
            condition = {
                "type": "DisruptionAllowed",
                "status": "False",
                "observedGeneration": state.get("observedGeneration") or 0,
                "reason": "InsufficientPods",
                "message": "",
            }
            fresh = with_condition(fresh, condition, now=now)
        return {**budget, "status": fresh}

    return change


def _check_allows(metadata: Object, state: Object) -> int:
    """The number of allowed disruptions, at least one. Raises 403 or 429."""
    name = metadata["name"]
    if (state.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
        raise _still_processed(name)
    allowed: int = state.get("disruptionsAllowed") or 0
    if allowed < 0:
        raise _forbidden(
            name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative"
        )
    if len(state.get("disruptedPods") or {}) > DISRUPTED_PODS_MAX:
        raise _forbidden(
            name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        )
    if allowed == 0:
        cause = StatusCause(_CAUSE, f"The disruption budget {name} {_denial_reason(state)}")
        raise status.TooManyRequests(_TOO_FEW, causes=(cause,))
    return allowed


def _denial_reason(state: Object) -> str:
    condition = condition_of(state, "DisruptionAllowed") or {}
    message = condition.get("message") or ""
    is_said = condition.get("status") == "False" and bool(message)
    healthy, desired = state.get("currentHealthy") or 0, state.get("desiredHealthy") or 0
    if is_said and condition.get("reason") == "SyncFailed":
        return f"does not allow evicting pods currently because it failed sync: {message}"
    if healthy <= desired:
        return f"needs {desired} healthy pods and has {healthy} currently"
    if is_said:
        return f"does not allow evicting pods currently ({condition.get('reason')}): {message}"
    return "does not allow evicting pods currently"


def _still_processed(name: str) -> StatusError:
    cause = StatusCause(
        _CAUSE, f"The disruption budget {name} is still being processed by the server."
    )
    return status.TooManyRequests(
        _TOO_FEW, causes=(cause,), retry_after_seconds=BUDGET_RETRY_AFTER_SECONDS
    )


def _forbidden(name: str, why: str, cause: str) -> StatusError:
    error = status.forbidden(why, resource=_BUDGET, name=name)
    text = f"The disruption budget {name} does not allow evicting pods currently: {cause}"
    error.causes = (*error.causes, StatusCause(_CAUSE, text))
    return error
