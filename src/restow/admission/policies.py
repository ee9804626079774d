"""ValidatingAdmissionPolicies: validation of writes by CEL expressions.

A policy contains the validations; a binding selects where it applies and its actions: deny the
write, warn the client, or record the failure in the audit log. A policy without a binding has no
effect. Policies and bindings are compiled once and cached.

    concerns    whether any bound policy may match such writes
    review      match -> parameters -> evaluate -> actions of the binding
                If data is missing, load it and start again. Long evaluations yield to the
                event loop between expressions, and expensive ones run in a thread.

Policies do not apply to policies themselves, so that a policy which denies everything can still be
deleted.

Not here: CEL (`restow.apimachinery.structural.cel`), and validation of policy objects
(`restow.kinds.validation`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from restow.admission.matchers import (
    ADMISSION_GROUP,
    Hosted,
    Namespaces,
    equivalents,
    is_exempt,
    is_namespace,
)
from restow.admission.policies_authorizer import authorizer_values
from restow.admission.policies_compiled import (
    CompiledPolicy,
    ConfigurationError,
    PolicyBinding,
    read_binding,
    read_policy,
    unusable_policy,
)
from restow.admission.policies_evaluation import NeedsOffload, Steps, evaluate
from restow.admission.policies_params import NO_PARAMS, DataMissing, Params
from restow.admission.policies_result import PolicyResult
from restow.admission.request_values import (
    in_target_version,
    in_target_version_async,
    is_converted_locally,
    request_values,
)
from restow.admission.review import Attributes, WriteOf
from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.structural.cel import admission as cel
from restow.authorization.authorizer import Authorizer
from restow.registry.catalog import Catalog
from restow.registry.errors import DoAgain
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.store_informer import InformedCache, StoreInformer
from restow.request.offload import Offload

POLICIES: Final = "validatingadmissionpolicies"
BINDINGS: Final = "validatingadmissionpolicybindings"
KINDS_OF_WRITES_MAX: Final = 10_000
"""Maximum number of cached kinds of writes."""
COST_AT_ONCE: Final = 20_000
"""Evaluation cost, some milliseconds, after which a review yields to the event loop."""
WAITS_MAX: Final = 64
"""Maximum number of loads for one review."""

logger = logging.getLogger(__name__)


class _Hook(NamedTuple):
    """A policy that may match a kind of write, with its bindings."""

    name: str
    policy: CompiledPolicy
    bindings: list[PolicyBinding]


class _Hooks(NamedTuple):
    """The bound policies that may match a kind of write."""

    resource: Resource
    targets: tuple[Hosted, ...]
    hooks: list[_Hook]


class Policies(InformedCache):
    """The plug-in. Call `start` before use and `close` at the end."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        authorizer: Authorizer,
        offload: Offload,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_changed` is called when the set of matching writes may have changed."""
        self._catalog = catalog
        self._clock = runtime.clock
        self._authorizer = authorizer
        self._offload = offload
        self._on_changed = on_changed
        self._namespaces = Namespaces(store, catalog)
        self._params = Params(store, catalog)
        self._policies: dict[str, CompiledPolicy] = {}
        self._states: dict[str, tuple[str, int] | None] = {}
        """By policy: the uid and generation from which it was compiled."""
        self._bindings: dict[str, PolicyBinding] = {}
        self._bound: dict[str, list[PolicyBinding]] = {}
        """By policy, ordered by binding name."""
        self._hooks_by_write: dict[tuple[str, str, str, str, str], _Hooks] = {}
        self._informers = [
            StoreInformer(store, resource, runtime, on_object=on_object, on_changed=self._on_batch)
            for plural, on_object in ((POLICIES, self._on_policy), (BINDINGS, self._on_binding))
            if (resource := catalog.named(ADMISSION_GROUP, plural)) is not None
        ]
        # Which versions are equivalent depends on the hosted resources.
        catalog.changed.subscribe(lambda _group: self._invalidate())

    # Cache.

    def _on_policy(self, name: str, obj: Object | None) -> None:
        state = _state_of(obj)
        if state is not None and self._states.get(name) == state:
            return  # only its status changed
        self._states.pop(name, None)
        self._policies.pop(name, None)
        if obj is not None:
            self._policies[name] = _read(obj)
            self._states[name] = state

    def _on_binding(self, name: str, obj: Object | None) -> None:
        self._bindings.pop(name, None)
        if obj is not None:
            self._bindings[name] = read_binding(obj)

    def _on_batch(self) -> None:
        self._bound = {}
        for each in sorted(self._bindings.values(), key=lambda binding: binding.name):
            self._bound.setdefault(each.policy, []).append(each)
        self._invalidate()

    def _invalidate(self) -> None:
        self._hooks_by_write.clear()
        self._on_changed()

    # Review.

    def concerns(self, write: WriteOf) -> bool:
        return bool(self._hooks(write).hooks)

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        reviewed = _ReviewedWrite(attributes)
        steps, spent = self._evaluate_all(reviewed), 0
        try:
            for step in steps:
                if isinstance(step, NeedsOffload):
                    return self._review_async(reviewed, steps, step)
                spent += step
                if spent > COST_AT_ONCE:
                    return self._review_async(reviewed, steps, step)
        except DoAgain as missing:
            return self._review_async(reviewed, steps, missing=missing)
        return None

    async def _review_async(
        self,
        reviewed: _ReviewedWrite,
        steps: Steps[None],
        step: int | NeedsOffload = 0,
        *,
        missing: DoAgain | None = None,
    ) -> None:
        for _ in range(WAITS_MAX):
            if missing is not None:
                await missing.settle()
                steps, step = self._evaluate_all(reviewed), 0
            try:
                await self._run_steps(reviewed, steps, step)
            except DoAgain as next_missing:
                missing = next_missing
            else:
                return
        raise status.unavailable(
            "data that the admission policies need keeps changing; try again",
            retry_after_seconds=status.RETRY_AFTER_SECONDS,
        )

    async def _run_steps(
        self, reviewed: _ReviewedWrite, steps: Steps[None], step: int | NeedsOffload
    ) -> None:
        """Run the given step and all steps after it."""
        spent = 0
        while True:
            outcome = None
            if isinstance(step, NeedsOffload):
                outcome = await self._offload.run(reviewed.attributes.context, step.run)
                spent = 0
            else:
                spent += step
            if spent > COST_AT_ONCE:
                await self._clock.sleep(0)
                spent = 0
            try:
                step = steps.send(outcome)
            except StopIteration:
                return

    def _hooks(self, write: WriteOf) -> _Hooks:
        resource = write.resource
        key = (write.operation, resource.group, resource.plural, write.version, write.subresource)
        hooks = self._hooks_by_write.get(key)
        if hooks is None or hooks.resource is not resource:
            if len(self._hooks_by_write) >= KINDS_OF_WRITES_MAX:
                self._hooks_by_write.clear()
            hooks = self._hooks_by_write[key] = self._find_hooks(write)
        return hooks

    def _find_hooks(self, write: WriteOf) -> _Hooks:
        if not self._bound or is_exempt(write.resource):
            return _Hooks(write.resource, (), [])
        targets = equivalents(self._catalog, write)
        hooks = [
            _Hook(name, policy, self._bound[name])
            for name, policy in sorted(self._policies.items())
            if name in self._bound and policy.matcher.may_concern(write, targets)
        ]
        return _Hooks(write.resource, targets, hooks)

    def _evaluate_all(self, reviewed: _ReviewedWrite) -> Steps[None]:
        """Evaluate all matching policies; raise the denial, add warnings and audit annotations."""
        _, targets, hooks = self._hooks(reviewed.attributes.write)
        result = PolicyResult(reviewed.attributes)
        for hook in hooks:
            yield from self._apply(hook, targets, reviewed, result)
        result.finish()

    def _apply(
        self,
        hook: _Hook,
        targets: tuple[Hosted, ...],
        reviewed: _ReviewedWrite,
        result: PolicyResult,
    ) -> Steps[None]:
        policy = hook.policy
        hosted = policy.matcher.matches(
            reviewed.attributes, targets, self._namespace(reviewed, policy)
        )
        if hosted is None:
            return
        try:
            if policy.error:
                raise ConfigurationError(policy.error)
            if policy.param_kind is not None:
                self._params.resource_of(policy.param_kind)
        except ConfigurationError as error:
            result.misconfigured(policy, None, error)
            return
        for binding in hook.bindings:
            try:
                yield from self._apply_binding(
                    policy, binding, hosted, targets, reviewed=reviewed, result=result
                )
            except ConfigurationError as error:
                result.misconfigured(policy, binding, error)
        result.complete_annotations(policy)

    def _apply_binding(
        self,
        policy: CompiledPolicy,
        binding: PolicyBinding,
        hosted: Hosted,
        targets: tuple[Hosted, ...],
        *,
        reviewed: _ReviewedWrite,
        result: PolicyResult,
    ) -> Steps[None]:
        if binding.error:
            raise ConfigurationError(binding.error)
        attributes = reviewed.attributes
        if binding.matcher is not None:
            namespace = self._namespace(reviewed, binding)
            if binding.matcher.matches(attributes, targets, namespace) is None:
                return
        found = NO_PARAMS
        if policy.param_kind is not None and binding.param_ref is not None:
            found = self._params.find(
                policy.param_kind,
                binding.param_ref,
                attributes.namespace,
                looked_up=reviewed.looked_up,
            )
        if not found:
            return
        values = self._values(policy, hosted, reviewed)
        for params in found:
            verdict = yield from evaluate(policy, {**values, cel.PARAMS: params})
            result.add(policy, binding, verdict)

    def _values(
        self, policy: CompiledPolicy, hosted: Hosted, reviewed: _ReviewedWrite
    ) -> dict[str, Any]:
        """Return the CEL variables that the expressions of a policy use."""
        attributes, used = reviewed.attributes, policy.used
        obj, old = reviewed.objects(hosted)
        values: dict[str, Any] = {cel.OBJECT: obj, cel.OLD_OBJECT: old}
        if cel.REQUEST in used:
            values[cel.REQUEST] = request_values(attributes, hosted)
        if cel.NAMESPACE in used:
            values[cel.NAMESPACE] = None
            if attributes.namespace and not is_namespace(attributes.resource):
                values[cel.NAMESPACE] = self._stored_namespace(reviewed)
        if cel.AUTHORIZER_VARIABLE in used or cel.REQUEST_RESOURCE_VARIABLE in used:
            values |= authorizer_values(self._authorizer, attributes)
        return values

    def _namespace(
        self, reviewed: _ReviewedWrite, matching: CompiledPolicy | PolicyBinding
    ) -> Object | None:
        """Return the namespace of an object if a selector needs it."""
        matcher = matching.matcher
        if matcher is None or not matcher.has_namespace_selector:
            return None
        attributes = reviewed.attributes
        if not attributes.namespace or is_namespace(attributes.resource):
            return None
        return self._stored_namespace(reviewed)

    def _stored_namespace(self, reviewed: _ReviewedWrite) -> Object:
        name = reviewed.attributes.namespace
        found = reviewed.namespace or self._namespaces.cached(name)
        if found is not None:
            return found

        async def look_up() -> None:
            reviewed.namespace = await self._namespaces.get(name)

        raise DataMissing(look_up)


class _ReviewedWrite:
    """One write under review, with the data that was loaded for it."""

    __slots__ = ("_converted", "attributes", "looked_up", "namespace")

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self.namespace: Object | None = None
        self.looked_up: set[str] = set()
        self._converted: dict[str, tuple[Object | None, Object | None]] = {}
        """By `apiVersion`: the object and the old object."""

    def objects(self, hosted: Hosted) -> tuple[Object | None, Object | None]:
        """Return both objects in a version. Raises a ConfigurationError or `DataMissing`."""
        attributes = self.attributes
        api_version = hosted.resource.api_version(hosted.version)
        found = self._converted.get(api_version)
        if found is None:
            if not is_converted_locally(hosted, attributes):
                raise DataMissing(lambda: self._convert(hosted, api_version))
            try:
                found = (
                    in_target_version(attributes.obj, hosted, attributes),
                    in_target_version(attributes.old, hosted, attributes),
                )
            except StatusError as error:
                why = f"failed to convert object version: {error.message}"
                raise ConfigurationError(why) from error
            self._converted[api_version] = found
        return found

    async def _convert(self, hosted: Hosted, api_version: str) -> None:
        attributes = self.attributes
        self._converted[api_version] = (
            await in_target_version_async(attributes.obj, hosted, attributes),
            await in_target_version_async(attributes.old, hosted, attributes),
        )


def _state_of(obj: Object | None) -> tuple[str, int] | None:
    """Return the uid and the generation of an object."""
    metadata = (obj or {}).get("metadata") or {}
    uid, generation = metadata.get("uid"), metadata.get("generation")
    return (uid, generation) if isinstance(uid, str) and isinstance(generation, int) else None


def _read(obj: Object) -> CompiledPolicy:
    try:
        return read_policy(obj)
    except Exception:
        # A validated policy can be compiled. If that fails anyway, the policy must still deny.
        logger.exception("cannot compile an admission policy")
        return unusable_policy(obj, "the policy cannot be compiled")
