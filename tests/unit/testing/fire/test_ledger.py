"""The ledger of acknowledged writes detects lost, stale, resurrected and invented objects."""

from __future__ import annotations

import pytest

from tests.support.fire.ledger import Found, Ledger
from tests.support.fire.objects import (
    CONFIG_MAPS,
    GADGETS,
    KINDS,
    SECRETS,
    WIDGETS,
    Kind,
    content_of,
    merged,
    stored_content,
    written_kind,
)
from tests.support.fire.record import Operation
from tests.unit.testing.fire.stories import NAMESPACE, UID, told, value_of

KEY = WIDGETS.key_of(NAMESPACE, "a")


def found(token: str, revision: int, uid: str = UID) -> Found:
    return Found(revision, content_of(uid, {"token": token, "counts": {}}))


def problems(operations: list[Operation], there: Found | None) -> str:
    ledger = Ledger.of(operations)
    return "\n".join(ledger.compare({KEY: there} if there else {}, where="here"))


@pytest.mark.parametrize(
    ("operations", "there"),
    [
        ([told("create", "1", 5)], found("1", 5)),
        ([told("create", "1", 5)], found("1", 9)),  # migrated since
        ([told("create", "1", 5), told("update", "2", 7)], found("2", 7)),
        ([told("update", "2", 7), told("create", "1", 5)], found("2", 7)),  # in any order
        ([told("create", "1", 5), told("delete", "", 0)], None),
        ([told("create", "1", status=503)], None),
        ([told("create", "1", status=0)], None),
        ([told("create", "1", status=0)], found("1", 5)),
        ([told("create", "1", 5), told("delete", "", 0, status=504)], None),
        ([told("create", "1", 5), told("delete", "", 0, status=504)], found("1", 5)),
        ([told("create", "1", 5), told("patch", "2", status=0)], found("2", 7)),
        ([told("get", "", 5, status=404)], None),
    ],
)
def test_states_that_an_object_may_have(operations: list[Operation], there: Found | None) -> None:
    """The last acknowledged state, or that of a write of unknown outcome."""
    assert problems(operations, there) == ""


@pytest.mark.parametrize(
    ("operations", "there", "said"),
    [
        ([told("create", "1", 5)], None, "is missing"),
        ([told("create", "1", 5), told("update", "2", 7)], found("1", 9), "last acknowledged"),
        ([told("create", "1", 5)], found("1", 4), "before its last acknowledged write"),
        ([told("create", "1", 5), told("delete", "", 0)], found("1", 5), "deletion of this uid"),
        (
            [told("create", "1", status=409)],
            found("1", 5),
            "no acknowledged write has this content",
        ),
        ([], found("1", 5), "no acknowledged write has this content"),
        ([told("create", "1", 5)], found("1", 5, uid="other"), "last acknowledged write is"),
        ([told("create", "1", 5), told("update", "2", status=0)], None, "is missing"),
    ],
)
def test_states_that_an_object_cannot_have(
    operations: list[Operation], there: Found | None, said: str
) -> None:
    """Each is reported with the key of the object."""
    text = problems(operations, there)
    assert said in text
    assert text.startswith(f"here: {KEY} ")


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_spec_survives_every_kind(kind: Kind) -> None:
    """A spec is read from an object and from a patch unchanged, whatever field holds it."""
    spec = {"token": "3.4", "counts": {"c3": 4, "c11": 0}}
    body = kind.body_of(kind.versions[0], "w-1", spec)
    assert kind.spec_of(body) == spec
    patch = {"token": "5.6", "counts": {"c5": 6}}
    if kind.content != "spec":
        patched = {**body, "data": body["data"] | kind.fields_of(patch)["data"]}
        assert kind.spec_of(patched) == merged(spec, patch)


def test_keys_of_a_load() -> None:
    """Objects that servers create, and other namespaces, are not objects of the load."""
    assert written_kind(CONFIG_MAPS.key_of("fire-1", "w-1")) is CONFIG_MAPS
    assert written_kind(GADGETS.key_of("fire-1", "end")) is GADGETS
    assert written_kind(CONFIG_MAPS.key_of("fire-1", "kube-root-ca.crt")) is None
    assert written_kind(SECRETS.key_of("default", "w-1")) is None
    assert written_kind("/restow/servers/a") is None
    assert stored_content(value_of({"token": "1"})).startswith(f"{UID}/1/")
