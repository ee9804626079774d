"""CustomResourceDefinitions: rejected writes with their messages, and changes that every write
makes."""

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
    errors_of,
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
def test_bad_definitions_are_rejected_with_the_messages_of_kubernetes(
    obj: Object, expected: list[str]
) -> None:
    """Each error has its field and message; names are checked elsewhere."""
    elsewhere = [each for each in expected if "metadata.name" in each and "RFC 1123" in each]
    assert errors_of(created(obj)) == [each for each in expected if each not in elsewhere]


@pytest.mark.parametrize("obj", [case[1] for case in GOOD], ids=[case[0] for case in GOOD])
def test_good_definitions_are_accepted_and_may_be_written_again(obj: Object) -> None:
    """A valid CRD passes, at its creation and when it is updated."""
    new = created(obj)
    assert errors_of(new) == []
    assert errors_of(updated(new, lambda _: None), new) == []


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
def test_immutable_fields(path: tuple[Any, ...], field: str, once_established: bool) -> None:
    """Group and plural never change; scope and kind may until objects can be stored."""
    sentence = f'{field}: Invalid value: "{path[-1]}": field is immutable'
    old = established()
    assert errors_of(updated(old, _put(*path)), old) == [sentence]
    young = created(definition())
    assert (sentence in errors_of(updated(young, _put(*path)), young)) is not once_established


def test_a_version_that_may_be_stored_cannot_go() -> None:
    """Objects in it could not be decoded; after it is removed from storedVersions, it may be
    removed."""
    old = established(versions=two())
    assert errors_of(updated(old, _drop_first), old) == [
        (
            'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was '
            "previously a storage version, and must remain in spec.versions until a storage "
            "migration "
            "ensures no data remains persisted in v1 and removes v1 from status.storedVersions"
        )
    ]
    old["status"]["storedVersions"] = ["v2"]
    assert errors_of(updated(old, _drop_first), old) == []


def _store_second(obj: Object) -> None:
    for each in obj["spec"]["versions"]:
        each["storage"] = each["name"] == "v2"


def test_a_new_storage_version_is_listed_in_the_same_write() -> None:
    """The list is extended at its end, and the old object is unchanged."""
    old = established(versions=two())
    before = copy.deepcopy(old)
    new = updated(old, _store_second)
    assert new["status"]["storedVersions"] == ["v1", "v2"]
    assert errors_of(new, old) == []
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
    """An update of the status may remove other versions, but not the storage version."""
    old = established(versions=two())
    new = copy.deepcopy(old)
    new["status"]["storedVersions"] = sent
    prepare_update(GROUP, KIND, new, old)
    assert new["status"]["storedVersions"] == kept


def test_a_status_lists_only_existing_versions() -> None:
    """An unknown version is rejected; an entry that was there before does not block other
    changes."""
    old = established(versions=two())
    new = copy.deepcopy(old)
    new["status"]["storedVersions"] = ["v1", "v7"]
    [cause] = errors_of(new, old)
    assert cause.startswith('status.storedVersions[1]: Invalid value: "v7": missing from')
    noted = copy.deepcopy(new)
    noted["status"]["conditions"] = []
    assert errors_of(noted, new) == []


@pytest.mark.parametrize("versions", [None, [], "v1", [1, None, {}], [{"storage": True}]])
def test_invalid_versions_do_not_fail_before_validation(versions: Any) -> None:
    """Invalid values are left for the validation error."""
    obj = definition(versions=versions)
    new = created(obj)
    prepare_update(GROUP, KIND, new, new)
    assert isinstance(new["status"]["storedVersions"], list)


