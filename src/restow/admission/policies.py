"""ValidatingAdmissionPolicies: rules about writes that are written as expressions.

A policy says what must be true; a binding says where it is applied and to what effect: the write
is refused, or its sender is warned, or it is noted in the audit log. Without a binding a policy
does nothing. Policies and bindings are kept in mind as they are stored, compiled once.

    concerns    is any policy with a binding about such writes
    review      match -> parameters -> evaluate -> what the bindings say
                if something must be waited for first, all of it again afterwards; between
                expressions others get their turn, and what takes long is done elsewhere

Nothing is decided about policies themselves, or nobody could take away one that refuses all.

Not here: expressions (`restow.apimachinery.structural.cel`), and whether a policy may be written at
all (`restow.kinds.validation`).
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
from restow.admission.offload import OffloadedEvaluations
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
from restow.admission.policies_params import NO_PARAMS, Lack, Params
from restow.admission.policies_result import PolicyResult
from restow.admission.request_values import (
    is_shown_at_once,
    request_values,
    shown,
    shown_later,
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
from restow.registry.store_informer import StoreInformer

POLICIES: Final = "validatingadmissionpolicies"
BINDINGS: Final = "validatingadmissionpolicybindings"
KINDS_OF_WRITES_MAX: Final = 10_000
"""Of which it is remembered what is about them."""
COST_AT_ONCE: Final = 20_000
"""What expressions may cost, some milliseconds, before others get a turn."""
WAITS_MAX: Final = 64
"""How often one decision may have to wait for something."""

logger = logging.getLogger(__name__)


class _Hook(NamedTuple):
    """A policy that is about a kind of writes, with all its bindings."""

    name: str
    policy: CompiledPolicy
    bindings: list[PolicyBinding]


class _Hooks(NamedTuple):
    """What is about a kind of writes."""

    resource: Resource
    ways: tuple[Hosted, ...]
    hooks: list[_Hook]


class Policies:
    """The plug-in. `start` it before it is asked, `close` it."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        authorizer: Authorizer,
        offloaded: OffloadedEvaluations,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_changed` is called when other writes may concern it than before."""
        self._catalog = catalog
        self._clock = runtime.clock
        self._authorizer = authorizer
        self._offloaded = offloaded
        self._on_changed = on_changed
        self._namespaces = Namespaces(store, catalog)
        self._params = Params(store, catalog)
        self._policies: dict[str, CompiledPolicy] = {}
        self._states: dict[str, tuple[str, int] | None] = {}
        """By policy, what it was compiled from."""
        self._bindings: dict[str, PolicyBinding] = {}
        self._bound: dict[str, list[PolicyBinding]] = {}
        """By policy, in the order of their names."""
        self._known: dict[tuple[str, str, str, str, str], _Hooks] = {}
        self._following = [
            StoreInformer(store, resource, runtime, on_object=on_object, on_changed=self._on_batch)
            for plural, on_object in ((POLICIES, self._on_policy), (BINDINGS, self._on_binding))
            if (resource := catalog.named(ADMISSION_GROUP, plural)) is not None
        ]
        # Which versions are equivalent depends on what is hosted.
        catalog.listeners.append(lambda _group: self._forget())

    async def start(self) -> None:
        """Know all policies that there are. Raises when they cannot be read."""
        for each in self._following:
            await each.start()

    async def close(self) -> None:
        for each in self._following:
            await each.close()

    async def freshen(self) -> None:
        """Wait until all policies are known that were acknowledged before."""
        for each in self._following:
            await each.freshen()

    # What is known.

    def _on_policy(self, name: str, obj: Object | None) -> None:
        state = _state_of(obj)
        if state is not None and self._states.get(name) == state:
            return  # only its status has changed
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
        self._forget()

    def _forget(self) -> None:
        self._known.clear()
        self._on_changed()

    # What is asked.

    def concerns(self, write: WriteOf) -> bool:
        return bool(self._hooks(write).hooks)

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        asked = _Asked(attributes)
        steps, spent = self._judge(asked), 0
        try:
            for step in steps:
                if isinstance(step, NeedsOffload):
                    return self._go_on(asked, steps, step)
                spent += step
                if spent > COST_AT_ONCE:
                    return self._go_on(asked, steps, step)
        except DoAgain as lack:
            return self._go_on(asked, steps, lack=lack)
        return None

    async def _go_on(
        self,
        asked: _Asked,
        steps: Steps[None],
        step: int | NeedsOffload = 0,
        *,
        lack: DoAgain | None = None,
    ) -> None:
        for _ in range(WAITS_MAX):
            if lack is not None:
                await lack.settle()
                steps, step = self._judge(asked), 0
            try:
                await self._in_turns(asked, steps, step)
            except DoAgain as next_lack:
                lack = next_lack
            else:
                return
        raise status.unavailable(
            "what policies need to know is changing; try again",
            retry_after_seconds=status.RETRY_AFTER_SECONDS,
        )

    async def _in_turns(self, asked: _Asked, steps: Steps[None], step: int | NeedsOffload) -> None:
        """All steps after the one that is given, which is still to be looked at."""
        spent = 0
        while True:
            outcome = None
            if isinstance(step, NeedsOffload):
                outcome = await self._offloaded.run(step.run, asked.attributes)
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
        known = self._known.get(key)
        if known is None or known.resource is not resource:
            if len(self._known) >= KINDS_OF_WRITES_MAX:
                self._known.clear()
            known = self._known[key] = self._find(write)
        return known

    def _find(self, write: WriteOf) -> _Hooks:
        if not self._bound or is_exempt(write.resource):
            return _Hooks(write.resource, (), [])
        ways = equivalents(self._catalog, write)
        hooks = [
            _Hook(name, policy, self._bound[name])
            for name, policy in sorted(self._policies.items())
            if name in self._bound and policy.matcher.may_concern(write, ways)
        ]
        return _Hooks(write.resource, ways, hooks)

    def _judge(self, asked: _Asked) -> Steps[None]:
        """Raise what refuses a write; warn and note what does not."""
        _, ways, hooks = self._hooks(asked.attributes.write)
        result = PolicyResult(asked.attributes)
        for hook in hooks:
            yield from self._apply(hook, ways, asked, result)
        result.finish()

    def _apply(
        self, hook: _Hook, ways: tuple[Hosted, ...], asked: _Asked, result: PolicyResult
    ) -> Steps[None]:
        policy = hook.policy
        hosted = policy.matcher.matches(asked.attributes, ways, self._namespace(asked, policy))
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
                    policy, binding, hosted, ways, asked=asked, result=result
                )
            except ConfigurationError as error:
                result.misconfigured(policy, binding, error)
        result.note(policy)

    def _apply_binding(
        self,
        policy: CompiledPolicy,
        binding: PolicyBinding,
        hosted: Hosted,
        ways: tuple[Hosted, ...],
        *,
        asked: _Asked,
        result: PolicyResult,
    ) -> Steps[None]:
        if binding.error:
            raise ConfigurationError(binding.error)
        attributes = asked.attributes
        if binding.matcher is not None:
            namespace = self._namespace(asked, binding)
            if binding.matcher.matches(attributes, ways, namespace) is None:
                return
        found = NO_PARAMS
        if policy.param_kind is not None and binding.param_ref is not None:
            found = self._params.find(
                policy.param_kind,
                binding.param_ref,
                attributes.namespace,
                looked_up=asked.looked_up,
            )
        if not found:
            return
        values = self._values(policy, hosted, asked)
        for params in found:
            verdict = yield from evaluate(policy, {**values, cel.PARAMS: params})
            result.add(policy, binding, verdict)

    def _values(self, policy: CompiledPolicy, hosted: Hosted, asked: _Asked) -> dict[str, Any]:
        """The variables that the expressions of a policy read."""
        attributes, used = asked.attributes, policy.used
        obj, old = asked.objects(hosted)
        values: dict[str, Any] = {cel.OBJECT: obj, cel.OLD_OBJECT: old}
        if cel.REQUEST in used:
            values[cel.REQUEST] = request_values(attributes, hosted)
        if cel.NAMESPACE in used:
            values[cel.NAMESPACE] = None
            if attributes.namespace and not is_namespace(attributes.resource):
                values[cel.NAMESPACE] = self._stored_namespace(asked)
        if cel.ASKED in used or cel.ASKED_RESOURCE in used:
            values |= authorizer_values(self._authorizer, attributes)
        return values

    def _namespace(self, asked: _Asked, matching: CompiledPolicy | PolicyBinding) -> Object | None:
        """The namespace of an object, if a selector asks for it."""
        matcher = matching.matcher
        if matcher is None or not matcher.has_namespace_selector:
            return None
        attributes = asked.attributes
        if not attributes.namespace or is_namespace(attributes.resource):
            return None
        return self._stored_namespace(asked)

    def _stored_namespace(self, asked: _Asked) -> Object:
        name = asked.attributes.namespace
        found = asked.namespace or self._namespaces.known(name)
        if found is not None:
            return found

        async def look_up() -> None:
            asked.namespace = await self._namespaces.get(name)

        raise Lack(look_up)


class _Asked:
    """One write, and what had to be waited for to decide about it."""

    __slots__ = ("_shown", "attributes", "looked_up", "namespace")

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self.namespace: Object | None = None
        self.looked_up: set[str] = set()
        self._shown: dict[str, tuple[Object | None, Object | None]] = {}
        """By `apiVersion`: the object and the old one."""

    def objects(self, hosted: Hosted) -> tuple[Object | None, Object | None]:
        """The objects in a version. Raises a ConfigurationError, or `Lack`."""
        attributes = self.attributes
        api_version = hosted.resource.api_version(hosted.version)
        found = self._shown.get(api_version)
        if found is None:
            if not is_shown_at_once(hosted, attributes):
                raise Lack(lambda: self._convert(hosted, api_version))
            try:
                found = (
                    shown(attributes.obj, hosted, attributes),
                    shown(attributes.old, hosted, attributes),
                )
            except StatusError as error:
                why = f"failed to convert object version: {error.message}"
                raise ConfigurationError(why) from error
            self._shown[api_version] = found
        return found

    async def _convert(self, hosted: Hosted, api_version: str) -> None:
        attributes = self.attributes
        self._shown[api_version] = (
            await shown_later(attributes.obj, hosted, attributes),
            await shown_later(attributes.old, hosted, attributes),
        )


def _state_of(obj: Object | None) -> tuple[str, int] | None:
    """The uid and the generation of an object."""
    metadata = (obj or {}).get("metadata") or {}
    uid, generation = metadata.get("uid"), metadata.get("generation")
    return (uid, generation) if isinstance(uid, str) and isinstance(generation, int) else None


def _read(obj: Object) -> CompiledPolicy:
    try:
        return read_policy(obj)
    except Exception:
        # What was validated can be read. Should it not be, that must not open a door.
        logger.exception("a policy cannot be read")
        return unusable_policy(obj, "the policy cannot be read")
