"""Impersonation: parsing of headers, authorization checks, and the resulting user."""

from __future__ import annotations

import pytest

from restow.apimachinery.status_error import StatusError
from restow.authentication.impersonation import (
    OPTIONS_MAX,
    account_of,
    impersonated,
    is_requested,
    requested_user,
)
from restow.httpserver.request import Headers
from restow.request.context import User
from restow.request.request_info import RequestInfo

ADMIN = User("admin", ("system:authenticated",))
KNOWN = "system:authenticated"
UNKNOWN = "system:unauthenticated"


class RecordingAuthorizer:
    """Allows everything that is not forbidden, and records the checks."""

    def __init__(self, *forbidden: str) -> None:
        self.forbidden = forbidden
        self.questions: list[str] = []

    def allows(self, user: User, info: RequestInfo) -> bool:
        assert user == ADMIN
        assert (info.verb, info.is_resource, info.version) == ("impersonate", True, "v1")
        parts = (info.group, info.namespace, info.resource, info.subresource, info.name)
        self.questions.append("/".join(parts))
        return self.questions[-1] not in self.forbidden

    def reason(self, user: User, info: RequestInfo) -> str:
        return ""


def headers(*lines: tuple[str, str]) -> Headers:
    return Headers([(f"impersonate-{name}", value) for name, value in lines])


CASES = {
    "a user": ([("user", "jane")], ["//users//jane"], User("jane", (KNOWN,))),
    "a user with groups": (
        [("user", "jane"), ("group", "a"), ("group", "b")],
        ["//users//jane", "//groups//a", "//groups//b"],
        User("jane", ("a", "b", KNOWN)),
    ),
    "masters": (
        [("user", "jane"), ("group", "system:masters")],
        ["//users//jane", "//groups//system:masters"],
        User("jane", ("system:masters", KNOWN)),
    ),
    "a uid": (
        [("user", "jane"), ("uid", "7")],
        ["//users//jane", "authentication.k8s.io//uids//7"],
        User("jane", (KNOWN,), "7"),
    ),
    "extras": (
        [("user", "jane"), ("extra-scopes", "a"), ("extra-scopes", "b"), ("extra-x%2fy", "c")],
        [
            "//users//jane",
            "authentication.k8s.io//userextras/scopes/a",
            "authentication.k8s.io//userextras/scopes/b",
            "authentication.k8s.io//userextras/x/y/c",
        ],
        User("jane", (KNOWN,), "", (("scopes", ("a", "b")), ("x/y", ("c",)))),
    ),
    "an extra that is not escaped": (
        [("user", "jane"), ("extra-50%", "a")],
        ["//users//jane", "authentication.k8s.io//userextras/50%/a"],
        User("jane", (KNOWN,), "", (("50%", ("a",)),)),
    ),
    "a service account": (
        [("user", "system:serviceaccount:ns:sa")],
        ["/ns/serviceaccounts//sa"],
        User(
            "system:serviceaccount:ns:sa",
            ("system:serviceaccounts", "system:serviceaccounts:ns", KNOWN),
        ),
    ),
    "a service account with groups": (
        [("user", "system:serviceaccount:ns:sa"), ("group", "a")],
        ["/ns/serviceaccounts//sa", "//groups//a"],
        User("system:serviceaccount:ns:sa", ("a", KNOWN)),
    ),
    "no service account": (
        [("user", "system:serviceaccount:ns:sa:x")],
        ["//users//system:serviceaccount:ns:sa:x"],
        User("system:serviceaccount:ns:sa:x", (KNOWN,)),
    ),
    "nobody": (
        [("user", "system:anonymous")],
        ["//users//system:anonymous"],
        User("system:anonymous", (UNKNOWN,)),
    ),
    "somebody unauthenticated": (
        [("user", "jane"), ("group", UNKNOWN)],
        ["//users//jane", f"//groups//{UNKNOWN}"],
        User("jane", (UNKNOWN,)),
    ),
    "somebody authenticated": (
        [("user", "jane"), ("group", KNOWN)],
        ["//users//jane", f"//groups//{KNOWN}"],
        User("jane", (KNOWN,)),
    ),
    "a name beyond ASCII": (
        [("user", "jörg".encode().decode("latin-1"))],
        ["//users//jörg"],
        User("jörg", (KNOWN,)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_part_is_authorized_separately(case: str) -> None:
    """All parts are checked in order, and the user has the requested and the implied groups."""
    lines, questions, user = CASES[case]
    requested = requested_user(headers(*lines))
    assert requested is not None
    asked = RecordingAuthorizer()
    assert impersonated(requested, by=ADMIN, authorizer=asked) == user
    assert asked.questions == questions
    for forbidden in questions:
        with pytest.raises(StatusError) as refused:
            impersonated(requested, by=ADMIN, authorizer=RecordingAuthorizer(forbidden))
        assert refused.value.code == 403


def test_the_error_names_the_denied_part() -> None:
    """The message is that of kube-apiserver."""
    with pytest.raises(StatusError) as refused:
        impersonated(User("jane"), by=ADMIN, authorizer=RecordingAuthorizer("//users//jane"))
    assert str(refused.value) == (
        'users "jane" is forbidden: User "admin" cannot impersonate resource "users" in API group'
        ' "" at the cluster scope'
    )
    account = User("system:serviceaccount:ns:sa")
    with pytest.raises(StatusError) as refused:
        impersonated(account, by=ADMIN, authorizer=RecordingAuthorizer("/ns/serviceaccounts//sa"))
    assert str(refused.value) == (
        'serviceaccounts "sa" is forbidden: User "admin" cannot impersonate resource'
        ' "serviceaccounts" in API group "" in the namespace "ns"'
    )


INVALID_CASES = {
    "a group without a user": [("group", "a")],
    "an empty user": [("user", ""), ("group", "a")],
    "a uid without a user": [("uid", "7")],
    "an extra without a user": [("extra-scopes", "a")],
    "two users": [("user", "a"), ("user", "b")],
    "two uids": [("user", "a"), ("uid", "1"), ("uid", "2")],
    "an unknown header": [("user", "a"), ("foo", "b")],
    "an unknown header alone": [("groups", "b")],
    "other bytes": [("user", "j\xf6rg")],
    "other bytes in a key": [("user", "a"), ("extra-%ff", "b")],
    "too many": [("user", "a"), *[("group", "g")] * (OPTIONS_MAX + 1)],
}


@pytest.mark.parametrize("case", INVALID_CASES)
def test_invalid_headers_are_refused(case: str) -> None:
    """Invalid headers are a 400, never ignored."""
    with pytest.raises(StatusError) as refused:
        requested_user(headers(*INVALID_CASES[case]))
    assert refused.value.code == 400


def test_requests_without_impersonation() -> None:
    """Without such headers, or with an empty name only, the request runs as its sender."""
    assert requested_user(Headers([("accept", "*/*")])) is None
    assert not is_requested(Headers([("accept", "*/*")]))
    assert requested_user(headers(("user", ""))) is None
    assert is_requested(headers(("user", "")))


@pytest.mark.parametrize(
    "name",
    ["jane", "system:serviceaccount:", "system:serviceaccount:a", "system:serviceaccount:A:b",
     "system:serviceaccount:a:", "system:serviceaccount::b", "system:serviceaccount:a:b:c"],
)  # fmt: skip
def test_other_user_names_are_not_service_accounts(name: str) -> None:
    """Only valid names of a namespace and an account are treated as a service account."""
    assert account_of(name) is None
