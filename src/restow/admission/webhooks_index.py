"""An index of the configured admission webhooks: compiled once, found by the writes they match.

Configurations are ordered by name, the webhooks of one by their position in it.

Not here: calling them (`webhooks`).
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
from restow.registry.store_informer import InformedCache, StoreInformer

SECONDS_DEFAULT: Final = 10
SECONDS_MAX: Final = 30
KINDS_OF_WRITES_MAX: Final = 10_000
_WITHOUT_SIDE_EFFECTS: Final = frozenset({"None", "NoneOnDryRun"})


class WebhookMatchCondition(NamedTuple):
    """A match condition of a webhook."""

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
    """The AdmissionReview version to send; empty if the webhook accepts no known version."""
    is_reinvoked: bool
    """Whether it is called again when a later webhook changed the object."""
    problem: str = ""
    """The reason why it cannot be called; each call then fails. Empty: it can."""


class MatchingWebhook(NamedTuple):
    """A webhook that may match a kind of write."""

    hook: AdmissionWebhook
    targets: tuple[Hosted, ...]
    """The equivalent resources and versions of the write, the requested one first."""


class WebhookIndex(InformedCache):
    """The webhooks of all configurations of one kind. Call `start` before use and `close` at the
    end."""

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
        self._matching: dict[tuple[str, str, str, str, str], tuple[MatchingWebhook, ...]] = {}
        resource = catalog.of_kind(ADMISSION_GROUP, kind)
        on_object, on_changed = self._on_configuration, self._on_batch
        self._informers = [
            StoreInformer(store, each, runtime, on_object=on_object, on_changed=on_changed)
            for each in ([] if resource is None else [resource])
        ]

    def clients(self) -> set[HookClient]:
        """Return the endpoints of all webhooks."""
        return {hook.client for hooks in self._by_configuration.values() for hook in hooks}

    def matching(self, write: WriteOf) -> tuple[MatchingWebhook, ...]:
        """Return the webhooks that may match such a write, in order."""
        resource = write.resource
        key = (write.operation, resource.plural, resource.group, write.version, write.subresource)
        found = self._matching.get(key)
        if found is None:
            if len(self._matching) >= KINDS_OF_WRITES_MAX:
                self._matching.clear()
            found = self._matching[key] = self._find(write)
        return found

    def invalidate(self) -> None:
        """Clear the cache, because the hosted resources changed."""
        self._matching.clear()

    def _find(self, write: WriteOf) -> tuple[MatchingWebhook, ...]:
        if not self._by_configuration or is_exempt(write.resource):
            return ()
        targets = equivalents(self._catalog, write)
        return tuple(
            MatchingWebhook(hook, targets)
            for _, hooks in sorted(self._by_configuration.items())
            for hook in hooks
            if hook.matcher.may_concern(write, targets)
        )

    def _on_configuration(self, name: str, obj: Object | None) -> None:
        if obj is None:
            self._by_configuration.pop(name, None)
            return
        listed = obj.get("webhooks")
        self._by_configuration[name] = tuple(
            read_hook(name, each)
            for each in (listed if isinstance(listed, list) else ())
            if isinstance(each, dict)
        )

    def _on_batch(self) -> None:
        self._matching.clear()
        self._on_changed()


def read_hook(configuration: str, webhook: Object) -> AdmissionWebhook:
    """Compile a webhook of a configuration. An invalid field makes each call fail."""
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
    except StatusError as error:  # then it matches all that its rules name
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