def test_a_definition_begins_with_nothing_accepted_and_its_cleanup() -> None:
    """The status of a client is dropped, and the finalizer is always added."""
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
    """A client that replaces a CRD without the finalizer does not remove it."""
    old = established()
    new = copy.deepcopy(old)
    new["metadata"].pop("finalizers")
    prepare_update(GROUP, KIND, new, old)
    assert new["metadata"]["finalizers"] == [CLEANUP_FINALIZER]
    old["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    new["metadata"].pop("finalizers")
    prepare_update(GROUP, KIND, new, old)
    assert "finalizers" not in new["metadata"]


def test_a_status_update_validates_names_only() -> None:
    """If the spec is unchanged, it is not validated again."""
    old = established()
    old["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "once accepted"}
    new = copy.deepcopy(old)
    new["status"]["acceptedNames"] = {"plural": "Things", "kind": "Thing"}
    assert [each.partition(":")[0] for each in errors_of(new, old)] == [
        "status.acceptedNames.plural"
    ]


def _with_schema(schema: Object) -> Change:
    return _put("spec", "versions", 0, "schema", {"openAPIV3Schema": schema})


def test_existing_schema_errors_are_tolerated() -> None:
    """Existing errors of each kind are tolerated for the CRD that has them, and for no other."""
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
        assert errors_of(updated(old, change), old) == []
        young = established()
        assert errors_of(updated(young, change), young) != []


def test_a_schema_is_judged_again_when_the_status_gets_a_path_of_its_own() -> None:
    """The same schema can be valid without a status and invalid with one."""
    schema = {"type": "object", "minProperties": 1}
    old = established(versions=[version(schema={"openAPIV3Schema": schema})])
    assert errors_of(old) == []
    change = _put("spec", "versions", 0, "subresources", {"status": {}})
    assert "fields are allowed at the root" in errors_of(updated(old, change), old)[0]


def test_certificates_are_validated_once_the_kind_is_in_use() -> None:
    """Before, they may be added later; existing invalid ones may stay."""
    config: Object = {"url": "https://x", "caBundle": "Tk9QRQ=="}
    webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
    change = _put("spec", "conversion", {"strategy": "Webhook", "webhook": webhook})
    sentence = (
        'spec.conversion.webhookClientConfig.caBundle: Invalid value: "Tk9QRQ==": unable to load '
        "root certificates: unable to parse bytes as PEM block"
    )
    old = established()
    assert errors_of(updated(old, change), old) == [sentence]
    young = created(definition())
    bad = updated(young, change)
    assert errors_of(bad, young) == []
    bad["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    assert errors_of(updated(bad, _put("spec", "names", "singular", "thingy")), bad) == []


def test_the_same_fields_may_be_selected_in_different_schemas() -> None:
    """Each version has its own schema for the lookup."""
    fields = [{"jsonPath": ".spec.b"}]
    versions = two(selectableFields=fields)
    assert errors_of(created(definition(versions=versions))) == [
        (
            'spec.versions[0].selectableFields[0].jsonPath: Invalid value: ".spec.b": is an '
            "invalid "
            "path: does not refer to a valid field"
        )
    ]
    versions = two(selectableFields=[{"jsonPath": ".spec.a"}])
    assert errors_of(created(definition(versions=versions))) == []


def test_too_many_selectable_fields_may_stay() -> None:
    """The limit is newer than some CRDs."""
    names = [f"f{index}" for index in range(SELECTABLE_FIELDS_MAX + 1)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    fields = [{"jsonPath": f".{name}"} for name in names]
    old = established(
        versions=[version(schema={"openAPIV3Schema": schema}, selectableFields=fields)]
    )
    assert errors_of(updated(old, _put("spec", "names", "singular", "thingy")), old) == []
    assert errors_of(old) == ["spec.selectableFields: Too many: 9: must have at most 8 items"]


def test_a_schema_that_is_too_deep_is_refused() -> None:
    """Depth is limited, with an error message instead of a recursion error."""
    schema: Object = {"type": "object"}
    for _ in range(150):
        schema = {"type": "object", "properties": {"a": schema}}
    found = errors_of(created(definition(versions=[version(schema={"openAPIV3Schema": schema})])))
    assert found == [
        (
            'spec.validation.openAPIV3Schema: Invalid value: "": the schema is nested deeper '
            "than 100 "
            "levels"
        )
    ]


def test_the_kind_has_an_effect() -> None:
    """Creating a CRD causes no warning."""
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
    """Generates CRDs that are valid."""
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
    """Any CRD that follows the rules passes."""
    new = created(obj)
    assert errors_of(new) == []
    assert errors_of(updated(new, _put("metadata", "labels", {"a": "b"})), new) == []


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 70000) | st.text(max_size=4),
    lambda below: (
        st.lists(below, max_size=2) | st.dictionaries(st.text(max_size=3), below, max_size=2)
    ),
    max_leaves=4,
)


@given(definitions(), st.data())
def test_no_input_breaks_the_validation(obj: Object, data: st.DataObject) -> None:
    """Any value in any field gives a result, with and without prior type checks."""
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
    for cause in errors_of(created(obj)):
        assert cause
