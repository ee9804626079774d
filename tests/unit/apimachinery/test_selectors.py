"""Label and field selectors: parsing, matching, formatting, and rejected input."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.selector_syntax import REQUIREMENTS_MAX, SELECTOR_LENGTH_MAX
from restow.apimachinery.selectors import (
    EVERYTHING,
    NOTHING,
    FieldSelector,
    LabelSelector,
    label_selector_of,
    parse_field_selector,
    parse_label_selector,
)
from restow.apimachinery.status import BadRequest

LABELS = {"app": "web", "tier": "", "example.com/size": "10"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("  ", True),
        ("app", True),
        ("!app", False),
        ("! app", False),
        ("app=web", True),
        ("app==web", True),
        ("app = web", True),
        ("app=", False),
        ("tier=", True),
        ("tier=,app", True),
        ("app!=web", False),
        ("none!=web", True),
        ("none!=", True),
        ("app in (web,db)", True),
        ("app in(db)", False),
        ("app notin (web)", False),
        ("none notin (web)", True),
        ("tier in (,a)", True),
        ("tier in (a,)", True),
        ("tier in (a,,b)", True),
        ("app in (,)", False),
        ("example.com/size>9", True),
        ("example.com/size>10", False),
        ("example.com/size<11", True),
        ("app<11", False),
        ("none>1", False),
        ("app=web,!none,example.com/size>1", True),
        ("app,app=web\t,\napp in (web)", True),
        ("in in (in)", False),
        ("notin", False),
        ("in", False),
    ],
)
def test_label_selectors(text: str, matches: bool) -> None:
    """Selectors of each form match or do not match given labels."""
    assert parse_label_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "a,",
        ",a",
        "a,,b",
        "!",
        "!!a",
        "=",
        "=a",
        "a b",
        "a=b c",
        "a=b=c",
        "a===b",
        "a=!b",
        "a!b",
        "!a=b",
        "a in",
        "a in b",
        "a in ()",
        "a in (",
        "a in (b",
        "a in (b c)",
        "a in (=)",
        "a in ((b))",
        "a in (!b)",
        "a in (b),",
        "a in (b) c",
        "a notin ()",
        "a>b",
        "a>",
        "a<9223372036854775808",
        "a>1.5",
        "a=b/c",
        "a=" + "x" * 64,
        "a/b/c",
        "/a",
        "a/",
        "-a",
        "ä",
        "a=ä",
        "a=\x00",
        "a in (\ud800)",
        "x" * 64,
        "(",
        ")",
        "a IN (b)",
    ],
)
def test_bad_label_selectors(text: str) -> None:
    """An invalid selector is a 400."""
    with pytest.raises(BadRequest):
        parse_label_selector(text)


keys = st.sampled_from(["a", "b", "c.d/e"])
values = st.sampled_from(["", "x", "y", "7", "10"])
labels_strategy = st.dictionaries(keys, values)
Term = tuple[str, str, list[str]]
terms: st.SearchStrategy[Term] = st.one_of(
    st.tuples(keys, st.sampled_from(["=", "==", "!="]), values.map(lambda value: [value])),
    st.tuples(keys, st.sampled_from(["in", "notin"]), st.lists(values, min_size=1, max_size=3)),
    st.tuples(keys, st.sampled_from(["exists", "!"]), st.just([])),
    st.tuples(keys, st.sampled_from(["<", ">"]), st.sampled_from([["8"], ["10"]])),
)


def written(term: Term) -> str:
    key, operator, wanted = term
    if operator in ("in", "notin"):
        # A single empty value needs its comma.
        return f"{key} {operator} ({','.join(wanted) if any(wanted) else ','})"
    return {"exists": key, "!": f"!{key}"}.get(operator) or f"{key}{operator}{wanted[0]}"


def holds(term: Term, labels: dict[str, str]) -> bool:
    key, operator, wanted = term
    match operator:
        case "exists":
            return key in labels
        case "!":
            return key not in labels
        case "=" | "==" | "in":
            return key in labels and labels[key] in wanted
        case "!=" | "notin":
            return not (key in labels and labels[key] in wanted)
    if key not in labels or not labels[key].removeprefix("-").isdecimal():
        return False
    number, bound = int(labels[key]), int(wanted[0])
    return number < bound if operator == "<" else number > bound


@given(conditions=st.lists(terms, max_size=4), labels=labels_strategy)
def test_labels_against_naive(conditions: list[Term], labels: dict[str, str]) -> None:
    """A selector matches if each of its requirements does; so does its formatted form."""
    selector = parse_label_selector(",".join(map(written, conditions)))
    wanted = all(holds(term, labels) for term in conditions)
    assert selector.matches(labels) is wanted
    again = parse_label_selector(str(selector))
    assert again.matches(labels) is wanted
    assert str(again) == str(selector)


def test_canonical_text() -> None:
    """Equal requirements have one string form, sorted by key."""
    one = parse_label_selector("z in (c, a,b),!y,x = 1,w")
    assert str(one) == "w,x=1,!y,z in (a,b,c)"
    assert one == parse_label_selector(str(one))
    assert hash(one) == hash(parse_label_selector(str(one)))
    assert one != parse_label_selector("w")


def test_requires() -> None:
    """A selector returns the only value that a label or field may have, for an index."""
    selector = parse_label_selector("a=1,b in (2),c in (3,4),d!=5,e")
    assert [selector.requires(key) for key in "abcdef"] == ["1", "2", None, None, None, None]
    fields = parse_field_selector("metadata.name=x,metadata.namespace!=y,metadata.name==x")
    assert fields.requires("metadata.name") == "x"
    assert fields.requires("metadata.namespace") is None


def test_limits() -> None:
    """A selector that is too long or has too many requirements is a 400."""
    with pytest.raises(BadRequest, match="at most"):
        parse_label_selector("a" * (SELECTOR_LENGTH_MAX + 1))
    with pytest.raises(BadRequest, match="at most"):
        parse_label_selector(",".join(["a"] * (REQUIREMENTS_MAX + 1)))
    with pytest.raises(BadRequest, match="at most"):
        parse_field_selector("a" * (SELECTOR_LENGTH_MAX + 1))
    with pytest.raises(BadRequest, match="at most"):
        parse_field_selector(",".join(["a=b"] * (REQUIREMENTS_MAX + 1)))
    many = ",".join(f"v{index}" for index in range(9000))
    assert parse_label_selector(f"a in ({many})").matches({"a": "v8999"})


@pytest.mark.parametrize(
    "text", ["(" * 60_000, "a in (" + "," * 60_000, "!" * 60_000, "\\" * 60_000, "=" * 60_000]
)
def test_odd_long_texts(text: str) -> None:
    """Long invalid input is a 400, in both kinds of selectors."""
    with pytest.raises(BadRequest):
        parse_label_selector(text)
    with pytest.raises(BadRequest):
        parse_field_selector(text)


@pytest.mark.parametrize(
    ("text", "fields", "matches"),
    [
        ("", {}, True),
        (",", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "b"}, True),
        ("a!=b", {"a": "b"}, False),
        ("a!=b", {}, True),
        ("a=", {}, True),
        ("a=b,a=b", {"a": "b"}, True),
        ("a=b,a=c", {"a": "b"}, False),
        (r"a=x\,y\=z\\", {"a": r"x,y=z" + "\\"}, True),
        ("a=../../secrets/b", {"a": "b"}, False),
        ("a=b!", {"a": "b!"}, True),
    ],
)
def test_field_selectors(text: str, fields: dict[str, str], matches: bool) -> None:
    """A field selector compares whole strings, and a missing field is empty."""
    selector = parse_field_selector(text)
    assert selector.matches(fields) is matches
    assert parse_field_selector(str(selector)) == selector
    assert hash(parse_field_selector(str(selector))) == hash(selector)


@pytest.mark.parametrize("text", ["a", "a,b=c", "a>b", "a=b=c", r"a=\x", "a=b\\", "a in (b)"])
def test_bad_field_selectors(text: str) -> None:
    """An invalid field selector is a 400."""
    with pytest.raises(BadRequest):
        parse_field_selector(text)


@given(value=st.text(max_size=8), field=st.sampled_from(["a", "metadata.name"]))
def test_any_value_can_be_selected(value: str, field: str) -> None:
    """With backslashes every string can be the value of a field selector."""
    escaped = value.replace("\\", r"\\").replace(",", r"\,").replace("=", r"\=")
    selector = parse_field_selector(f"{field}={escaped}")
    assert selector.matches({field: value})
    assert selector.requires(field) == value


def test_unsupported_fields() -> None:
    """An unsupported field is a 400 that names it."""
    selector = parse_field_selector("metadata.name=a,spec.x=b")
    selector.refuse_others({"metadata.name", "spec.x"})
    with pytest.raises(BadRequest, match=r"field label not supported: spec\.x"):
        selector.refuse_others({"metadata.name"})


@given(text=st.text(st.sampled_from("ab=!(),<>\\ in.1/"), max_size=20))
def test_any_text(text: str) -> None:
    """Every string is a selector or a 400, and formatted selectors can be parsed again."""
    for read in (parse_label_selector, parse_field_selector):
        try:
            selector: LabelSelector | FieldSelector = read(text)
        except BadRequest:
            continue
        assert str(read(str(selector))) == str(selector)


def test_selector_in_an_object() -> None:
    """Selectors in objects have labels and expressions."""
    selector = label_selector_of(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["", "b"]},
                {"key": "x", "operator": "NotIn", "values": ["y"]},
                {"key": "app", "operator": "Exists"},
                {"key": "none", "operator": "DoesNotExist", "values": []},
            ],
        }
    )
    assert selector.matches(LABELS)
    assert not selector.matches({**LABELS, "none": ""})
    assert label_selector_of({}).matches({})
    assert not label_selector_of(None).matches({})
    assert NOTHING != EVERYTHING
    assert bool(EVERYTHING) is False


@pytest.mark.parametrize(
    "value",
    [
        {"matchLabels": []},
        {"matchLabels": {"a": 1}},
        {"matchLabels": {"a/b/c": "x"}},
        {"matchExpressions": {}},
        {"matchExpressions": ["a"]},
        {"matchExpressions": [{}]},
        {"matchExpressions": [{"key": "a", "operator": "Like"}]},
        {"matchExpressions": [{"key": "a", "operator": ["In"]}]},
        {"matchExpressions": [{"key": "a", "operator": "In"}]},
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
        {"matchExpressions": [{"key": 1, "operator": "Exists"}]},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]},
    ],
)
def test_bad_selector_in_an_object(value: dict[str, Any]) -> None:
    """An invalid selector is a 400, whatever its types."""
    with pytest.raises(BadRequest):
        label_selector_of(value)
