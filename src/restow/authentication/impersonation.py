"""User impersonation: a request names another user, and its sender must be authorized for it.

    Impersonate-User: jane                     verb impersonate on users jane
    Impersonate-User: system:serviceaccount:a:b              on serviceaccounts b in a
    Impersonate-Group: developers                            on groups developers
    Impersonate-Uid: 4711                                    on uids.authentication.k8s.io 4711
    Impersonate-Extra-Scopes: view           on userextras.authentication.k8s.io/scopes view

An impersonation header that was ignored would run the request with the sender's own, greater
rights, so invalid headers are refused. The request then runs as the impersonated user; the sender
is recorded in the audit log.

Not here: authorization (`authorization`), and headers of requests to other servers.
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
"""Maximum number of groups and extra values; each is one authorization check."""

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
    """Return whether a request has impersonation headers."""
    return any(name.startswith(_PREFIX) for name, _ in headers.items())


def requested_user(headers: Headers) -> User | None:
    """Return the user that the headers of a request name, or None. Raises 400."""
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
            raise status.bad_request(f"{name[:64]} is not an impersonation header")
    if len(names) > 1 or len(uids) > 1:
        raise status.bad_request("more than one user or uid to impersonate")
    if len(groups) + sum(map(len, extra.values())) > OPTIONS_MAX:
        raise status.bad_request(f"more than {OPTIONS_MAX} groups and extras to impersonate")
    name, uid = "".join(names), "".join(uids)
    if not name:
        given = [("uid", uid), ("groups", groups), ("extra", extra)]
        if names_given := ", ".join(what for what, value in given if value):
            raise status.bad_request(f"requested {names_given} without impersonating a user name")
        return None
    return User(name, tuple(groups), uid, tuple((key, tuple(each)) for key, each in extra.items()))


def impersonated(user: User, *, by: User, authorizer: Authorizer) -> User:
    """Check all parts of an impersonation and return the impersonated user. Raises 403."""
    groups = list(user.groups)
    account = account_of(user.name)
    if account is None:
        checks = [_access_check("users", user.name)]
    else:
        namespace, name = account
        checks = [_access_check("serviceaccounts", name, namespace=namespace)]
        groups = groups or [_ACCOUNTS, f"{_ACCOUNTS}:{namespace}"]
    if user.uid:
        checks.append(_access_check("uids", user.uid, is_core=False))
    checks += [_access_check("groups", group) for group in user.groups]
    checks += [
        _access_check("userextras", value, subresource=key, is_core=False)
        for key, values in user.extra
        for value in values
    ]
    for check in checks:
        if not authorizer.allows(by, check):
            raise refusal(by, check, authorizer.reason(by, check))
    if user.name == ANONYMOUS.name:
        if _UNAUTHENTICATED not in groups:
            groups.append(_UNAUTHENTICATED)
    elif _AUTHENTICATED not in groups and _UNAUTHENTICATED not in groups:
        groups.append(_AUTHENTICATED)
    return User(user.name, tuple(groups), user.uid, user.extra)


def account_of(user_name: str) -> tuple[str, str] | None:
    """Return the namespace and name of a service account user, or None for other users."""
    if not user_name.startswith(_ACCOUNT):
        return None
    parts = user_name[len(_ACCOUNT) :].split(":")
    if len(parts) != 2 or dns_label_problem(parts[0]) or subdomain_problem(parts[1]):
        return None
    return parts[0], parts[1]


def _access_check(
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
    """Decode the key of an extra. Keys are percent-encoded, as header names allow fewer characters;
    invalid escapes are kept as they are, as in kube-apiserver."""
    if "%" not in text or _BROKEN_ESCAPE.search(text):
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise status.bad_request("a key of an extra to impersonate is not UTF-8") from None


def _text(value: str) -> str:
    """Return the text of a header value: clients send UTF-8, the listener decodes Latin-1."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        raise status.bad_request("the value of an impersonation header is not UTF-8") from None
