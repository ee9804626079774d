"""What the ledger says of definitions and their objects, by commits that are made up."""

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
    """Of servers without a fence: whoever writes need not have said so."""
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


def told(*values: tuple[Key, object]) -> list[str]:
    """Which promises are broken by commits, one after the other."""
    problems: list[str] = []
    ledger = ledger_of(problems)
    for number, (key, value) in enumerate(values):
        ledger.commit("s1", (event(number + 1, key, value),))
    return [each.partition(":")[0] for each in problems]


def test_a_definition_goes_after_its_objects() -> None:
    """None stays behind, and none comes later."""
    made, written = (DEFINITION, definition("one", "v1")), (GADGET, gadget("v1", "a"))
    assert told(made, written, (GADGET, None), (DEFINITION, None)) == []
    assert told(made, written, (DEFINITION, None)) == ["R6"]
    assert told(made, (DEFINITION, None), written) == ["R6"]
    assert told(made, (DEFINITION, None), made, written) == []


def test_what_is_written_is_listed() -> None:
    """By the definition, in the moment in which it is written."""
    found = told((DEFINITION, definition("one", "v2")), (GADGET, gadget("v1", "a")))
    assert found == ["M5"]
