"""Names of CRDs: which CRD gets which name, and which waiting CRDs a free name is offered to."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.controllers.crd_names import (
    NameClaim,
    NameClaims,
    claims_of,
    decide,
    from_wire,
    normalize,
    to_wire,
)
from restow.registry.catalog import builtin_catalog
from restow.registry.custom.crds import Names


def names(plural: str, kind: str, **changes: Any) -> Names:
    return Names(
        **{"plural": plural, "singular": kind.lower(), "kind": kind, "list_kind": f"{kind}List"}
        | changes
    )


CATALOG = builtin_catalog()
NONE = Names()
WIDGETS = names("widgets", "Widget", short_names=["wd", "wi"], categories=["all"])


def taken(*others: Names) -> Any:
    claims = frozenset[NameClaim]().union(*map(claims_of, others))
    return claims.__contains__


def test_free_names_are_all_accepted() -> None:
    """Without other CRDs all requested names are accepted."""
    decision = decide(WIDGETS, NONE, taken())
    assert decision.is_accepted
    assert (decision.reason, decision.message) == ("NoConflicts", "no conflicts found")
    assert decision.names == WIDGETS


@pytest.mark.parametrize(
    ("other", "reason", "message", "lost"),
    [
        (names("x", "X", singular="widgets"), "PluralConflict", '"widgets"', "plural"),
        (names("widget", "X"), "SingularConflict", '"widget"', "singular"),
        (names("x", "X", short_names=["wi"]), "ShortNamesConflict", '"wi"', "short_names"),
        (names("x", "X", list_kind="Widget"), "KindConflict", '"Widget"', "kind"),
        (names("x", "WidgetList"), "ListKindConflict", '"WidgetList"', "list_kind"),
    ],
)
def test_taken_names_are_rejected(other: Names, reason: str, message: str, lost: str) -> None:
    """A taken name is rejected with its reason, and the other names are accepted."""
    decision = decide(WIDGETS, NONE, taken(other))
    assert (decision.reason, decision.message) == (reason, f"{message} is already in use")
    assert not getattr(decision.names, lost)
    assert [each.name for each in decision.refused] == [message.strip('"')]
    kept = {"plural", "singular", "short_names", "kind", "list_kind"} - {lost}
    assert all(getattr(decision.names, each) == getattr(WIDGETS, each) for each in kept)


def test_the_last_refusal_is_told_and_all_short_names_at_once() -> None:
    """Of several conflicts the last is reported; short names are rejected together."""
    decision = decide(WIDGETS, NONE, taken(names("x", "Widget", short_names=["wd", "wi"])))
    assert decision.reason == "ListKindConflict"
    assert to_wire(decision.names) == {"plural": "widgets", "kind": "", "categories": ["all"]}
    decision = decide(WIDGETS, NONE, taken(names("x", "X", short_names=["wd", "wi"])))
    assert decision.message == '["wd" is already in use, "wi" is already in use]'


def test_accepted_names_are_kept() -> None:
    """An accepted name is kept, even if another CRD has it as well."""
    assert decide(WIDGETS, WIDGETS, taken(WIDGETS)).is_accepted
    more = names("widgets", "Widget", short_names=["wd", "new"])
    assert decide(more, WIDGETS, taken(WIDGETS)).names.short_names == ["wd", "new"]


def test_ones_own_names_in_another_role() -> None:
    """A short name may repeat the plural of the same CRD; a singular may not repeat a short
    name."""
    same = names("widgets", "Widget", short_names=["widgets", "widget"])
    assert decide(same, normalize(names("widgets", "Widget")), taken()).is_accepted
    decision = decide(names("widgets", "Widget", singular="wd"), WIDGETS, taken())
    assert decision.reason == "SingularConflict"


def test_names_on_the_wire() -> None:
    """Empty names are omitted except for plural and kind; malformed names are empty."""
    assert to_wire(NONE) == {"plural": "", "kind": ""}
    assert from_wire(to_wire(WIDGETS)) == WIDGETS
    assert from_wire({"plural": "x", "shortNames": [], "categories": []}) == Names(plural="x")
    assert from_wire(None) == from_wire({"plural": 5}) == NONE


def test_names_of_built_in_kinds_are_taken() -> None:
    """A CRD in the group of built-in kinds cannot get their names."""
    claims = NameClaims(CATALOG)
    for claim in (
        NameClaim(is_kind=False, name="leases"),
        NameClaim(is_kind=True, name="LeaseList"),
    ):
        assert claims.is_taken(claim, "x.coordination.k8s.io")
        assert not claims.is_taken(claim, "x.example.com")


def test_a_freed_name_queues_only_waiting_crds() -> None:
    """A freed name queues the CRDs that wait for it, once, and no others."""
    claims = NameClaims(CATALOG)
    claims.note("widgets.g.x", WIDGETS, 5)
    claims.note("others.g.x", names("others", "Other"), 6)
    claims.wait("a.g.x", [NameClaim(is_kind=False, name="wd")])
    claims.wait("b.g.x", [NameClaim(is_kind=True, name="Widget")])
    assert claims.note("widgets.g.x", NONE, 4) == set(), "outdated"
    assert claims.note("widgets.g.x", names("widgets", "Widget"), 7) == {"a.g.x"}
    assert claims.remove("others.g.x", 8) == set()
    assert claims.remove("widgets.g.x", 9) == {"b.g.x"}
    assert len(claims) == 0


def test_a_reservation_holds_until_it_ends() -> None:
    """Reserved names are taken for other CRDs, despite older events, and free after a failure."""
    claims = NameClaims(CATALOG)
    wanted = NameClaim(is_kind=True, name="Widget")
    claims.reserve("a.g.x", WIDGETS)
    claims.note("a.g.x", NONE, 3)
    assert claims.is_taken(wanted, "b.g.x")
    assert not claims.is_taken(wanted, "a.g.x")
    claims.wait("b.g.x", [wanted])
    assert claims.end_reservation("a.g.x") == {"b.g.x"}
    assert not claims.is_taken(wanted, "b.g.x")
    assert claims.end_reservation("c.g.x") == set()


words = st.sampled_from(["a", "b", "c", "d"])
some_names = st.builds(
    lambda plural, kind, short: Names(plural=plural, kind=kind, short_names=short),
    words,
    words,
    st.none() | st.lists(words, max_size=2),
)
definitions = st.sampled_from(["a.g.x", "b.g.x", "c.g.x", "a.other.x"])


@given(st.lists(st.tuples(definitions, some_names, st.sampled_from(["note", "ask", "remove"]))))
def test_no_name_is_ever_given_twice(steps: list[tuple[str, Names, str]]) -> None:
    """For any sequence of requests the names agree with a simple model, and none is given twice."""
    claims, twin = NameClaims(CATALOG), dict[str, Names]()
    for revision, (name, wanted, step) in enumerate(steps):
        if step == "remove":
            twin.pop(name, None)
            claims.remove(name, revision)
            continue
        others = [
            each
            for other, each in twin.items()
            if other != name and other.partition(".")[2] == name.partition(".")[2]
        ]
        is_taken = taken(*others)
        for claim in claims_of(wanted):
            assert claims.is_taken(claim, name) == is_taken(claim)
        accepted = twin.get(name, NONE)
        decision = decide(wanted, accepted, lambda claim: claims.is_taken(claim, name))  # noqa: B023
        assert decision == decide(wanted, accepted, is_taken)
        assert not any(map(is_taken, claims_of(decision.names)))
        if step == "ask":
            claims.reserve(name, decision.names)
        twin[name] = decision.names
        claims.note(name, decision.names, revision)
        claims.end_reservation(name)
