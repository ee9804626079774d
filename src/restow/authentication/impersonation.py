"""Acting in the name of another: a request says whom it is to be done as, and whether its sender
may say so is asked first.

    Impersonate-User: jane                     verb impersonate on users jane
    Impersonate-User: system:serviceaccount:a:b              on serviceaccounts b in a
    Impersonate-Group: developers                            on groups developers
    Impersonate-Uid: 4711                                    on uids.authentication.k8s.io 4711
    Impersonate-Extra-Scopes: view           on userextras.authentication.k8s.io/scopes view

To overlook such a wish would be to do it with more rights than wished, so what cannot be
understood is refused. From then on it is the other who asks; who has sent it is kept for the audit.

Not here: who may do so (`authorization`), and headers on their way to other servers.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from restow.apimachinery import status
from restow.apimachinery.name_formats import dns_label_problem, subdomain_problem
from restow.authorization.authorizer import Authorizer, refusal
from restow.httpserver.request import Headers
from restow.request.context import ANONYMOUS, User
from restow.request.request_info import RequestInfo, access_question

OPTIONS_MAX: Final = 1_000
"""Groups and extras together: each is a question to the authorizer."""

_PREFIX: Final = "impersonate-"
_USER: Final = "impersonate-user"
_GROUP: Final = "impersonate-group"
_UID: Final = "impersonate-uid"
_EXTRA: Final = "impersonate-extra-"
_AUTHENTICATED: Final = "system:authenticated"
_UNAUTHENTICATED: Final = "system:unauthenticated"
_ACCOUNT: Final = "system:serviceaccount:"
_ACCOUNTS: Final = "system:serviceaccounts"
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def is_requested(headers: Headers) -> bool:
    """Whether a request is to be done in the name of another."""
    return any(name.startswith(_PREFIX) for name, _ in headers.items())


def options_of(headers: Headers) -> User | None:
    """Whom a request is to be done as, just as it says; None: as its sender. Raises 400."""
    names: list[str] = []
    uids: list[str] = []
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for name, value in headers.items():
        if not name.startswith(_PREFIX):
            continue
        if name == _USER:
            names.append(_text(value))
        elif name == _GROUP:
            groups.append(_text(value))
        elif name == _UID:
            uids.append(_text(value))
        elif name.startswith(_EXTRA):
            extra.setdefault(_extra_key(name[len(_EXTRA) :]), []).append(_text(value))
        else:
            raise status.bad_request(f"{name[:64]} is no header of impersonation")
    if len(names) > 1 or len(uids) > 1:
        raise status.bad_request("more than one user or uid to impersonate")
    if len(groups) + sum(map(len, extra.values())) > OPTIONS_MAX:
        raise status.bad_request(f"more than {OPTIONS_MAX} groups and extras to impersonate")
    name, uid = "".join(names), "".join(uids)
    if not name:
        wished = [("uid", uid), ("groups", groups), ("extra", extra)]
        if told := ", ".join(what for what, value in wished if value):
            raise status.bad_request(f"requested {told} without impersonating a user name")
        return None
    return User(name, tuple(groups), uid, tuple((key, tuple(each)) for key, each in extra.items()))


def impersonated(options: User, *, by: User, authorizer: Authorizer) -> User:
    """The user that a request is done as, once its sender may wish so. Raises 403."""
    groups = list(options.groups)
    account = account_of(options.name)
    if account is None:
        questions = [_question("users", options.name)]
    else:
        namespace, name = account
        questions = [_question("serviceaccounts", name, namespace=namespace)]
        groups = groups or [_ACCOUNTS, f"{_ACCOUNTS}:{namespace}"]
    if options.uid:
        questions.append(_question("uids", options.uid, is_core=False))
    questions += [_question("groups", group) for group in options.groups]
    questions += [
        _question("userextras", value, subresource=key, is_core=False)
        for key, values in options.extra
        for value in values
    ]
    for question in questions:
        if not authorizer.allows(by, question):
            raise refusal(by, question, authorizer.reason(by, question))
    if options.name == ANONYMOUS.name:
        if _UNAUTHENTICATED not in groups:
            groups.append(_UNAUTHENTICATED)
    elif _AUTHENTICATED not in groups and _UNAUTHENTICATED not in groups:
        groups.append(_AUTHENTICATED)
    return User(options.name, tuple(groups), options.uid, options.extra)


def account_of(user_name: str) -> tuple[str, str] | None:
    """The namespace and the name of the service account that a user is; None if it is none."""
    if not user_name.startswith(_ACCOUNT):
        return None
    parts = user_name[len(_ACCOUNT) :].split(":")
    if len(parts) != 2 or dns_label_problem(parts[0]) or subdomain_problem(parts[1]):
        return None
    return parts[0], parts[1]


def _question(
    resource: str, name: str, *, namespace: str = "", subresource: str = "", is_core: bool = True
) -> RequestInfo:
    return access_question(
        "impersonate",
        group="" if is_core else "authentication.k8s.io",
        version="v1",
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=subresource,
    )


def _extra_key(text: str) -> str:
    """Names of headers cannot hold all that keys can, so keys come escaped. What is no escape is
    taken as it is, as the reference does."""
    if "%" not in text or _BROKEN_ESCAPE.search(text):
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise status.bad_request("a key of an extra to impersonate is not UTF-8") from None


def _text(value: str) -> str:
    """Clients send UTF-8, and the listener reads byte by byte."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        raise status.bad_request("whom to impersonate is not UTF-8") from None
