"""The paths of printer columns."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.endpoints.tables.jsonpath import (
    FOUND_MAX,
    PATH_CHARS_MAX,
    STEPS_MAX,
    VISITED_MAX,
    BadPath,
    parse_path,
)

OBJECT: dict[str, Any] = {
    "spec": {"replicas": 3, "a.b": "dotted", "none": None, "list": ["x", "y", "z"]},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "n": 1},
            {"type": "Sick", "status": "False", "n": True},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.replicas", [3]),
        ("{.spec.replicas}", [3]),
        ("$.spec.replicas", [3]),
        (".spec['a.b']", ["dotted"]),
        ('.spec["a.b"]', ["dotted"]),
        (r".spec.a\.b", ["dotted"]),
        (".spec.none", [None]),
        (".spec.missing", []),
        (".spec.replicas.deeper", []),
        (".spec.list[0]", ["x"]),
        (".spec.list[-1]", ["z"]),
        (".spec.list[7]", []),
        (".spec.list[*]", ["x", "y", "z"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Sick')].status", ["False"]),
        ('.status.conditions[?(@.type!="Ready")].status', ["False"]),
        (".status.conditions[?(@.n==1)].type", ["Ready"]),
        (".status.conditions[?(@.n==true)].type", ["Sick"]),
        (".status.conditions[?(@['type'])].n", [1, True]),
        (".status.conditions[*].type", ["Ready", "Sick"]),
        (".status.*[0].type", ["Ready"]),
        (".spec.list[0:2]", ["x", "y"]),
        (".spec.list[-1:]", ["z"]),
        (".spec.list[:]", ["x", "y", "z"]),
        (".spec.list[::2]", ["x", "z"]),
        (".spec.list[0,2]", ["x", "z"]),
        (".spec['a.b','replicas']", ["dotted", 3]),
        (".status.conditions[?(@.n>0)].type", ["Ready"]),
        (".status.conditions[?(@.n<=1)].type", ["Ready"]),
        (".status.conditions[?(@.n>1.5)].type", []),
        ('.status.conditions[?(@.type>="S")].type', ["Sick"]),
        (".status.conditions[?(@.type<3)].type", []),
        ("..replicas", [3]),
        ("..type", ["Ready", "Sick"]),
    ],
)
def test_paths(path: str, found: list[object]) -> None:
    """Every supported form finds its values, and none where there are none."""
    result = parse_path(path).find(OBJECT)
    assert result == found
    assert [type(each) for each in result] == [type(each) for each in found]


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "spec",
        "..",
        "...spec",
        ".spec[",
        ".spec[1",
        ".spec[a]",
        ".a[?(@.b>@.c)]",
        ".a[1:2:-1]",
        ".a[1:2:0]",
        ".a['b',]",
        ".a[(@.length-1)]",
        ".a b",
        ".a" * (STEPS_MAX + 1),
        "." + "a" * PATH_CHARS_MAX,
        ".a[99999999999999]",
    ],
)
def test_bad_paths(path: str) -> None:
    """Unsupported syntax is rejected when the path is parsed, not when it is evaluated."""
    with pytest.raises(BadPath):
        parse_path(path)


@given(st.text(alphabet=".[]'\"?@()=*$\\a1 {}", max_size=30))
def test_any_text_is_read_or_refused(path: str) -> None:
    """A path from a user yields a result or BadPath, and no other error."""
    try:
        parsed = parse_path(path)
    except BadPath:
        return
    assert isinstance(parsed.find(OBJECT), list)


def test_results_are_bounded() -> None:
    """Nested wildcards over long lists are bounded."""
    wide = [[0] * FOUND_MAX for _ in range(FOUND_MAX)]
    assert len(parse_path(".a[*][*]").find({"a": wide})) == FOUND_MAX


def test_recursive_search_is_bounded() -> None:
    """A recursive search for a key is bounded."""
    deep: dict[str, Any] = {"wanted": "deep"}
    for _ in range(VISITED_MAX + 1):
        deep = {"inner": deep}
    assert parse_path("..wanted").find(deep) == []
    wide = [{"wanted": number} for number in range(2 * VISITED_MAX)]
    assert len(parse_path("..wanted").find(wide)) == FOUND_MAX


@pytest.mark.parametrize(
    "path", [".list[1\x1d:]", ".list[\x1f:2]", ".list[\u0661]", ".list[\u2009 0]"]
)
def test_only_ascii_numbers_and_spaces(path: str) -> None:
    """Separators and digits beyond ASCII are an error in the path, and not one of Python."""
    with pytest.raises(BadPath):
        parse_path(path)
