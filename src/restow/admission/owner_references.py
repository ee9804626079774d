"""Who says that an object has owners must be allowed what the owners' end would do to it.

An object goes when its owners are gone. So whoever changes what is said of its owners must be
allowed to delete it; who creates it need not be, as they could have left it. And an owner that is
deleted in the foreground waits for those who say `blockOwnerDeletion`: whoever says that anew must
be allowed to set finalizers of the owner, which would hold it as well.

Asked of each object that is written, on the short way too: so it is no plug-in like others, and
says at once what it thinks. What leaves owners as they were costs one comparison. Masters are not
asked, nor what the servers do of themselves.

Not here: what owners mean for an object (`restow.controllers.garbage_collector`).
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
# How the reference ends the sentence: the reason of the authorizer, and no error of its own.
_ENDING: Final = ", <nil>"


class OwnerCheck:
    """Refuses owners that somebody may not name. Satisfies `AtOnce`."""

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
        options = access_question(
            "delete",
            group=info.group,
            version=info.version,
            resource=info.resource,
            namespace=info.namespace,
            name=info.name,
            subresource=info.subresource,
        )
        if not self._authorizer.allows(context.user, options):
            why = self._authorizer.reason(context.user, options)
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
            options = self._options_about(context, obj, owner)
            if not self._authorizer.allows(context.user, options):
                why = self._authorizer.reason(context.user, options)
                raise _forbidden(
                    context,
                    obj,
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you"
                    f" can't set finalizers on: {why}",
                )

    def _options_about(self, context: Context, obj: Object, owner: Object) -> RequestInfo:
        """The right that it takes to hold an owner. Raises a 403 for a kind that nobody knows."""
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
            # An owner in a namespace is in that of its dependent.
            namespace=context.info.namespace if resource.kind.namespaced else "",
            name=str(owner.get("name") or ""),
            subresource=_FINALIZERS,
        )


def _newly_blocking(now: Any, before: Any) -> list[Object]:
    """Those that hold an owner, and did not before."""
    held = {each.get("uid") for each in before if each.get("blockOwnerDeletion")}
    return [each for each in now if each.get("blockOwnerDeletion") and each.get("uid") not in held]


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
