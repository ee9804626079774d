"""What is revoked at one server ends the watches at another, on each kind of store."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.api.kubectl import Kubectl
from tests.e2e.api.raw_watch import RawWatch, connection_to
from tests.support.server_process import ServerProcess

DAY = "timeoutSeconds=86400"


@pytest.fixture(scope="module")
def other(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A second server beside the shared one."""
    with server.sibling(tmp_path_factory.mktemp("other")) as sibling:
        yield sibling


@pytest.fixture
def secrets(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


@pytest.fixture
def token(kubectl: Kubectl) -> str:
    """A token of the service account `bob`, who may read the Secrets of the namespace."""
    kubectl.run("create", "serviceaccount", "bob")
    kubectl.run("create", "role", "reader", "--verb=get,list,watch", "--resource=secrets")
    kubectl.run(
        "create", "rolebinding", "bob", "--role=reader", f"--serviceaccount={kubectl.namespace}:bob"
    )
    kubectl.run("create", "secret", "generic", "first")
    return kubectl.run("create", "token", "bob").strip()


def assert_revoked(watch: RawWatch, code: int) -> None:
    """The last event is the Status of a refusal; then the stream ends as HTTP requires."""
    kind, error = watch.event()
    assert (kind, error["kind"], error["code"]) == ("ERROR", "Status", code)
    assert watch.end() == "cleanly"


def test_rights(other: ServerProcess, kubectl: Kubectl, secrets: str, token: str) -> None:
    """`kubectl delete rolebinding` at one server ends the watch at the other, and a Secret that is
    created then does not arrive; a watch of the administrator goes on."""
    with (
        RawWatch(other, f"{secrets}?{DAY}", token=token) as watch,
        RawWatch(other, f"{secrets}?{DAY}") as admins,
    ):
        assert watch.events(1) == [("ADDED", "first")]
        assert admins.events(1) == [("ADDED", "first")]
        kubectl.run("delete", "rolebinding", "bob")
        assert_revoked(watch, 403)
        kubectl.run("create", "secret", "generic", "second")
        assert admins.events(1) == [("ADDED", "second")]


def test_accounts(other: ServerProcess, kubectl: Kubectl, secrets: str, token: str) -> None:
    """`kubectl delete serviceaccount` at one server ends the watch at the other, though an account
    with this name exists again."""
    with RawWatch(other, f"{secrets}?{DAY}", token=token) as watch:
        assert watch.events(1) == [("ADDED", "first")]
        kubectl.run("delete", "serviceaccount", "bob")
        kubectl.run("create", "serviceaccount", "bob")
        assert_revoked(watch, 401)


def test_sessions(server: ServerProcess, other: ServerProcess, secrets: str, token: str) -> None:
    """Sign-out at one server ends the session, and its watch, at the other."""
    assert token  # the account exists, and with it a Secret
    code, minted = server.request("POST", "/dashboard/tickets", {})
    assert code == 201, minted
    cookie = _redeem(server, json.loads(minted)["ticket"])
    with RawWatch(other, f"{secrets}?{DAY}", headers={"Cookie": cookie}) as watch:
        assert watch.events(1) == [("ADDED", "first")]
        sent = {"Cookie": cookie}
        assert other.request("GET", secrets, token="", headers=sent)[0] == 200
        assert server.request("DELETE", "/dashboard/session", token="", headers=sent)[0] == 200
        assert other.request("GET", secrets, token="", headers=sent)[0] == 403
        assert_revoked(watch, 401)


def _redeem(server: ServerProcess, ticket: str) -> str:
    """The Cookie header of a new session."""
    connection = connection_to(server)
    body = json.dumps({"ticket": ticket})
    connection.request("POST", "/dashboard/session", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    line = answer.getheader("Set-Cookie") or ""
    answer.read()
    connection.close()
    return line.partition(";")[0]
