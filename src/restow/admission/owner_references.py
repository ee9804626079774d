"""OwnerReferencesPermissionEnforcement: checks the rights of a user who sets owner references.

Garbage collection deletes an object when its owners are deleted. So a user who changes the owner
references of an existing object must be allowed to delete it; a create needs no such right. The
foreground deletion of an owner waits for dependents with `blockOwnerDeletion`; a user who sets that
field must be allowed to update the `finalizers` subresource of the owner, which would block its
deletion as well.

The check is synchronous and runs for each object that is written, so it is an `ObjectCheck` and no
plug-in. If the owner references do not change, it costs one comparison. Users in `system:masters`
and the server itself are exempt.

Not here: what owner references mean (`restow.controllers.garbage_collector`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import status
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.status_error import StatusError
from restow.authorization.authorizer import Authorizer
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.request.context import Context
from restow.request.request_info import RequestInfo, access_question

_ANY: Final = "*"
_FINALIZERS: Final = "finalizers"
# The end of kube-apiserver's message: the authorizer's reason, then its error, which is nil.
_ENDING: Final = ", <nil>"


class OwnerCheck:
    """Refuse owner references that the user may not set. Satisfies `ObjectCheck`."""

    __slots__ = ("_authorizer", "_catalog")

    def __init__(self, catalog: Catalog, authorizer: Authorizer) -> None:
        self._catalog = catalog
        self._authorizer = authorizer

    def check(self, context: Context, obj: Object, old: Object | None) -> None:
        now = obj["metadata"].get("ownerReferences")
        before = None if old is None else old["metadata"].get("ownerReferences")
        if (now or None) == (before or None):
            return
        if old is not None:
            self._check_delete(context, obj)
        blocking = _newly_blocking(now or (), before or ())
        if blocking:
            self._check_finalizers(context, obj, blocking)

    def _check_delete(self, context: Context, obj: Object) -> None:
        info = context.info
        access = access_question(
            "delete",
            group=info.group,
            version=info.version,
            resource=info.resource,
            namespace=info.namespace,
            name=info.name,
            subresource=info.subresource,
        )
        if not self._authorizer.allows(context.user, access):
            why = self._authorizer.reason(context.user, access)
            raise _forbidden(
                context, obj, f"cannot set an ownerRef on a resource you can't delete: {why}"
            )

    def _check_finalizers(self, context: Context, obj: Object, owners: list[Object]) -> None:
        everything = access_question(
            "update",
            group=_ANY,
            version=_ANY,
            resource=_ANY,
            namespace="",
            name=_ANY,
            subresource=_FINALIZERS,
        )
        if self._authorizer.allows(context.user, everything):
            return
        for owner in owners:
            access = self._finalizers_access(context, obj, owner)
            if not self._authorizer.allows(context.user, access):
                why = self._authorizer.reason(context.user, access)
                raise _forbidden(
                    context,
                    obj,
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you"
                    f" can't set finalizers on: {why}",
                )

    def _finalizers_access(self, context: Context, obj: Object, owner: Object) -> RequestInfo:
        """Return the access check for `finalizers` of an owner. Raises a 403 for an unknown
        kind."""
        api_version, kind = str(owner.get("apiVersion") or ""), str(owner.get("kind") or "")
        try:
            group, version = GroupVersion.parse(api_version)
        except MachineryError as error:
            raise _unknown(context, obj, owner, str(error)) from error
        resource = self._catalog.of_kind(group, kind)
        if resource is None or version not in resource.served:
            why = f'no matches for kind "{kind}" in version "{api_version}"'
            raise _unknown(context, obj, owner, why)
        return access_question(
            "update",
            group=group,
            version=version,
            resource=resource.plural,
            # A namespaced owner is in the namespace of its dependent.
            namespace=context.info.namespace if resource.kind.namespaced else "",
            name=str(owner.get("name") or ""),
            subresource=_FINALIZERS,
        )


def _newly_blocking(now: Any, before: Any) -> list[Object]:
    """Return the references that set `blockOwnerDeletion` and did not before."""
    blocking_before = {each.get("uid") for each in before if each.get("blockOwnerDeletion")}
    return [
        each
        for each in now
        if each.get("blockOwnerDeletion") and each.get("uid") not in blocking_before
    ]


def _forbidden(context: Context, obj: Object, why: str) -> StatusError:
    return _refusal(context, obj, why + _ENDING)


def _unknown(context: Context, obj: Object, owner: Object, why: str) -> StatusError:
    text = (
        "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion"
        f" {owner.get('apiVersion')} Kind {owner.get('kind')}: {why}"
    )
    return _refusal(context, obj, text)


def _refusal(context: Context, obj: Object, why: str) -> StatusError:
    resource: Resource | None = context.resource
    assert resource is not None
    return status.forbidden(
        why, resource=resource.kind.group_resource, name=obj["metadata"].get("name") or ""
    )
