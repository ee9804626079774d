"""Conversion through the hub between all versions."""

import copy

import pytest

from restow.apimachinery.conversion import SAME_SHAPE, Converter, Object, Spoke, renaming, with_part
from restow.apimachinery.errors import ConversionFailed


def _to_hub(obj: Object) -> Object:
    return {**obj, "new": obj["old"], "old": None}


def _from_hub(obj: Object) -> Object:
    return {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "old": obj["new"]}


OLD = Spoke(_to_hub, _from_hub)
CONVERTER = Converter("Thing", hub="g/v2", spokes={"g/v1": OLD, "g/v1b": OLD, "g/v3": SAME_SHAPE})
THING = {"kind": "Thing", "apiVersion": "g/v1", "old": {"deep": [1]}}


def test_all_pairs_of_versions() -> None:
    """Each version converts to each other one through the hub, without modifying the object."""
    before = copy.deepcopy(THING)
    assert CONVERTER.versions == ("g/v2", "g/v1", "g/v1b", "g/v3")
    hub = CONVERTER.convert(THING, "g/v1", "g/v2")
    assert hub["new"] == {"deep": [1]}
    assert hub["apiVersion"] == "g/v2"
    assert CONVERTER.convert(THING, "g/v1", "g/v3") == {**hub, "apiVersion": "g/v3"}
    assert CONVERTER.convert(hub, "g/v2", "g/v1") == THING
    assert before == THING


def test_same_version() -> None:
    """An object that already has the version is returned itself."""
    assert CONVERTER.convert(THING, "g/v1", "g/v1") is THING


def test_versions_of_one_shape() -> None:
    """Versions with the same functions differ only in `apiVersion`; the key order is kept."""
    assert CONVERTER.keeps_shape("g/v1", "g/v1b")
    assert CONVERTER.keeps_shape("g/v2", "g/v3")
    assert not CONVERTER.keeps_shape("g/v1", "g/v2")
    assert list(CONVERTER.convert(THING, "g/v1", "g/v1b")) == list(THING)
    converter = renaming("Thing", ["g/v1", "g/v2"])
    assert converter.convert(THING, "g/v1", "g/v2") == {**THING, "apiVersion": "g/v2"}


@pytest.mark.parametrize(("from_version", "to_version"), [("g/v9", "g/v1"), ("g/v9", "g/v9")])
def test_unknown_version(from_version: str, to_version: str) -> None:
    """The error for an unknown version lists the existing ones."""
    with pytest.raises(ConversionFailed, match="no version g/v9; it has g/v2, g/v1"):
        CONVERTER.convert(THING, from_version, to_version)


def test_bad_data() -> None:
    """Data that are invalid in their version raise an error."""
    with pytest.raises(ConversionFailed, match="Thing cannot be converted from g/v1 to g/v2"):
        CONVERTER.convert({"kind": "Thing"}, "g/v1", "g/v2")


def test_parts() -> None:
    """Removing a part does not modify the original object."""
    obj = {"a": 1, "b": 2}
    assert with_part(obj, "a", None) == {"b": 2}
    assert with_part(obj, "a", 3) == {"a": 3, "b": 2}
    assert obj == {"a": 1, "b": 2}
