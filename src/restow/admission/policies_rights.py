"""Access check for policy parameters: runs for each write of a policy or binding.

The messages of a policy can reveal the content of its parameters. So a user who sets `paramKind`
must be allowed to read all objects of that kind, and a user who sets `paramRef` must be allowed to
read those objects. Users in `system:masters` are exempt, and so is a write that does not change
these fields.

Not here: validation of policies (`restow.kinds.validation`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from restow.admission.matchers import ADMISSION_GROUP
from restow.admission.policies import BINDINGS, POLICIES
from restow.admission.review import Attributes, WriteOf
from restow.apimachinery import field_errors, status
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.names import GroupVersion
from restow.authorization.authorizer import Authorizer
from restow.registry.catalog import Catalog
from restow.registry.resource import Object
from restow.registry.store import ResourceStore
from restow.request.context import User
from restow.request.request_info import RequestInfo, access_question

_ANY: Final = "*"


class ParamRights:
    """Refuse parameters that the user may not read. Satisfies `Admission`."""

    def __init__(self, store: ResourceStore, catalog: Catalog, authorizer: Authorizer) -> None:
        self._store = store
        self._catalog = catalog
        self._authorizer = authorizer

    def concerns(self, write: WriteOf) -> bool:
        resource = write.resource
        is_ours = resource.group == ADMISSION_GROUP and resource.plural in (POLICIES, BINDINGS)
        return is_ours and write.operation != "DELETE" and not write.subresource

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        if attributes.user.is_master or attributes.obj is None:
            return None
        spec, before = _spec(attributes.obj), _spec(attributes.old or {})
        if attributes.resource.plural == POLICIES:
            kind = spec.get("paramKind")
            if kind and kind != before.get("paramKind"):
                self._check_policy(attributes, kind)
            return None
        names = ("paramRef", "policyName")
        if spec.get("paramRef") and any(spec.get(name) != before.get(name) for name in names):
            return self._check_binding(attributes, spec)
        return None

    def _check_policy(self, attributes: Attributes, kind: dict[str, Any]) -> None:
        required = self._required_access("get", kind, namespace=_ANY, name=_ANY)
        if not self._authorizer.allows(attributes.user, required):
            kind_text = f"kind={kind.get('kind')}, apiVersion={kind.get('apiVersion')}"
            why = (
                f'user {_shown(attributes.user)} must have "get" permission on all objects of the'
                f" referenced paramKind ({kind_text})"
            )
            raise _refusal(attributes, "spec.paramKind", why)

    async def _check_binding(self, attributes: Attributes, spec: dict[str, Any]) -> None:
        policy = await self._policy(spec.get("policyName") or "")
        reference = spec["paramRef"]
        name, user = reference.get("name") or "", attributes.user
        verb = "get" if name else "list"
        required = self._required_access(
            verb,
            _spec(policy or {}).get("paramKind") or {},
            namespace=reference.get("namespace") or "",
            name=name,
        )
        if self._authorizer.allows(user, required):
            return
        if policy is None:
            why = (
                f"unable to get policy {spec.get('policyName')} to determine minimum required"
                f' permissions and user {_shown(user)} does not have "{verb}" permission for all'
                " groups, versions and resources"
            )
        else:
            why = (
                f'user {_shown(user)} does not have "{verb}" permission on the object referenced by'
                " paramRef"
            )
        raise _refusal(attributes, "spec.paramRef", why)

    async def _policy(self, name: str) -> Object | None:
        resource = self._catalog.named(ADMISSION_GROUP, POLICIES)
        if resource is None:
            return None
        entry = (await self._store.read(resource)).get(name)
        return None if entry is None else self._store.object_of(resource, entry, entry[1])

    def _required_access(
        self, verb: str, kind: dict[str, Any], *, namespace: str, name: str
    ) -> RequestInfo:
        """Return the required access; everything, where the kind cannot be resolved."""
        group = version = plural = _ANY
        try:
            group, version = GroupVersion.parse(str(kind.get("apiVersion") or ""))
        except MachineryError:
            pass
        else:
            resource = self._catalog.of_kind(group, str(kind.get("kind") or ""))
            plural = _ANY if resource is None else resource.plural
        if not kind:
            group = version = _ANY
        return access_question(
            verb, group=group, version=version, namespace=namespace, resource=plural, name=name
        )


def _spec(obj: Object) -> dict[str, Any]:
    found = obj.get("spec")
    return found if isinstance(found, dict) else {}


def _shown(user: User) -> str:
    return field_errors.shown(user.name)


def _refusal(attributes: Attributes, field: str, why: str) -> status.StatusError:
    cause = field_errors.forbidden(field, why)
    return status.invalid(attributes.resource.kind.group_kind, attributes.name, [cause])
