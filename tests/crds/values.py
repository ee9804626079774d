"""Values of single fields: valid ones, and invalid ones with their causes.

The field that has the schema is `spec.a`. `no` has the expected part of the message, the reason,
and the path inside the field.
"""

from __future__ import annotations

from typing import Final

from tests.crds.building import Json, Verdict, no, yes

Row = tuple[Json, list[Verdict]]

FIELDS: Final[dict[str, Row]] = {
    "min": (
        {"type": "integer", "minimum": 3},
        [no(2, "should be greater than or equal to 3"), yes(3)],
    ),
    "exmin": (
        {"type": "integer", "minimum": 3, "exclusiveMinimum": True},
        [no(3, "should be greater than 3"), yes(4)],
    ),
    "max": ({"type": "integer", "maximum": 3}, [no(4, "should be less than or equal to 3")]),
    "exmax": (
        {"type": "number", "maximum": 3, "exclusiveMaximum": True},
        [no(3, "should be less than 3"), no(3.0, "should be less than 3"), yes(2.5)],
    ),
    "mult": (
        {"type": "number", "multipleOf": 0.5},
        [no(0.3, "should be a multiple of 0.5"), yes(1.5)],
    ),
    "mult2": ({"type": "integer", "multipleOf": 7}, [no(8, "should be a multiple of 7")]),
    "int32": (
        {"type": "integer", "format": "int32"},
        [
            no(
                2147483648,
                "Checked value must be of type integer with format int32 in spec.a",
                at="<nil>",
            ),
            yes(2147483647),
            no(
                -2147483649,
                "Checked value must be of type integer with format int32 in spec.a",
                at="<nil>",
            ),
        ],
    ),
    "num": (
        {"type": "number"},
        [
            yes(1),
            yes(1.0),
            no("1", 'must be of type number: "string"', reason="FieldValueTypeInvalid"),
        ],
    ),
    "minlen": (
        {"type": "string", "minLength": 2},
        [
            no("a", "should be at least 2 chars long"),
            no("é", "should be at least 2 chars long"),
            yes("éé"),
        ],
    ),
    "maxlen": (
        {"type": "string", "maxLength": 2},
        [
            no("abc", "Too long: may not be more than 2 bytes", reason="FieldValueTooLong"),
            yes("éé"),
            no("😀😀😀", "Too long: may not be more than 2 bytes", reason="FieldValueTooLong"),
        ],
    ),
    "pat": (
        {"type": "string", "pattern": "^a.c$"},
        [no("abd", "should match '^a.c$'"), yes("abc")],
    ),
    "patfind": ({"type": "string", "pattern": "b"}, [yes("abc"), no("x", "should match 'b'")]),
    "enum": (
        {"type": "string", "enum": ["a", "b"]},
        [
            no(
                "c",
                'Unsupported value: "c": supported values: "a", "b"',
                reason="FieldValueNotSupported",
            )
        ],
    ),
    "enumint": (
        {"type": "integer", "enum": [1, 2]},
        [
            no(
                3,
                'Unsupported value: 3: supported values: "1", "2"',
                reason="FieldValueNotSupported",
            )
        ],
    ),
    "enumnull": (
        {"type": "string", "enum": ["a", None], "nullable": True},
        [
            no(
                None,
                'Unsupported value: null: supported values: "a", "null"',
                reason="FieldValueNotSupported",
            ),
            no(
                "x",
                'Unsupported value: "x": supported values: "a", "null"',
                reason="FieldValueNotSupported",
            ),
        ],
    ),
    "minit": (
        {"type": "array", "items": {"type": "string"}, "minItems": 2},
        [no(["a"], "should have at least 2 items")],
    ),
    "maxit": (
        {"type": "array", "items": {"type": "string"}, "maxItems": 1},
        [no(["a", "b"], "Too many: 2: must have at most 1 item", reason="FieldValueTooMany")],
    ),
    "minp": (
        {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
        [no({}, "should have at least 1 properties")],
    ),
    "maxp": (
        {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
        [
            no(
                {"a": "b", "c": "d"},
                "Too many: 2: must have at most 1 item",
                reason="FieldValueTooMany",
            )
        ],
    ),
    "mapint": (
        {"type": "object", "additionalProperties": {"type": "integer"}},
        [
            no(
                {"a": "b"},
                'must be of type integer: "string"',
                reason="FieldValueTypeInvalid",
                at=".a",
            ),
            no(
                {"a b": "x", "c": 1},
                'must be of type integer: "string"',
                reason="FieldValueTypeInvalid",
                at=".a b",
            ),
        ],
    ),
    "mapmap": (
        {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        [
            no(
                {"a": {"b": "c"}},
                'must be of type integer: "string"',
                reason="FieldValueTypeInvalid",
                at=".a.b",
            )
        ],
    ),
    "arrarr": (
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        [
            no(
                [[1], ["a"]],
                'must be of type integer: "string"',
                reason="FieldValueTypeInvalid",
                at="[1][0]",
            ),
            no(
                [[1], None],
                'must be of type array: "null"',
                reason="FieldValueTypeInvalid",
                at="[1]",
            ),
        ],
    ),
    "req": (
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "required": ["a", "b"],
        },
        [
            no({}, "Required value", reason="FieldValueRequired", at=".a"),
            no({"a": None, "b": "x"}, "Required value", reason="FieldValueRequired", at=".a"),
            no(
                {"a": 1},
                'must be of type string: "integer"',
                reason="FieldValueTypeInvalid",
                at=".a",
            ),
        ],
    ),
    "null": (
        {"type": "string", "nullable": True},
        [yes(None), no(1, 'must be of type string: "integer"', reason="FieldValueTypeInvalid")],
    ),
    "nonnull": ({"type": "string"}, [yes(None)]),
    "nullobj": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "nullable": True},
        [yes(None)],
    ),
    "nullarr": (
        {"type": "array", "items": {"type": "string", "nullable": True}},
        [yes([None, "a"])],
    ),
    "nonnullarr": (
        {"type": "array", "items": {"type": "string"}},
        [
            no(
                [None, "a"],
                'must be of type string: "null"',
                reason="FieldValueTypeInvalid",
                at="[0]",
            )
        ],
    ),
    "ios": (
        {"x-kubernetes-int-or-string": True},
        [
            yes(1),
            yes("a"),
            no(True, 'must be of type integer,string: "boolean"', reason="FieldValueTypeInvalid"),
            no(1.5, 'must be of type integer,string: "number"', reason="FieldValueTypeInvalid"),
            yes(None),
            no({}, 'must be of type integer,string: "object"', reason="FieldValueTypeInvalid"),
            no([], 'must be of type integer,string: "array"', reason="FieldValueTypeInvalid"),
        ],
    ),
    "iosany": (
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^[0-9]+%?$",
        },
        [yes(5), yes("5%"), no("x", "should match '^[0-9]+%?$'")],
    ),
    "anyof": (
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        [no({}, "Required value", reason="FieldValueRequired", at=".a"), yes({"a": "x"})],
    ),
    "oneof": (
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        [
            no({}, "Required value", reason="FieldValueRequired", at=".a"),
            no(
                {"a": "x", "b": "y"},
                '"spec.a" must validate one and only one schema (oneOf). Found 2 valid ',
                at="<nil>",
            ),
            yes({"b": "y"}),
        ],
    ),
    "allof": (
        {"type": "string", "allOf": [{"minLength": 3}, {"pattern": "^a"}]},
        [no("b", "should be at least 3 chars long"), yes("abc")],
    ),
    "not": (
        {"type": "string", "not": {"enum": ["bad"]}},
        [no("bad", '"spec.a" must not validate the schema (not)', at="<nil>"), yes("good")],
    ),
    "anyofval": (
        {"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 2}]},
        [no(5, "should be greater than or equal to 10"), yes(1)],
    ),
    "set": (
        {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        [
            no(["a", "a"], 'Duplicate value: "a"', reason="FieldValueDuplicate", at="[1]"),
            no(
                ["a", "b", "b", "a"], 'Duplicate value: "b"', reason="FieldValueDuplicate", at="[2]"
            ),
        ],
    ),
    "lm": (
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "k": {"type": "string"},
                    "n": {"type": "integer", "default": 1},
                    "v": {"type": "string"},
                },
                "required": ["k"],
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k", "n"],
        },
        [
            no(
                [{"k": "a"}, {"k": "a", "n": 1}],
                'Duplicate value: {"k":"a","n":1}',
                reason="FieldValueDuplicate",
                at="[1]",
            ),
            yes([{"k": "a"}, {"k": "a", "n": 2}]),
            no([{"v": "x"}], "Required value", reason="FieldValueRequired", at="[0].k"),
        ],
    ),
    "atomicset": (
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "x-kubernetes-map-type": "atomic",
            },
            "x-kubernetes-list-type": "set",
        },
        [
            no(
                [{"a": "b"}, {"a": "b"}],
                'Duplicate value: {"a":"b"}',
                reason="FieldValueDuplicate",
                at="[1]",
            )
        ],
    ),
    "any": (
        {"x-kubernetes-preserve-unknown-fields": True},
        [yes(1), yes("a"), yes(None), yes([None]), yes({"a": None})],
    ),
    "anyobj": (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        [
            no(1, 'must be of type object: "integer"', reason="FieldValueTypeInvalid"),
            yes({"a": {"b": None}}),
        ],
    ),
    "apf": (
        {"type": "object", "additionalProperties": False},
        [no({"a": 1}, "is a forbidden property"), yes({})],
    ),
    "apt": ({"type": "object", "additionalProperties": True}, [yes({"a": {"b": 1}})]),
    "fmt-date": (
        {"type": "string", "format": "date"},
        [
            yes("2020-01-01"),
            no("2020-13-01", 'must be of type date: "2020-13-01"', reason="FieldValueTypeInvalid"),
            no("x", 'must be of type date: "x"', reason="FieldValueTypeInvalid"),
        ],
    ),
    "fmt-date-time": (
        {"type": "string", "format": "date-time"},
        [
            yes("2020-01-01T00:00:00Z"),
            no(
                "2020-01-01",
                'must be of type date-time: "2020-01-01"',
                reason="FieldValueTypeInvalid",
            ),
            no(
                "2020-01-01 00:00:00Z",
                'must be of type date-time: "2020-01-01 00:00:00Z"',
                reason="FieldValueTypeInvalid",
            ),
            yes("2020-01-01T00:00:00.123+02:00"),
            no(
                "2020-01-01T25:00:00Z",
                'must be of type date-time: "2020-01-01T25:00:00Z"',
                reason="FieldValueTypeInvalid",
            ),
        ],
    ),
    "fmt-duration": (
        {"type": "string", "format": "duration"},
        [
            yes("1h"),
            yes("1.5h"),
            yes("P1D"),
            no("3", 'must be of type duration: "3"', reason="FieldValueTypeInvalid"),
            yes("1 h"),
            yes("2 days"),
            yes("22 ns"),
            yes("-1h"),
        ],
    ),
    "fmt-email": (
        {"type": "string", "format": "email"},
        [
            yes("a@b.c"),
            no("a", 'must be of type email: "a"', reason="FieldValueTypeInvalid"),
            yes("A <a@b.c>"),
        ],
    ),
    "fmt-hostname": (
        {"type": "string", "format": "hostname"},
        [
            no("a.b", 'must be of type hostname: "a.b"', reason="FieldValueTypeInvalid"),
            no("-a", 'must be of type hostname: "-a"', reason="FieldValueTypeInvalid"),
            no("a_b", 'must be of type hostname: "a_b"', reason="FieldValueTypeInvalid"),
            no("A.B", 'must be of type hostname: "A.B"', reason="FieldValueTypeInvalid"),
            no("a..b", 'must be of type hostname: "a..b"', reason="FieldValueTypeInvalid"),
        ],
    ),
    "fmt-ipv4": (
        {"type": "string", "format": "ipv4"},
        [
            yes("1.2.3.4"),
            no("1.2.3", 'must be of type ipv4: "1.2.3"', reason="FieldValueTypeInvalid"),
            yes("01.2.3.4"),
            no("::1", 'must be of type ipv4: "::1"', reason="FieldValueTypeInvalid"),
        ],
    ),
    "fmt-ipv6": (
        {"type": "string", "format": "ipv6"},
        [
            yes("::1"),
            no("1.2.3.4", 'must be of type ipv6: "1.2.3.4"', reason="FieldValueTypeInvalid"),
            no("::g", 'must be of type ipv6: "::g"', reason="FieldValueTypeInvalid"),
            yes("::ffff:1.2.3.4"),
        ],
    ),
    "fmt-cidr": (
        {"type": "string", "format": "cidr"},
        [
            yes("1.2.3.0/24"),
            no("1.2.3.4", 'must be of type cidr: "1.2.3.4"', reason="FieldValueTypeInvalid"),
            no("1.2.3.4/33", 'must be of type cidr: "1.2.3.4/33"', reason="FieldValueTypeInvalid"),
        ],
    ),
    "fmt-mac": (
        {"type": "string", "format": "mac"},
        [
            yes("00:11:22:33:44:55"),
            no("x", 'must be of type mac: "x"', reason="FieldValueTypeInvalid"),
            yes("0011.2233.4455"),
        ],
    ),
    "fmt-uri": (
        {"type": "string", "format": "uri"},
        [
            yes("http://a"),
            no("a", 'must be of type uri: "a"', reason="FieldValueTypeInvalid"),
            no("a b", 'must be of type uri: "a b"', reason="FieldValueTypeInvalid"),
            yes("/x"),
            no("", 'must be of type uri: ""', reason="FieldValueTypeInvalid"),
        ],
    ),
    "fmt-uuid": (
        {"type": "string", "format": "uuid"},
        [
            yes("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
            no("x", 'must be of type uuid: "x"', reason="FieldValueTypeInvalid"),
            yes("6BA7B8109DAD11D180B400C04FD430C8"),
        ],
    ),
    "fmt-uuid4": (
        {"type": "string", "format": "uuid4"},
        [
            no(
                "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
                'must be of type uuid4: "6ba7b810-9dad-11d1-80b4-00c04fd430c8"',
                reason="FieldValueTypeInvalid",
            ),
            yes("6ba7b810-9dad-41d1-80b4-00c04fd430c8"),
        ],
    ),
    "fmt-byte": (
        {"type": "string", "format": "byte"},
        [
            yes("YQ=="),
            no("YQ", 'must be of type byte: "YQ"', reason="FieldValueTypeInvalid"),
            no("a", 'must be of type byte: "a"', reason="FieldValueTypeInvalid"),
            no("é", 'must be of type byte: "é"', reason="FieldValueTypeInvalid"),
            no("", 'must be of type byte: ""', reason="FieldValueTypeInvalid"),
        ],
    ),
    "fmt-password": ({"type": "string", "format": "password"}, [yes("x")]),
    "fmt-bsonobjectid": (
        {"type": "string", "format": "bsonobjectid"},
        [
            no("x", 'must be of type bsonobjectid: "x"', reason="FieldValueTypeInvalid"),
            yes("507f1f77bcf86cd799439011"),
        ],
    ),
    "fmt-isbn": (
        {"type": "string", "format": "isbn"},
        [
            no("x", 'must be of type isbn: "x"', reason="FieldValueTypeInvalid"),
            yes("9783161484100"),
            yes("978-3-16-148410-0"),
        ],
    ),
    "fmt-isbn10": (
        {"type": "string", "format": "isbn10"},
        [no("3161484100", 'must be of type isbn10: "3161484100"', reason="FieldValueTypeInvalid")],
    ),
    "fmt-creditcard": (
        {"type": "string", "format": "creditcard"},
        [
            yes("4111111111111111"),
            no("1", 'must be of type creditcard: "1"', reason="FieldValueTypeInvalid"),
        ],
    ),
    "fmt-ssn": (
        {"type": "string", "format": "ssn"},
        [
            yes("111-11-1111"),
            yes("111 11 1111"),
            no("x", 'must be of type ssn: "x"', reason="FieldValueTypeInvalid"),
        ],
    ),
    "fmt-hexcolor": (
        {"type": "string", "format": "hexcolor"},
        [
            yes("#fff"),
            yes("fff"),
            no("#ggg", 'must be of type hexcolor: "#ggg"', reason="FieldValueTypeInvalid"),
        ],
    ),
    "fmt-rgbcolor": (
        {"type": "string", "format": "rgbcolor"},
        [
            yes("rgb(1,2,3)"),
            no(
                "rgb(1,2,300)",
                'must be of type rgbcolor: "rgb(1,2,300)"',
                reason="FieldValueTypeInvalid",
            ),
        ],
    ),
    "fmt-k8s-short-name": (
        {"type": "string", "format": "k8s-short-name"},
        [
            yes("a-b"),
            no("A", 'must be of type k8s-short-name: "A"', reason="FieldValueTypeInvalid"),
            no("a.b", 'must be of type k8s-short-name: "a.b"', reason="FieldValueTypeInvalid"),
        ],
    ),
    "fmt-k8s-long-name": (
        {"type": "string", "format": "k8s-long-name"},
        [
            yes("a.b"),
            no("A", 'must be of type k8s-long-name: "A"', reason="FieldValueTypeInvalid"),
            no("a..b", 'must be of type k8s-long-name: "a..b"', reason="FieldValueTypeInvalid"),
        ],
    ),
}
