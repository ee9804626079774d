"""CustomResourceDefinitions: what is refused and with which words, and what every write sees to."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.kinds.builtin import find_kind
from restow.kinds.defaults import prepare_update
from restow.kinds.defaults.crds import CLEANUP_FINALIZER
from restow.kinds.validation.crd_versions import SELECTABLE_FIELDS_MAX
from tests.unit.kinds.definition_cases import (
    BAD,
    GOOD,
    GROUP,
    KIND,
    Change,
    Object,
    created,
    definition,
    told,
    two,
    updated,
    version,
)

X = "x-kubernetes-"


def established(**spec: Any) -> Object:
    obj = created(definition(**spec))
    obj["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    return obj


@pytest.mark.parametrize(("obj", "expected"), [case[1:] for case in BAD], ids=[c[0] for c in BAD])
def test_bad_definitions_are_refused_in_the_words_that_clients_know(
    obj: Object, expected: list[str]
) -> None:
    """Each mistake has its place and its sentence; names by themselves are judged elsewhere."""
    elsewhere = [each for each in expected if "metadata.name" in each and "RFC 1123" in each]
    assert told(created(obj)) == [each for each in expected if each not in elsewhere]


@pytest.mark.parametrize("obj", [case[1] for case in GOOD], ids=[case[0] for case in GOOD])
def test_good_definitions_are_accepted_and_may_be_written_again(obj: Object) -> None:
    """What breaks no rule passes, now and when it is written once more."""
    new = created(obj)
    assert told(new) == []
    assert told(updated(new, lambda _: None), new) == []


def _drop_first(obj: Object) -> None:
    obj["spec"]["versions"] = [{**obj["spec"]["versions"][1], "storage": True}]


def _put(*path: Any) -> Change:
    *above, last, value = path

    def change(obj: Any) -> None:
        for name in above:
            obj = obj[name]
        obj[last] = value

    return change


_IMMUTABLE: list[tuple[tuple[Any, ...], str, bool]] = [
    (("spec", "group", "x.example.com"), "spec.group", False),
    (("spec", "names", "plural", "others"), "spec.names.plural", False),
    (("spec", "scope", "Cluster"), "spec.scope", True),
    (("spec", "names", "kind", "Other"), "spec.names.kind", True),
]


@pytest.mark.parametrize(("path", "field", "once_established"), _IMMUTABLE)
def test_what_keys_are_made_of_stays(
    path: tuple[Any, ...], field: str, once_established: bool
) -> None:
    """Group and plural never change; scope and kind may until objects can be stored."""
    sentence = f'{field}: Invalid value: "{path[-1]}": field is immutable'
    old = established()
    assert told(updated(old, _put(*path)), old) == [sentence]
    young = created(definition())
    assert (sentence in told(updated(young, _put(*path)), young)) is not once_established


def test_a_version_that_may_be_stored_cannot_go() -> None:
    """Objects in it could not be read any more; once it is off the list, it may go."""
    old = established(versions=two())
    assert told(updated(old, _drop_first), old) == [
        (
            'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was '
            "previously a storage version, and must remain in spec.versions until a storage "
            "migration "
            "ensures no data remains persisted in v1 and removes v1 from status.storedVersions"
        )
    ]
    old["status"]["storedVersions"] = ["v2"]
    assert told(updated(old, _drop_first), old) == []


def _store_second(obj: Object) -> None:
    for each in obj["spec"]["versions"]:
        each["storage"] = each["name"] == "v2"


def test_a_new_storage_version_is_listed_in_the_same_write() -> None:
    """The list grows at its end, and the object that was there before does not change."""
    old = established(versions=two())
    before = copy.deepcopy(old)
    new = updated(old, _store_second)
    assert new["status"]["storedVersions"] == ["v1", "v2"]
    assert told(new, old) == []
    assert old == before


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ([], ["v1"]),
        (["v2"], ["v2", "v1"]),
        (["v1"], ["v1"]),
        (None, ["v1"]),
        ("v1", ["v1"]),
        ([["odd"], 1], [["odd"], 1, "v1"]),
    ],
)
def test_a_status_cannot_lose_the_storage_version(sent: Any, kept: list[Any]) -> None:
    """Whoever writes the status may take out other versions, but not the one that is stored."""
    old = established(versions=two())
    new = copy.deepcopy(old)
    new["status"]["storedVersions"] = sent
    prepare_update(GROUP, KIND, new, old)
    assert new["status"]["storedVersions"] == kept


def test_a_status_lists_only_versions_that_there_are() -> None:
    """One that lists another is refused; what was listed before is no obstacle to a note."""
    old = established(versions=two())
    new = copy.deepcopy(old)
    new["status"]["storedVersions"] = ["v1", "v7"]
    [cause] = told(new, old)
    assert cause.startswith('status.storedVersions[1]: Invalid value: "v7": missing from')
    noted = copy.deepcopy(new)
    noted["status"]["conditions"] = []
    assert told(noted, new) == []


@pytest.mark.parametrize("versions", [None, [], "v1", [1, None, {}], [{"storage": True}]])
def test_odd_versions_do_not_stop_a_write_before_it_is_judged(versions: Any) -> None:
    """What has no sense is left for the answer that says so."""
    obj = definition(versions=versions)
    new = created(obj)
    prepare_update(GROUP, KIND, new, new)
    assert isinstance(new["status"]["storedVersions"], list)


def test_a_definition_begins_with_nothing_accepted_and_its_cleanup() -> None:
    """A client's status is dropped, and no definition is ever without its finalizer."""
    obj = definition()
    obj["metadata"]["finalizers"] = ["example.com/mine"]
    new = created(obj)
    assert new["status"] == {
        "conditions": [],
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": ["v1"],
    }
    assert new["metadata"]["finalizers"] == ["example.com/mine", CLEANUP_FINALIZER]


