"""kubectl's error output: it contains the server's messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.api.conftest import EVE_TOKEN
from tests.e2e.api.kubectl import Kubectl

BAD_NAME = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
)


def config(name: str = "one", **more: Any) -> str:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}
    return json.dumps(document)


def test_missing(kubectl: Kubectl) -> None:
    """A missing object is named by its resource and name, an unknown resource by its type."""
    assert kubectl.fail("get", "configmap", "none") == (
        'Error from server (NotFound): configmaps "none" not found'
    )
    assert kubectl.fail("delete", "deployment", "none") == (
        'Error from server (NotFound): deployments.apps "none" not found'
    )
    assert kubectl.fail("get", "unicorns") == (
        'error: the server doesn\'t have a resource type "unicorns"'
    )
    assert (
        kubectl.within("nowhere")
        .fail("create", "-f", "-", stdin=config())
        .endswith('namespaces "nowhere" not found')
    )
    said = kubectl.within("nowhere").try_run("get", "configmaps")
    assert (said.code, said.err) == (0, "No resources found in nowhere namespace.\n")


def test_existing(kubectl: Kubectl) -> None:
    """A second object of the same name is refused."""
    kubectl.run("create", "-f", "-", stdin=config())
    assert kubectl.fail("create", "-f", "-", stdin=config()) == (
        'Error from server (AlreadyExists): error when creating "STDIN": '
        'configmaps "one" already exists'
    )


def test_invalid(kubectl: Kubectl) -> None:
    """An invalid value is reported with its field and the reason."""
    bad = kubectl.fail("create", "-f", "-", stdin=config("Bad_Name"))
    assert bad.startswith('The ConfigMap "Bad_Name" is invalid: metadata.name: Invalid value: "Bad')
    assert BAD_NAME in bad
    kubectl.run("create", "deployment", "web", "--image=nginx")
    patch = '{"spec":{"selector":{"matchLabels":{"app":"other"}}}}'
    bad = kubectl.fail("patch", "deployment", "web", "-p", patch)
    assert bad.startswith('The Deployment "web" is invalid: ')
    assert "field is immutable" in bad
    patch = '[{"op":"test","path":"/metadata/name","value":"x"}]'
    bad = kubectl.fail("patch", "deployment", "web", "--type=json", "-p", patch)
    assert "test failed" in bad or "is invalid" in bad


def test_unknown_field(kubectl: Kubectl) -> None:
    """An unknown field is refused, by the server since kubectl 1.25."""
    strict = "--validate=strict" if kubectl.minor >= 25 else "--validate=true"
    bad = kubectl.fail("create", strict, "-f", "-", stdin=config(bogus="x"))
    if kubectl.minor >= 25:
        assert bad.startswith('Error from server (BadRequest): error when creating "STDIN": ')
        assert bad.endswith('strict decoding error: unknown field "bogus"')
        said = kubectl.try_run("create", "--validate=warn", "-f", "-", stdin=config(bogus="x"))
        assert said.code == 0
        assert said.err == 'Warning: unknown field "bogus"\n'
    else:
        assert 'unknown field "bogus" in io.k8s.api.core.v1.ConfigMap' in bad
        kubectl.run("create", "--validate=false", "-f", "-", stdin=config(bogus="x"))
    assert "bogus" not in kubectl.json("get", "configmap", "one", "-o", "json")


def test_conflict(kubectl: Kubectl) -> None:
    """A replace from an older state is refused."""
    kubectl.run("create", "-f", "-", stdin=config())
    old = kubectl.run("get", "configmap", "one", "-o", "json")
    kubectl.run("label", "configmap", "one", "changed=yes")
    assert kubectl.fail("replace", "-f", "-", stdin=old) == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled'
        ' on configmaps "one": the object has been modified; please apply your changes to the'
        " latest version and try again"
    )


def test_forbidden(kubectl: Kubectl) -> None:
    """The message names the missing permission; protected namespaces cannot be deleted."""
    assert kubectl.fail("get", "configmaps", "--token", EVE_TOKEN) == (
        'Error from server (Forbidden): configmaps is forbidden: User "eve" cannot list resource'
        f' "configmaps" in API group "" in the namespace "{kubectl.namespace}"'
    )
    assert kubectl.fail("delete", "namespace", "kube-system").endswith(
        'Error from server (Forbidden): namespaces "kube-system" is forbidden:'
        " this namespace may not be deleted"
    )


def test_unauthorized(kubectl: Kubectl) -> None:
    """An unknown token is refused."""
    said = kubectl.fail("get", "configmaps", "--token", "wrong")
    assert "You must be logged in to the server" in said


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("get", "configmaps", "--field-selector=spec.color=red"),
            "field label not supported: spec.color",
        ),
        (("get", "configmap", "x", "y", "z"), 'configmaps "z" not found'),
        (("get", "--raw", "/api/v1/nothing"), "could not find the requested resource"),
        (("get", "--raw", "/nothing"), "NotFound"),
        (("scale", "configmap/one", "--replicas=1"), "could not find"),
        (("create", "-f", "-"), "no objects passed to create"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_other_mistakes(kubectl: Kubectl, words: tuple[str, ...], text: str) -> None:
    """Invalid selectors, paths and subresources are refused with the reason."""
    kubectl.run("create", "-f", "-", stdin=config())
    assert text in kubectl.fail(*words)
