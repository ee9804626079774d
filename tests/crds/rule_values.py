"""Values of single fields with a CEL rule: valid ones, and invalid ones with their causes.

The field that has the schema is `spec.a`. `no` has the expected part of the message, the reason,
and the path inside the field.
"""

from __future__ import annotations

from typing import Final

from tests.crds.building import Json, Verdict, no, yes

Row = tuple[Json, list[Verdict]]

RULES: Final[dict[str, Row]] = {
    "bool": (
        {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 2"}]},
        [no(1, "failed rule: self > 2"), yes(3)],
    ),
    "msg": (
        {
            "type": "integer",
            "x-kubernetes-validations": [{"rule": "self > 2", "message": "too small"}],
        },
        [no(1, "too small")],
    ),
    "msgexprempty": (
        {
            "type": "string",
            "maxLength": 9,
            "x-kubernetes-validations": [
                {"rule": 'self == "a"', "message": "static", "messageExpression": "'  '"}
            ],
        },
        [no("b", "static")],
    ),
    "msgexprnl": (
        {
            "type": "string",
            "maxLength": 9,
            "x-kubernetes-validations": [
                {"rule": 'self == "a"', "message": "static", "messageExpression": "'x\\ny'"}
            ],
        },
        [no("b", "static")],
    ),
    "msgexprerr": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "x-kubernetes-validations": [
                {"rule": "self.a > 1", "messageExpression": "string(self.a / self.b)"}
            ],
        },
        [no({"a": 1, "b": 0}, "self.a > 1")],
    ),
    "missing": (
        {
            "type": "object",
            "properties": {"a": {"type": "string", "maxLength": 9}},
            "x-kubernetes-validations": [{"rule": "self.a == 'x'"}],
        },
        [no({}, "no such key: a"), no({"a": "y"}, "self.a == 'x'")],
    ),
    "has": (
        {
            "type": "object",
            "properties": {"a": {"type": "string", "maxLength": 9}},
            "x-kubernetes-validations": [{"rule": "has(self.a)"}],
        },
        [no({}, "has(self.a)")],
    ),
    "div": (
        {"type": "integer", "x-kubernetes-validations": [{"rule": "10 / self > 1"}]},
        [no(0, "division by zero"), no(20, "failed rule: 10 / self > 1")],
    ),
    "reasonreq": (
        {
            "type": "object",
            "properties": {"a": {"type": "string", "maxLength": 3}},
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.a)",
                    "message": "need a",
                    "reason": "FieldValueRequired",
                    "fieldPath": ".a",
                }
            ],
        },
        [no({}, "Required value: need a", reason="FieldValueRequired", at=".a")],
    ),
    "reasondup": (
        {
            "type": "string",
            "maxLength": 9,
            "x-kubernetes-validations": [
                {"rule": 'self != "x"', "message": "dup", "reason": "FieldValueDuplicate"}
            ],
        },
        [no("x", 'Duplicate value: "x"', reason="FieldValueDuplicate")],
    ),
    "reasonforb": (
        {
            "type": "string",
            "maxLength": 9,
            "x-kubernetes-validations": [
                {"rule": 'self != "x"', "message": "no", "reason": "FieldValueForbidden"}
            ],
        },
        [no("x", "Forbidden: no", reason="FieldValueForbidden")],
    ),
    "fpath": (
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "object",
                    "properties": {
                        "b-c": {
                            "type": "object",
                            "additionalProperties": {"type": "integer"},
                            "maxProperties": 3,
                        }
                    },
                }
            },
            "x-kubernetes-validations": [
                {"rule": "false", "message": "f", "fieldPath": ".a['b-c']['k.l']"}
            ],
        },
        [no({"a": {"b-c": {"k.l": 1}}}, "Invalid value: f", at=".a.b-c[k.l]")],
    ),
    "esc": (
        {
            "type": "object",
            "properties": {
                "a-b": {"type": "integer"},
                "namespace": {"type": "integer"},
                "x.y": {"type": "integer"},
                "__z": {"type": "integer"},
            },
            "x-kubernetes-validations": [
                {
                    "rule": (
                        "self.a__dash__b > 1 && self.__namespace__ > 1 "
                        "&& self.x__dot__y > 1 && self.__underscores__z > 1"
                    ),
                }
            ],
        },
        [
            no(
                {"a-b": 1, "namespace": 2, "x.y": 2, "__z": 2},
                "self.a__dash__b > 1 && self.__namespace__ > 1 && self.x__dot__y > 1 &&",
            ),
            yes({"a-b": 2, "namespace": 2, "x.y": 2, "__z": 2}),
        ],
    ),
    "setcmp": (
        {
            "type": "array",
            "items": {"type": "string", "maxLength": 5},
            "maxItems": 4,
            "x-kubernetes-list-type": "set",
            "x-kubernetes-validations": [{"rule": "self == ['b','a']"}],
        },
        [yes(["a", "b"]), no(["a"], "self == ['b','a']")],
    ),
    "iosrule": (
        {
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [{"rule": "type(self) == int ? self > 1 : self == 'x'"}],
        },
        [
            no(1, "failed rule: type(self) == int ? self > 1 : self == 'x'"),
            yes(2),
            yes("x"),
            no("y", "failed rule: type(self) == int ? self > 1 : self == 'x'"),
        ],
    ),
    "date": (
        {
            "type": "string",
            "format": "date-time",
            "maxLength": 40,
            "x-kubernetes-validations": [{"rule": "self > timestamp('2020-01-01T00:00:00Z')"}],
        },
        [
            no("2019-01-01T00:00:00Z", "failed rule: self > timestamp('2020-01-01T00:00:00Z')"),
            yes("2021-01-01T00:00:00Z"),
        ],
    ),
    "dur": (
        {
            "type": "string",
            "format": "duration",
            "maxLength": 40,
            "x-kubernetes-validations": [{"rule": "self < duration('1h')"}],
        },
        [no("2h", "failed rule: self < duration('1h')"), yes("1m")],
    ),
    "bytes": (
        {
            "type": "string",
            "format": "byte",
            "maxLength": 40,
            "x-kubernetes-validations": [{"rule": "self == b'abc'"}],
        },
        [yes("YWJj"), no("YQ==", "failed rule: self == b'abc'")],
    ),
    "quantity": (
        {
            "type": "string",
            "maxLength": 40,
            "x-kubernetes-validations": [
                {"rule": "isQuantity(self) && quantity(self).isGreaterThan(quantity('1Ki'))"}
            ],
        },
        [
            yes("1Mi"),
            no("1", "failed rule: isQuantity(self) && quantity(self).isGreaterThan(quantity"),
            no("x", "failed rule: isQuantity(self) && quantity(self).isGreaterThan(quantity"),
        ],
    ),
    "url": (
        {
            "type": "string",
            "maxLength": 40,
            "x-kubernetes-validations": [{"rule": "isURL(self) && url(self).getHost() == 'a.b'"}],
        },
        [yes("https://a.b/c"), no("x", "failed rule: isURL(self) && url(self).getHost() == 'a.b'")],
    ),
    "ip": (
        {
            "type": "string",
            "maxLength": 40,
            "x-kubernetes-validations": [{"rule": "isIP(self) && ip(self).family() == 4"}],
        },
        [
            yes("1.2.3.4"),
            no("::1", "failed rule: isIP(self) && ip(self).family() == 4"),
            no("x", "failed rule: isIP(self) && ip(self).family() == 4"),
        ],
    ),
    "cidr": (
        {
            "type": "string",
            "maxLength": 40,
            "x-kubernetes-validations": [
                {"rule": "isCIDR(self) && cidr(self).containsIP('10.0.0.1')"}
            ],
        },
        [
            yes("10.0.0.0/8"),
            no("11.0.0.0/8", "failed rule: isCIDR(self) && cidr(self).containsIP('10.0.0.1')"),
        ],
    ),
    "regex": (
        {
            "type": "string",
            "maxLength": 40,
            "x-kubernetes-validations": [
                {"rule": "self.find('[0-9]+') == '12' && self.findAll('[a-z]').size() == 2"}
            ],
        },
        [
            yes("a12b"),
            no("a1", "failed rule: self.find('[0-9]+') == '12' && self.findAll('[a-z]').size"),
        ],
    ),
    "lists": (
        {
            "type": "array",
            "items": {"type": "integer"},
            "maxItems": 5,
            "x-kubernetes-validations": [
                {
                    "rule": (
                        "self.isSorted() && self.sum() > 3 "
                        "&& self.max() < 10 && self.indexOf(2) >= 0"
                    ),
                }
            ],
        },
        [
            yes([1, 2, 3]),
            no([3, 2], "self.isSorted() && self.sum() > 3 && self.max() < 10 && self.indexOf(2"),
            no(
                [1, 2, 30], "self.isSorted() && self.sum() > 3 && self.max() < 10 && self.indexOf(2"
            ),
        ],
    ),
    "fmtname": (
        {
            "type": "string",
            "maxLength": 40,
            "x-kubernetes-validations": [
                {"rule": "!format.named('dns1123Label').value().validate(self).hasValue()"}
            ],
        },
        [
            yes("a"),
            no("A", "failed rule: !format.named('dns1123Label').value().validate(self).hasV"),
        ],
    ),
    "semver": (
        {
            "type": "string",
            "maxLength": 40,
            "x-kubernetes-validations": [
                {"rule": "isSemver(self) && semver(self).isLessThan(semver('2.0.0'))"}
            ],
        },
        [
            yes("1.2.3"),
            no("3.0.0", "failed rule: isSemver(self) && semver(self).isLessThan(semver('2.0.0')"),
            no("x", "failed rule: isSemver(self) && semver(self).isLessThan(semver('2.0.0')"),
        ],
    ),
    "optional": (
        {
            "type": "object",
            "properties": {
                "a": {"type": "object", "properties": {"b": {"type": "string", "maxLength": 5}}}
            },
            "x-kubernetes-validations": [{"rule": "self.?a.?b.orValue('none') != 'none'"}],
        },
        [no({}, "self.?a.?b.orValue('none') != 'none'"), yes({"a": {"b": "x"}})],
    ),
    "exists1": (
        {
            "type": "array",
            "items": {"type": "integer"},
            "maxItems": 5,
            "x-kubernetes-validations": [{"rule": "self.exists_one(x, x == 1)"}],
        },
        [no([1, 1], "self.exists_one(x, x == 1)"), yes([1, 2])],
    ),
    "mapiter": (
        {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "maxProperties": 5,
            "x-kubernetes-validations": [{"rule": "self.all(k, self[k] > 1)"}],
        },
        [no({"a": 1}, "self.all(k, self[k] > 1)"), yes({"a": 2})],
    ),
    "twovar": (
        {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "maxProperties": 5,
            "x-kubernetes-validations": [{"rule": "self.all(k, v, v > 1)"}],
        },
        [no({"a": 1}, "self.all(k, v, v > 1)"), yes({"a": 2})],
    ),
    "anyself": (
        {
            "type": "object",
            "properties": {"a": {"type": "string", "maxLength": 4}},
            "x-kubernetes-preserve-unknown-fields": True,
            "x-kubernetes-validations": [{"rule": "has(self.a)"}],
        },
        [no({"b": 1}, "has(self.a)"), yes({"a": "x", "b": 1})],
    ),
    "intdbl": (
        {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1.5"}]},
        [no(1, "failed rule: self > 1.5"), yes(2)],
    ),
    "transcount": (
        {
            "type": "integer",
            "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "no shrinking"}],
        },
        [yes(5), yes(6), yes(4)],
    ),
    "optold": (
        {
            "type": "integer",
            "x-kubernetes-validations": [
                {
                    "rule": "oldSelf.hasValue() || self < 10",
                    "message": "new must be small",
                    "optionalOldSelf": True,
                }
            ],
        },
        [no(20, "new must be small"), yes(5)],
    ),
    "embname": (
        {
            "type": "object",
            "properties": {"spec": {"type": "object"}},
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-validations": [
                {"rule": "self.metadata.name == 'ok' && self.kind == 'A'"}
            ],
        },
        [
            yes({"apiVersion": "v1", "kind": "A", "metadata": {"name": "ok"}}),
            no(
                {"apiVersion": "v1", "kind": "A", "metadata": {"name": "no"}},
                "self.metadata.name == 'ok' && self.kind == 'A'",
            ),
        ],
    ),
    "strconv": (
        {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "int(self) > 3"}]},
        [
            yes("5"),
            no("x", "type conversion error from 'string' to 'int'"),
            no("2", "failed rule: int(self) > 3"),
        ],
    ),
}