def test_only_a_definition_that_is_being_deleted_loses_its_finalizer() -> None:
    """A client that replaces a definition without knowing of the finalizer does not remove it."""
    old = established()
    new = copy.deepcopy(old)
    new["metadata"].pop("finalizers")
    prepare_update(GROUP, KIND, new, old)
    assert new["metadata"]["finalizers"] == [CLEANUP_FINALIZER]
    old["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    new["metadata"].pop("finalizers")
    prepare_update(GROUP, KIND, new, old)
    assert "finalizers" not in new["metadata"]


def test_a_status_is_judged_by_its_names_alone() -> None:
    """Where the spec stays as it is, nothing in it is looked at again."""
    old = established()
    old["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "once accepted"}
    new = copy.deepcopy(old)
    new["status"]["acceptedNames"] = {"plural": "Things", "kind": "Thing"}
    assert [each.partition(":")[0] for each in told(new, old)] == ["status.acceptedNames.plural"]


def _with_schema(schema: Object) -> Change:
    return _put("spec", "versions", 0, "schema", {"openAPIV3Schema": schema})


def test_what_a_schema_said_before_it_may_go_on_to_say() -> None:
    """Old mistakes of each kind are forgiven to the definition that has them, and to no other."""
    sets = {"type": "array", f"{X}list-type": "set", "items": {"type": "object"}}
    keys = {
        "type": "array",
        f"{X}list-type": "map",
        f"{X}list-map-keys": ["a"],
        "items": {"type": "object", "properties": {"a": {"type": "string"}}},
    }
    unpruned = {"type": "object", "default": {"unknown": 1}}
    for mistake in (sets, keys, unpruned):
        old = established()
        _with_schema({"type": "object", "properties": {"x": mistake}})(old)
        change = _with_schema({"type": "object", "properties": {"x": mistake, "y": mistake}})
        assert told(updated(old, change), old) == []
        young = established()
        assert told(updated(young, change), young) != []


def test_a_schema_is_judged_again_when_the_status_gets_a_path_of_its_own() -> None:
    """The same schema can be right without a status and wrong with one."""
    schema = {"type": "object", "minProperties": 1}
    old = established(versions=[version(schema={"openAPIV3Schema": schema})])
    assert told(old) == []
    change = _put("spec", "versions", 0, "subresources", {"status": {}})
    assert "fields are allowed at the root" in told(updated(old, change), old)[0]


def test_certificates_are_judged_once_the_kind_is_in_use() -> None:
    """Before, they may still come; what was bad already may stay."""
    config: Object = {"url": "https://x", "caBundle": "Tk9QRQ=="}
    webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
    change = _put("spec", "conversion", {"strategy": "Webhook", "webhook": webhook})
    sentence = (
        'spec.conversion.webhookClientConfig.caBundle: Invalid value: "Tk9QRQ==": unable to load '
        "root certificates: unable to parse bytes as PEM block"
    )
    old = established()
    assert told(updated(old, change), old) == [sentence]
    young = created(definition())
    bad = updated(young, change)
    assert told(bad, young) == []
    bad["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    assert told(updated(bad, _put("spec", "names", "singular", "thingy")), bad) == []


def test_the_same_fields_may_be_selected_in_different_schemas() -> None:
    """Each version has its own schema to look them up in."""
    fields = [{"jsonPath": ".spec.b"}]
    versions = two(selectableFields=fields)
    assert told(created(definition(versions=versions))) == [
        (
            'spec.versions[0].selectableFields[0].jsonPath: Invalid value: ".spec.b": is an '
            "invalid "
            "path: does not refer to a valid field"
        )
    ]
    versions = two(selectableFields=[{"jsonPath": ".spec.a"}])
    assert told(created(definition(versions=versions))) == []


def test_too_many_selectable_fields_may_stay() -> None:
    """The limit came later than some definitions."""
    names = [f"f{index}" for index in range(SELECTABLE_FIELDS_MAX + 1)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    fields = [{"jsonPath": f".{name}"} for name in names]
    old = established(
        versions=[version(schema={"openAPIV3Schema": schema}, selectableFields=fields)]
    )
    assert told(updated(old, _put("spec", "names", "singular", "thingy")), old) == []
    assert told(old) == ["spec.selectableFields: Too many: 9: must have at most 8 items"]


def test_a_schema_that_is_too_deep_is_refused() -> None:
    """Depth has a bound, and beyond it a sentence rather than a stack."""
    schema: Object = {"type": "object"}
    for _ in range(150):
        schema = {"type": "object", "properties": {"a": schema}}
    found = told(created(definition(versions=[version(schema={"openAPIV3Schema": schema})])))
    assert found == [
        (
            'spec.validation.openAPIV3Schema: Invalid value: "": the schema is nested deeper '
            "than 100 "
            "levels"
        )
    ]


def test_the_kind_does_what_it_says() -> None:
    """Nobody who creates a definition is warned that it has no effect."""
    kind = find_kind(GROUP, KIND)
    assert kind is not None
    assert not kind.behaviour_missing


LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
VALUES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "enum": ["a", "b"], "default": "a"},
        {"type": "integer", "minimum": 0, "nullable": True},
        {"type": "array", "items": {"type": "boolean"}},
        {"type": "object", "additionalProperties": {"type": "number"}},
        {f"{X}int-or-string": True},
        {"type": "object", f"{X}preserve-unknown-fields": True},
    ]
)
SCHEMAS = st.recursive(
    VALUES,
    lambda below: st.builds(
        lambda fields: {"type": "object", "properties": fields},
        st.dictionaries(LABELS, below, max_size=3),
    ),
    max_leaves=6,
)


@st.composite
def definitions(draw: st.DrawFn) -> Object:
    """Definitions that keep all rules."""
    names = draw(st.lists(LABELS, min_size=1, max_size=3, unique=True))
    stored = draw(st.sampled_from(names))
    versions = []
    for name in names:
        fields = {"spec": draw(SCHEMAS), "status": {"type": "object"}}
        each: Object = {
            "name": name,
            "served": draw(st.booleans()),
            "storage": name == stored,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}},
        }
        if draw(st.booleans()):
            each["subresources"] = {"status": {}}
        if draw(st.booleans()):
            each["additionalPrinterColumns"] = [
                {"name": "N", "type": "string", "jsonPath": ".metadata.name"}
            ]
        versions.append(each)
    kind = draw(st.from_regex(r"[A-Z][A-Za-z0-9]{0,9}", fullmatch=True))
    plural = draw(LABELS)
    obj = definition(
        plural,
        group=f"{draw(LABELS)}.example.com",
        scope=draw(st.sampled_from(["Cluster", "Namespaced"])),
        versions=versions,
    )
    obj["spec"]["names"] = {
        "plural": plural,
        "kind": kind,
        "shortNames": draw(st.lists(LABELS, max_size=2)),
        "categories": draw(st.lists(LABELS, max_size=2)),
    }
    return obj


@given(definitions())
def test_well_formed_definitions_are_accepted(obj: Object) -> None:
    """Whatever keeps the rules passes, whatever it looks like."""
    new = created(obj)
    assert told(new) == []
    assert told(updated(new, _put("metadata", "labels", {"a": "b"})), new) == []


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 70000) | st.text(max_size=4),
    lambda below: (
        st.lists(below, max_size=2) | st.dictionaries(st.text(max_size=3), below, max_size=2)
    ),
    max_leaves=4,
)


@given(definitions(), st.data())
def test_nothing_that_is_sent_breaks_the_judge(obj: Object, data: st.DataObject) -> None:
    """Any value in any place gives an answer, whether or not types were checked before."""
    part: Any = obj["spec"]
    while True:
        name = data.draw(st.sampled_from(sorted(part)))
        below = part[name]
        if name == "versions" and below and data.draw(st.booleans()):
            below = below[0]
        if not isinstance(below, dict) or not below or data.draw(st.booleans()):
            part[name] = data.draw(ODD)
            break
        part = below
    for cause in told(created(obj)):
        assert cause
