"""The reference reader of raw values: which values it can read, and the reasons for others."""

from __future__ import annotations

import orjson
import pytest

from tests.support.sim.advice.reference import CRD_ROOT, hash_of, read
from tests.support.sim.releases import CLUSTER_SCOPED, WITH_GADGETS

pytestmark = pytest.mark.area("simulation")

WIDGET = "/registry/example.com/widgets/default/a"
GADGET = "/registry/custom.example.com/gadgets/default/a"


def _value(api_version: str, kind: str = "Widget", *, namespace: str = "default") -> bytes:
    metadata = {"name": "a", **({"namespace": namespace} if namespace else {})}
    return orjson.dumps({"kind": kind, "apiVersion": api_version, "metadata": metadata})


def _crd(
    *versions: str, scope: str = "Namespaced", is_established: bool = True
) -> dict[str, bytes]:
    spec = {
        "group": "custom.example.com",
        "scope": scope,
        "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [{"name": version} for version in versions],
    }
    head = {"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1"}
    established = {"type": "Established", "status": "True" if is_established else "False"}
    body = {
        **head,
        "metadata": {"name": "gadgets.custom.example.com"},
        "spec": spec,
        "status": {"conditions": [established]},
    }
    return {f"{CRD_ROOT}gadgets.custom.example.com": orjson.dumps(body)}


@pytest.mark.parametrize(
    ("release", "is_read"), [("x", True), ("x+2", True), ("x+3", False), (CLUSTER_SCOPED, False)]
)
def test_a_value_is_read_in_its_version_at_its_key(release: str, *, is_read: bool) -> None:
    """The release must know the version, and read the object at its key."""
    found = read({WIDGET: _value("example.com/v1")}, release)
    assert (found.unreadable == {}) is is_read
    assert found.unowned == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (WIDGET, b"\x00"),
        (WIDGET, b"[]"),
        (WIDGET, _value("example.com/v9")),
        (WIDGET, _value("example.com/v1", "Gadget")),
        (WIDGET, _value("example.com/v1", namespace="other")),
        ("/registry/example.com/widgets/a", _value("example.com/v1", namespace="")),
        ("/registry/configmaps/default/a", b"no object"),
    ],
)
def test_a_value_that_is_no_object_of_its_key_is_unreadable(key: str, value: bytes) -> None:
    """Including objects of another kind, namespace or version."""
    assert list(read({key: value}, "x+1").unreadable) == [key]


def test_custom_resources_are_read_by_their_crd() -> None:
    """In each version of the CRD, and only while the CRD exists."""
    gadget = {GADGET: _value("custom.example.com/v1", "Gadget")}
    assert read({**gadget, **_crd("v1", "v2")}, "x").unreadable == {}
    assert list(read({**gadget, **_crd("v2")}, "x").unreadable) == [GADGET]
    assert list(read({**gadget, **_crd("v1", scope="Cluster")}, "x").unreadable) == [GADGET]
    assert list(read(gadget, "x").unowned) == [GADGET]


def test_a_kind_is_either_built_in_or_defined_by_a_crd() -> None:
    """Servers of a release do not start with a CRD for one of their built-in kinds; while they run,
    such a
    CRD is not accepted."""
    assert read(_crd("v1", is_established=False), WITH_GADGETS).unreadable == {}
    assert list(read(_crd("v1"), WITH_GADGETS).unreadable) == [GADGET.removesuffix("default/a")]
    assert read({GADGET: _value("custom.example.com/v1", "Gadget")}, WITH_GADGETS).unreadable == {}


def test_hashes_match_discovery() -> None:
    """Hashes of group, version and kind, as StorageStates list them."""
    assert hash_of(_value("example.com/v1")) == "gIwvi5rymmg="
    assert hash_of(_value("example.com/v2")) == "zRcoV5EeA3s="
    assert hash_of(b"no object") == ""
