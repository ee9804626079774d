"""The ledger's checks of CRDs and their objects, on hand-written commits."""

from __future__ import annotations

import orjson
import pytest

from restow.registry.custom.crds import ROOT as DEFINITIONS
from restow.storage.interface import Event, Key, Revision
from tests.support.sim.ledger import Ledger

pytestmark = pytest.mark.area("simulation")

DEFINITION = Key(f"{DEFINITIONS}gadgets.example.org")
GADGET = Key("/registry/example.org/gadgets/default/one")


def ledger_of(problems: list[str]) -> Ledger:
    """Returns the ledger of servers without a fence, whose writes need not be reported."""
    found = Ledger(
        problem=problems.append, now=lambda: 0.0, notice=lambda _: None, kinds={}, names={}
    )
    found.is_fenced = False
    found.selected["example.org.gadgets"] = [(0.0, "example.org/v1")]
    return found


def event(revision: int, key: Key, value: object) -> Event:
    data = None if value is None else orjson.dumps(value)
    return Event(key, data, Revision(revision), Revision(1), None)


def definition(uid: str, *stored: str) -> object:
    spec = {
        "group": "example.org",
        "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [{"name": "v1", "storage": True}, {"name": "v2", "storage": False}],
    }
    return {"metadata": {"uid": uid}, "spec": spec, "status": {"storedVersions": list(stored)}}


def gadget(version: str, stamp: str) -> object:
    head = {"apiVersion": f"example.org/{version}", "kind": "Gadget"}
    return {**head, "metadata": {"name": "one"}, "spec": {"stamp": stamp}}


def broken(*values: tuple[Key, object]) -> list[str]:
    """Returns the invariants that a sequence of commits violates."""
    problems: list[str] = []
    ledger = ledger_of(problems)
    for number, (key, value) in enumerate(values):
        ledger.commit("s1", (event(number + 1, key, value),))
    return [each.partition(":")[0] for each in problems]


def test_a_crd_is_removed_after_its_objects() -> None:
    """No object remains, and none is created later."""
    made, written = (DEFINITION, definition("one", "v1")), (GADGET, gadget("v1", "a"))
    assert broken(made, written, (GADGET, None), (DEFINITION, None)) == []
    assert broken(made, written, (DEFINITION, None)) == ["R6"]
    assert broken(made, (DEFINITION, None), written) == ["R6"]
    assert broken(made, (DEFINITION, None), made, written) == []


def test_a_written_version_is_listed() -> None:
    """By the CRD, at the time of the write."""
    found = broken((DEFINITION, definition("one", "v2")), (GADGET, gadget("v1", "a")))
    assert found == ["M5"]
