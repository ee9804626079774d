"""The CEL variables `authorizer` and `authorizer.requestResource`, backed by the server's
authorizer.

Not here: the CEL functions of the authorizer (`restow.apimachinery.structural.cel`).
"""

from __future__ import annotations

from typing import Any

from restow.admission.request_values import namespace_of
from restow.admission.review import Attributes
from restow.apimachinery.structural.cel.admission import (
    AUTHORIZER_VARIABLE,
    REQUEST_RESOURCE_VARIABLE,
)
from restow.apimachinery.structural.cel.library_authorizer import (
    AccessQuestion,
    Account,
    ResourceCheck,
)
from restow.apimachinery.structural.cel.library_authorizer import AuthorizerValue as CelAuthorizer
from restow.authorization.authorizer import Authorizer
from restow.request.context import User
from restow.request.offload import called_on_loop
from restow.request.request_info import RequestInfo, access_question


def authorizer_values(authorizer: Authorizer, attributes: Attributes) -> dict[str, Any]:
    """Return the variables `authorizer` and `authorizer.requestResource` of a write."""

    def is_allowed(question: AccessQuestion) -> bool:
        account = question.account
        user = attributes.user if account is None else account_user(account)
        return authorizer.allows(user, _info(question))

    cel_authorizer = CelAuthorizer(called_on_loop(is_allowed))
    return {
        AUTHORIZER_VARIABLE: cel_authorizer,
        REQUEST_RESOURCE_VARIABLE: ResourceCheck(
            authorizer=cel_authorizer,
            group=attributes.resource.group,
            resource=attributes.resource.plural,
            subresource=attributes.subresource,
            namespace=namespace_of(attributes),
            name=attributes.name,
        ),
    }


def account_user(account: Account) -> User:
    """Return the user of a service account."""
    return User(
        f"system:serviceaccount:{account.namespace}:{account.name}",
        ("system:serviceaccounts", f"system:serviceaccounts:{account.namespace}"),
    )


def _info(question: AccessQuestion) -> RequestInfo:
    if question.path:
        return RequestInfo(method="", path=question.path, verb=question.verb)
    selectors = {
        name: [text]
        for name, text in (
            ("fieldSelector", question.field_selector),
            ("labelSelector", question.label_selector),
        )
        if text
    }
    return access_question(
        question.verb,
        group=question.group,
        namespace=question.namespace,
        resource=question.resource,
        name=question.name,
        subresource=question.subresource,
        query=selectors,
    )
