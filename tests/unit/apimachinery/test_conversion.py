"""Conversion through a hub: the ways between versions, and what is never touched."""

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


def test_every_way() -> None:
    """Each version reaches each other through the hub, and the object itself stays as it was."""
    before = copy.deepcopy(THING)
    assert CONVERTER.versions == ("g/v2", "g/v1", "g/v1b", "g/v3")
    hub = CONVERTER.convert(THING, "g/v1", "g/v2")
    assert hub["new"] == {"deep": [1]}
    assert hub["apiVersion"] == "g/v2"
    assert CONVERTER.convert(THING, "g/v1", "g/v3") == {**hub, "apiVersion": "g/v3"}
    assert CONVERTER.convert(hub, "g/v2", "g/v1") == THING
    assert before == THING


def test_same_version() -> None:
    """An object that is already in the version is given back as it is."""
    assert CONVERTER.convert(THING, "g/v1", "g/v1") is THING


def test_versions_of_one_shape() -> None:
    """Versions that share their functions convert by their name alone, in the same order."""
    assert CONVERTER.keeps_shape("g/v1", "g/v1b")
    assert CONVERTER.keeps_shape("g/v2", "g/v3")
    assert not CONVERTER.keeps_shape("g/v1", "g/v2")
    assert list(CONVERTER.convert(THING, "g/v1", "g/v1b")) == list(THING)
    converter = renaming("Thing", ["g/v1", "g/v2"])
    assert converter.convert(THING, "g/v1", "g/v2") == {**THING, "apiVersion": "g/v2"}


@pytest.mark.parametrize(("from_version", "to_version"), [("g/v9", "g/v1"), ("g/v9", "g/v9")])
def test_unknown_version(from_version: str, to_version: str) -> None:
    """A version that does not exist is told, together with those that do."""
    with pytest.raises(ConversionFailed, match="no version g/v9; it has g/v2, g/v1"):
        CONVERTER.convert(THING, from_version, to_version)


def test_bad_data() -> None:
    """Data that their own version does not allow are told, not passed on."""
    with pytest.raises(ConversionFailed, match="Thing cannot be converted from g/v1 to g/v2"):
        CONVERTER.convert({"kind": "Thing"}, "g/v1", "g/v2")


def test_parts() -> None:
    """Taking a part away leaves the object that it was taken from alone."""
    obj = {"a": 1, "b": 2}
    assert with_part(obj, "a", None) == {"b": 2}
    assert with_part(obj, "a", 3) == {"a": 3, "b": 2}
    assert obj == {"a": 1, "b": 2}
