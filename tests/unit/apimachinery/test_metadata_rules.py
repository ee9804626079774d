"""Validation of metadata, and the formats of names."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from restow.aio import RandomIds, SeededRandomness
from restow.apimachinery import metadata_rules as rules
from restow.apimachinery import name_formats as formats
from restow.apimachinery.status import BadRequest, StatusCause

# The patterns in Kubernetes' messages, which are simple but backtrack.
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAIVE: dict[formats.NameRule, tuple[int, str]] = {
    formats.subdomain_problem: (253, rf"{LABEL}(\.{LABEL})*"),
    formats.dns_label_problem: (63, LABEL),
    formats.dns_1035_label_problem: (63, "[a-z]([-a-z0-9]*[a-z0-9])?"),
    formats.label_value_problem: (63, "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"),
}
names = st.text(st.sampled_from("aZ09-._/ \n"), max_size=12)


@pytest.mark.parametrize("rule", NAIVE, ids=lambda rule: rule.__name__)
@given(text=names)
@example(text="a" * 63)
@example(text="a" * 64)
@example(text="a." * 126 + "a")
@example(text="a." * 126 + "aa")
def test_against_naive(rule: formats.NameRule, text: str) -> None:
    """Each rule accepts what the simple pattern accepts, within its length."""
    length_max, pattern = NAIVE[rule]
    wanted = len(text) <= length_max and re.fullmatch(pattern, text) is not None
    assert (rule(text) is None) == wanted


@given(text=names)
@example(text="a/" + "b" * 64)
@example(text="a" * 254 + "/b")
def test_qualified_names(text: str) -> None:
    """A qualified name is a name, optionally with one domain and a slash before it."""
    *prefix, name = text.split("/")
    pattern = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
    wanted = len(name) <= 63 and re.fullmatch(pattern, name) is not None and len(prefix) <= 1
    if prefix:
        wanted = wanted and formats.subdomain_problem(prefix[0]) is None
    assert (formats.qualified_name_problem(text) is None) == wanted


@pytest.mark.parametrize("rule", [*NAIVE, formats.qualified_name_problem])
@pytest.mark.parametrize("text", ["a-" * 10**6, "a." * 10**6, "-" * 10**6, "a" * 10**6 + "!"])
def test_long_names_end_soon(rule: formats.NameRule, text: str) -> None:
    """A name of megabytes is rejected by its length; otherwise the test would not finish."""
    assert rule(text) is not None


@pytest.mark.parametrize("text", [".", "..", "a/b", "a%2f", "a\0", "a\r\nb", "\ud800", "a" * 1025])
def test_bad_path_segments(text: str) -> None:
    """A name that would change the path, break a line or is not text is rejected."""
    assert formats.path_segment_problem(text) is not None


@pytest.mark.parametrize("text", ["system:node", "...", "a b", "Ä", "a@b.c"])
def test_good_path_segments(text: str) -> None:
    """Other names are valid path segments."""
    assert formats.path_segment_problem(text) is None


def problems(metadata: dict[str, Any], **options: Any) -> list[str]:
    options = {"name_rule": formats.subdomain_problem, "is_namespaced": True, **options}
    found = rules.metadata_problems({"name": "a", "namespace": "b", **metadata}, **options)
    assert all(isinstance(each, StatusCause) for each in found)
    return [str(each) for each in found]


def test_good_metadata() -> None:
    """Metadata of real clients are valid."""
    metadata = {
        "generateName": "web-",
        "labels": {"app.kubernetes.io/name": "web", "tier": ""},
        "annotations": {"Example.com/Note": "x" * 1000, "kubectl.kubernetes.io/x": "{}"},
        "finalizers": ["example.com/a", "foregroundDeletion", "kubernetes"],
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "D", "name": "d", "uid": "u", "controller": True},
            {"apiVersion": "v1", "kind": "C", "name": "c", "uid": "v", "controller": False},
        ],
        "generation": 3,
    }
    rules.check_types(metadata)
    assert problems(metadata) == []


@pytest.mark.parametrize(
    ("metadata", "beginning"),
    [
        ({"name": ""}, "metadata.name: Required value: name or generateName is required"),
        ({"name": "A"}, 'metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain'),
        ({"generateName": "A-"}, 'metadata.generateName: Invalid value: "A-": a lowercase'),
        ({"namespace": ""}, "metadata.namespace: Required value"),
        ({"namespace": "a.b"}, 'metadata.namespace: Invalid value: "a.b": a lowercase RFC 1123'),
        ({"generation": -1}, "metadata.generation: Invalid value: -1: must be greater"),
        ({"labels": {"": "x"}}, 'metadata.labels: Invalid value: "": name part must be non-empty'),
        ({"labels": {"/a": "x"}}, 'metadata.labels: Invalid value: "/a": prefix part must be'),
        ({"labels": {"a/b/c": "x"}}, 'metadata.labels: Invalid value: "a/b/c": a qualified name'),
        ({"labels": {"a": "x" * 64}}, 'metadata.labels: Invalid value: "xxx'),
        ({"labels": {"a": "x y"}}, 'metadata.labels: Invalid value: "x y": a valid label must'),
        ({"annotations": {"a b": ""}}, 'metadata.annotations: Invalid value: "a b": name part'),
        (
            {"annotations": {"a": "ä" * (128 * 1024)}},
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        (
            {"finalizers": ["mine"]},
            (
                'metadata.finalizers[0]: Invalid value: "mine": name is neither a standard '
                "finalizer name nor is it fully qualified"
            ),
        ),
        ({"finalizers": ["a b"]}, 'metadata.finalizers: Invalid value: "a b": name part'),
        (
            {"finalizers": ["orphan", "foregroundDeletion"]},
            'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer',
        ),
        (
            {"ownerReferences": [{"apiVersion": "", "kind": "K", "name": "n", "uid": "u"}]},
            'metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty',
        ),
        (
            {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "n", "uid": "u"}]},
            'metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": unexpected',
        ),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}]},
            'metadata.ownerReferences: Invalid value: {"apiVersion":"v1"',
        ),
    ],
)
def test_single_problems(metadata: dict[str, Any], beginning: str) -> None:
    """Each violation is reported once, at its field, with Kubernetes' message."""
    found = problems(metadata)
    assert len(found) == 1
    assert found[0].startswith(beginning)


