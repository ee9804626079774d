"""Schemas as they are published."""

from restow.machinery.structural import published_v2, published_v3, read_schema

X = "x-kubernetes-"

RAW = {
    "type": "object",
    "description": "A thing",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["n", "o"],
            "properties": {
                "n": {"type": "string", "nullable": True},
                "o": {"type": "integer", "minimum": 0, "default": 0},
                "p": {
                    "type": "object",
                    f"{X}preserve-unknown-fields": True,
                    "properties": {"a": {"type": "string"}},
                },
                "q": {
                    f"{X}int-or-string": True,
                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                },
                "e": {
                    "type": "object",
                    f"{X}embedded-resource": True,
                    "properties": {"x": {"type": "string"}},
                },
            },
            "oneOf": [{"required": ["n"]}],
            f"{X}validations": [{"rule": "true", "message": "m"}],
        }
    },
}


def test_version_3_says_everything() -> None:
    """With the object's own fields, and those of embedded objects."""
    written = published_v3(read_schema(RAW))
    spec = written["properties"]["spec"]
    assert written["properties"]["metadata"]["allOf"][0]["$ref"].endswith("meta.v1.ObjectMeta")
    assert spec["oneOf"] == [{"required": ["n"]}]
    assert spec["properties"]["o"] == {"type": "integer", "minimum": 0, "default": 0}
    assert spec["properties"]["q"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert spec[f"{X}validations"] == [{"rule": "true", "message": "m"}]
    assert spec["properties"]["e"]["required"] == ["kind", "apiVersion"]
    assert set(spec["properties"]["e"]["properties"]) == {"x", "apiVersion", "kind", "metadata"}


def test_version_2_leaves_out_what_its_readers_misunderstand() -> None:
    """No junctors, no types of what may be null or open."""
    spec = published_v2(read_schema(RAW))["properties"]["spec"]
    assert "oneOf" not in spec
    assert spec["required"] == ["o"]
    assert spec["properties"]["n"] == {}
    assert spec["properties"]["p"] == {f"{X}preserve-unknown-fields": True}
    assert spec["properties"]["q"] == {f"{X}int-or-string": True}


def test_a_version_without_a_schema_is_any_object() -> None:
    """And so is one that is open at the root, to readers of version 2."""
    assert published_v3(None) == {"type": "object"}
    assert published_v2(read_schema({"type": "object", f"{X}preserve-unknown-fields": True})) == {
        "type": "object"
    }


def test_publishing_does_not_change_what_was_read() -> None:
    """The schema belongs to the definition."""
    before = repr(RAW)
    published_v3(read_schema(RAW))
    published_v2(read_schema(RAW))
    assert repr(RAW) == before
