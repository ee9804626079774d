"""The webhooks that configurations name: read once, kept in mind, found by what they are about.

Configurations are in the order of their names, the webhooks of one in the order that it has them.

Not here: asking them (`webhooks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from restow.admission.matchers import (
    ADMISSION_GROUP,
    Hosted,
    Matcher,
    equivalents,
    is_exempt,
)
from restow.admission.review import WriteOf
from restow.admission.webhooks_transport import HookClient, WebhookCallFailed
from restow.aio import Runtime
from restow.apimachinery.admission_review import review_version
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.structural.cel.admission import Expression, Scope
from restow.apimachinery.structural.cel.program import CompileError
from restow.registry.catalog import Catalog
from restow.registry.resource import Object
from restow.registry.store import ResourceStore
from restow.registry.store_informer import StoreInformer

SECONDS_DEFAULT: Final = 10
SECONDS_MAX: Final = 30
KINDS_OF_WRITES_MAX: Final = 10_000
_WITHOUT_SIDE_EFFECTS: Final = frozenset({"None", "NoneOnDryRun"})


class WebhookMatchCondition(NamedTuple):
    """One of the conditions under which a webhook is asked."""

    name: str
    expression: Expression | None
    problem: str
    """Why it cannot be evaluated; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdmissionWebhook:
    """One webhook."""

    name: str
    configuration: str
    matcher: Matcher
    conditions: tuple[WebhookMatchCondition, ...]
    client: HookClient
    fails_open: bool
    seconds_max: float
    allows_dry_run: bool
    review_version: str
    """In which it is asked; empty if it reads none that is known here."""
    is_reinvoked: bool
    """Whether it is asked again when somebody has changed the object after it."""
    problem: str = ""
    """Why it cannot be asked at all: then each call fails."""


class Concerned(NamedTuple):
    """A webhook that may have a say in a kind of writes."""

    hook: AdmissionWebhook
    ways: tuple[Hosted, ...]
    """All ways to do such a write; the first is the one that was chosen."""


class KnownHooks:
    """The webhooks of all configurations of one kind. `start` it, `close` it."""

    def __init__(
        self,
        kind: str,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        on_changed: Callable[[], None],
    ) -> None:
        self._catalog = catalog
        self._on_changed = on_changed
        self._by_configuration: dict[str, tuple[AdmissionWebhook, ...]] = {}
        self._concerned: dict[tuple[str, str, str, str, str], tuple[Concerned, ...]] = {}
        resource = catalog.of_kind(ADMISSION_GROUP, kind)
        self._following: StoreInformer | None = None
        if resource is not None:
            self._following = StoreInformer(
                store, resource, runtime, on_object=self._note, on_changed=self._changed
            )

    async def start(self) -> None:
        """From now on it knows them. Raises when they cannot be read."""
        if self._following is not None:
            await self._following.start()

    async def close(self) -> None:
        if self._following is not None:
            await self._following.close()

    def clients(self) -> set[HookClient]:
        """How all of them are reached."""
        return {hook.client for hooks in self._by_configuration.values() for hook in hooks}

    def concerned(self, write: WriteOf) -> tuple[Concerned, ...]:
        """Those that may have a say in such a write, in order."""
        resource = write.resource
        key = (write.operation, resource.plural, resource.group, write.version, write.subresource)
        found = self._concerned.get(key)
        if found is None:
            if len(self._concerned) >= KINDS_OF_WRITES_MAX:
                self._concerned.clear()
            found = self._concerned[key] = self._find(write)
        return found

    def forget(self) -> None:
        """What is hosted has changed: other webhooks may be concerned than before."""
        self._concerned.clear()

    def _find(self, write: WriteOf) -> tuple[Concerned, ...]:
        if not self._by_configuration or is_exempt(write.resource):
            return ()
        ways = equivalents(self._catalog, write)
        return tuple(
            Concerned(hook, ways)
            for _, hooks in sorted(self._by_configuration.items())
            for hook in hooks
            if hook.matcher.may_concern(write, ways)
        )

    def _note(self, name: str, obj: Object | None) -> None:
        if obj is None:
            self._by_configuration.pop(name, None)
            return
        listed = obj.get("webhooks")
        self._by_configuration[name] = tuple(
            read_hook(name, each)
            for each in (listed if isinstance(listed, list) else ())
            if isinstance(each, dict)
        )

    def _changed(self) -> None:
        self._concerned.clear()
        self._on_changed()


def read_hook(configuration: str, webhook: Object) -> AdmissionWebhook:
    """A webhook as its configuration has it. What is no good in it fails when it is asked."""
    problem, client = "", HookClient()
    try:
        client = HookClient.of(webhook.get("clientConfig") or {})
    except WebhookCallFailed as error:
        problem = str(error)
    rules: list[Object] = [each for each in webhook.get("rules") or () if isinstance(each, dict)]
    policy = str(webhook.get("matchPolicy") or "Equivalent")
    try:
        matcher = Matcher(
            rules,
            match_policy=policy,
            namespace_selector=webhook.get("namespaceSelector"),
            object_selector=webhook.get("objectSelector"),
        )
    except StatusError as error:  # then it is about all that its rules name
        problem, matcher = error.message, Matcher(rules, match_policy=policy)
    seconds = webhook.get("timeoutSeconds") or SECONDS_DEFAULT
    return AdmissionWebhook(
        name=str(webhook.get("name") or ""),
        configuration=configuration,
        matcher=matcher,
        conditions=_conditions(webhook.get("matchConditions")),
        client=client,
        fails_open=webhook.get("failurePolicy") == "Ignore",
        seconds_max=float(min(max(seconds, 1), SECONDS_MAX)),
        allows_dry_run=webhook.get("sideEffects") in _WITHOUT_SIDE_EFFECTS,
        review_version=review_version(webhook.get("admissionReviewVersions") or ()),
        is_reinvoked=webhook.get("reinvocationPolicy") == "IfNeeded",
        problem=problem,
    )


def _conditions(listed: Any) -> tuple[WebhookMatchCondition, ...]:
    made = []
    for each in listed if isinstance(listed, list) else ():
        name, source = str(each.get("name") or ""), str(each.get("expression") or "")
        try:
            made.append(WebhookMatchCondition(name, Scope().compile(source), ""))
        except CompileError as error:
            made.append(WebhookMatchCondition(name, None, str(error)))
    return tuple(made)