def test_owner_needs_all() -> None:
    """An owner reference needs kind, name and uid, and only one owner may be the controller."""
    found = problems({"ownerReferences": [{"apiVersion": "v1"}]})
    assert [each.partition(":")[0] for each in found] == [
        f"metadata.ownerReferences.{name}" for name in ("kind", "name", "uid")
    ]
    owner = {"apiVersion": "v1", "kind": "K", "uid": "u", "controller": True}
    found = problems({"ownerReferences": [{**owner, "name": "a"}, {**owner, "name": "b"}]})
    assert len(found) == 1
    assert "Only one reference can have Controller set to true" in found[0]
    assert found[0].endswith("K/a and K/b")


def test_scope_and_custom_kinds() -> None:
    """Cluster-scoped objects have no namespace; custom resources may have bare finalizers."""
    assert problems({}, is_namespaced=False) == [
        "metadata.namespace: Forbidden: not allowed on this type"
    ]
    assert problems({"namespace": ""}, is_namespaced=False) == []
    assert problems({"finalizers": ["mine"]}, bare_finalizers_allowed=True) == []


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        "x",
        {"name": 1},
        {"uid": {}},
        {"generation": "1"},
        {"generation": True},
        {"generation": 1.5},
        {"labels": []},
        {"labels": {"a": 1}},
        {"annotations": {"a": ["b"]}},
        {"finalizers": "a"},
        {"finalizers": [1]},
        {"finalizers": [None]},
        {"ownerReferences": {}},
        {"ownerReferences": ["a"]},
        {"ownerReferences": [{"name": 1}]},
        {"ownerReferences": [{"controller": "true"}]},
        {"managedFields": [1]},
        {"creationTimestamp": 5},
    ],
)
def test_wrong_types(metadata: Any) -> None:
    """Metadata of a wrong type are a 400, before any other validation."""
    with pytest.raises(BadRequest, match="field metadata"):
        rules.check_types(metadata)


def test_null_is_absent() -> None:
    """Null counts as absent in every member."""
    names = [*rules._STRINGS, *rules._INTEGERS, *rules._STRING_MAPS]
    rules.check_types(dict.fromkeys([*names, "finalizers", "ownerReferences"]))
    rules.check_types(None)
    assert problems(dict.fromkeys(set(names) - {"name", "namespace"})) == []


def test_generated_names() -> None:
    """A generated name starts with its prefix and is never longer than a label."""
    ids = RandomIds(SeededRandomness(1))
    name = rules.generated_name("web-", ids)
    assert name.startswith("web-")
    assert len(name) == 9
    long = rules.generated_name("x" * 100, ids)
    assert len(long) == 63
    assert formats.dns_label_problem(long) is None
    assert rules.generated_name("web-", ids) != name


def test_prefixes() -> None:
    """A prefix may end in a dash, unlike a name."""
    assert formats.prefix_problem("web-", formats.dns_label_problem) is None
    assert formats.prefix_problem("-", formats.dns_label_problem) is not None
    assert formats.prefix_problem("web.", formats.dns_label_problem) is not None


def test_updates() -> None:
    """Name and creation time are immutable, and a terminating object gets no new finalizers."""
    old = {"name": "a", "namespace": "n", "uid": "u", "creationTimestamp": "t", "generation": 2}
    assert rules.metadata_update_problems({**old, "labels": {}}, old) == []
    for name in ("name", "namespace", "uid", "creationTimestamp"):
        found = rules.metadata_update_problems({**old, name: "x"}, old)
        assert [str(each) for each in found] == [
            f'metadata.{name}: Invalid value: "x": field is immutable'
        ]
    assert len(rules.metadata_update_problems({**old, "generation": 1}, old)) == 1
    dying = {**old, "deletionTimestamp": "t", "finalizers": ["a/b", "c/d"]}
    assert rules.metadata_update_problems({**dying, "finalizers": ["a/b"]}, dying) == []
    (cause,) = rules.metadata_update_problems({**dying, "finalizers": ["a/b", "e/f"]}, dying)
    assert str(cause).startswith("metadata.finalizers: Forbidden: no new finalizers can be added")
    assert '"e/f"' in cause.message


def test_missing_resource_version() -> None:
    """The error for an update without a resourceVersion is that of Kubernetes."""
    assert str(rules.resource_version_missing()) == (
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    )
