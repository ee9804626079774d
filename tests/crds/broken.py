"""Invalid CRDs, each with one error."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

from tests.crds.building import (
    Json,
    array,
    column,
    definition,
    integer,
    mapping,
    rule,
    struct,
    text,
    version,
)

Change = Callable[[Json], None]


def valid(group: str) -> Json:
    """A CRD without errors."""
    schema = struct({"spec": struct({"name": text(maxLength=10), "size": integer()})})
    return definition(group, "Thing", [version("v1", schema)])


def with_schema(**properties: Any) -> Change:
    """With another schema."""

    def change(made: Json) -> None:
        _schema(made)["properties"] = {"spec": struct(properties)}

    return change


def with_root(schema: Json | None) -> Change:
    def change(made: Json) -> None:
        made["spec"]["versions"] = [version("v1", schema)]

    return change


def with_versions(*versions: Json) -> Change:
    def change(made: Json) -> None:
        made["spec"]["versions"] = list(versions)

    return change


def with_traits(**traits: Any) -> Change:
    def change(made: Json) -> None:
        made["spec"]["versions"][0].update(traits)

    return change


def with_spec(**fields: Any) -> Change:
    def change(made: Json) -> None:
        made["spec"].update(fields)

    return change


def with_names(**names: Any) -> Change:
    def change(made: Json) -> None:
        made["spec"]["names"].update(names)

    return change


def with_name(name: str) -> Change:
    def change(made: Json) -> None:
        made["metadata"]["name"] = name

    return change


def in_group(group: str) -> Change:
    def change(made: Json) -> None:
        made["spec"]["group"] = group
        made["metadata"]["name"] = f"things.{group}"

    return change


def approved(by: str, *, group: str = "things.k8s.io") -> Change:
    """In a group that is reserved for Kubernetes."""

    def change(made: Json) -> None:
        in_group(group)(made)
        made["metadata"]["annotations"] = {"api-approved.kubernetes.io": by}

    return change


def changed(group: str, change: Change) -> Json:
    made = deepcopy(valid(group))
    change(made)
    return made


def _schema(made: Json) -> Json:
    found: Json = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def rules(*found: Json) -> Json:
    return {"x-kubernetes-validations": list(found)}


def nested(depth: int) -> Json:
    """Nested objects."""
    made = text()
    for _ in range(depth):
        made = struct({"a": made})
    return made


PLAIN: Final = struct()
SCALE: Final = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
WEBHOOK: Final = {
    "strategy": "Webhook",
    "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.invalid"}},
}

CHANGES: Final[dict[str, Change]] = {
    # Names, groups and scope.
    "name-is-not-plural-and-group": with_name("things.other.example.org"),
    "no-group": with_spec(group=""),
    "group-in-capitals": in_group("Things.example.org"),
    "group-of-one-word": in_group("things"),
    "protected-group": in_group("things.k8s.io"),
    "protected-group-kubernetes": in_group("kubernetes.io"),
    "group-of-the-server": in_group("apps"),
    "group-of-the-server-with-dots": in_group("rbac.authorization.k8s.io"),
    "protected-group-with-a-bad-approval": approved("by nobody"),
    "no-plural": with_names(plural=""),
    "plural-in-capitals": with_names(plural="Things"),
    "kind-is-the-list": with_names(listKind="Thing"),
    "short-name-in-capitals": with_names(shortNames=["TH"]),
    "category-in-capitals": with_names(categories=["ALL"]),
    "kind-of-two-words": with_names(kind="Thing One"),
    "no-scope": with_spec(scope=""),
    "unknown-scope": with_spec(scope="World"),
    # Versions.
    "no-versions": with_versions(),
    "no-storage-version": with_versions(version("v1", PLAIN, storage=False)),
    "two-storage-versions": with_versions(version("v1", PLAIN), version("v2", PLAIN)),
    "same-version-twice": with_versions(version("v1", PLAIN), version("v1", PLAIN, storage=False)),
    "version-in-capitals": with_versions(version("V1", PLAIN)),
    "warning-without-deprecation": with_traits(deprecationWarning="soon gone"),
    "empty-warning": with_traits(deprecated=True, deprecationWarning=""),
    # Schemas.
    "no-schema": with_root(None),
    "empty-schema": with_root({}),
    "root-is-no-object": with_root(text()),
    "root-is-nullable": with_root(struct(nullable=True)),
    "field-without-type": with_schema(a={"description": "of any type"}),
    "array-without-items": with_schema(a={"type": "array"}),
    "items-as-list": with_schema(a={"type": "array", "items": [text()]}),
    "unknown-type": with_schema(a={"type": "text"}),
    "reference": with_schema(a={"$ref": "#/definitions/a"}),
    "cycle": with_root(struct({"spec": {"$ref": "#"}})),
    "definitions": with_root(struct(definitions={"a": text()})),
    "properties-and-additional": with_schema(a=struct({"b": text()}, additionalProperties=text())),
    "unique-items": with_schema(a=array(text(), uniqueItems=True)),
    "type-in-a-disjunction": with_schema(a=text(anyOf=[text(), integer()])),
    "type-in-a-negation": with_schema(a={"type": "string", "not": {"type": "integer"}}),
    "default-in-a-disjunction": with_schema(a=text(anyOf=[{"default": "b"}])),
    "metadata-restricted": with_root(struct({"metadata": struct({"labels": mapping(text())})})),
    "preserve-is-false": with_schema(a=struct(**{"x-kubernetes-preserve-unknown-fields": False})),
    "embedded-without-fields": with_schema(a=struct(**{"x-kubernetes-embedded-resource": True})),
    "preserve-unknown-fields": with_spec(preserveUnknownFields=True),
    "pattern-does-not-compile": with_schema(a=text(pattern="(")),
    "pattern-looks-behind": with_schema(a=text(pattern="(?<!a)b")),
    "pattern-refers-back": with_schema(a=text(pattern=r"(a)\1")),
    "pattern-repeats-too-often": with_schema(a=text(pattern="(a{1000}){1000}")),
    "default-of-another-type": with_schema(a=integer(default="one")),
    "default-out-of-bounds": with_schema(a=integer(default=0, minimum=1)),
    "default-is-pruned": with_schema(a=struct({"b": text()}, default={"c": "d"})),
    "default-in-metadata": with_root(struct({"metadata": struct({"name": text(default="a")})})),
    # Lists.
    "list-map-without-keys": with_schema(
        a=array(struct({"b": text()}, "b"), **{"x-kubernetes-list-type": "map"})
    ),
    "list-map-of-scalars": with_schema(
        a=array(text(), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]})
    ),
    "list-map-key-unknown": with_schema(
        a=array(
            struct({"b": text()}, "b"),
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["c"]},
        )
    ),
    "list-map-key-optional": with_schema(
        a=array(
            struct({"b": text()}),
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]},
        )
    ),
    "set-of-structs": with_schema(
        a=array(struct({"b": text()}), **{"x-kubernetes-list-type": "set"})
    ),
    "list-type-of-a-struct": with_schema(a=struct(**{"x-kubernetes-list-type": "set"})),
    "list-type-unknown": with_schema(a=array(text(), **{"x-kubernetes-list-type": "bag"})),
    "map-type-unknown": with_schema(a=mapping(text(), **{"x-kubernetes-map-type": "bag"})),
    # Rules.
    "rule-does-not-parse": with_schema(a=text(**rules(rule("self =")))),
    "rule-is-no-condition": with_schema(a=text(maxLength=5, **rules(rule("self + 'a'")))),
    "rule-of-unknown-field": with_schema(a=struct({"b": text()}, **rules(rule("self.c == 'd'")))),
    "rule-is-empty": with_schema(a=text(**rules(rule("")))),
    "rule-message-of-two-lines": with_schema(a=text(maxLength=5, **rules(rule("true", "a\nb")))),
    "rule-message-is-no-string": with_schema(
        a=text(maxLength=5, **rules(rule("self == 'a'", messageExpression="1")))
    ),
    "rule-reason-unknown": with_schema(
        a=text(maxLength=5, **rules(rule("self == 'a'", reason="Whim")))
    ),
    "rule-field-path-unknown": with_schema(
        a=struct({"b": text(maxLength=5)}, **rules(rule("self.b == 'a'", fieldPath=".c")))
    ),
    "rule-too-expensive": with_schema(
        a=array(array(text()), **rules(rule("self.all(x, self.all(y, x == y))")))
    ),
    "rule-looks-back-in-a-list": with_schema(
        a=array(text(maxLength=5, **rules(rule("self == oldSelf"))), maxItems=5)
    ),
    # Columns, selectable fields, subresources.
    "column-without-path": with_traits(additionalPrinterColumns=[column("A", "")]),
    "column-path-is-wrong": with_traits(additionalPrinterColumns=[column("A", "spec.a")]),
    "column-type-unknown": with_traits(additionalPrinterColumns=[column("A", ".spec.a", "text")]),
    "column-format-unknown": with_traits(
        additionalPrinterColumns=[column("A", ".spec.a", format="odd")]
    ),
    "scale-path-without-dot": with_traits(
        subresources={"scale": SCALE | {"specReplicasPath": "spec.replicas"}}
    ),
    "scale-path-elsewhere": with_traits(
        subresources={"scale": SCALE | {"specReplicasPath": ".status.replicas"}}
    ),
    "scale-without-path": with_traits(subresources={"scale": {}}),
    "selectable-twice": with_traits(
        selectableFields=[{"jsonPath": ".spec.name"}, {"jsonPath": ".spec.name"}]
    ),
    "selectable-unknown": with_traits(selectableFields=[{"jsonPath": ".spec.other"}]),
    "selectable-metadata": with_traits(selectableFields=[{"jsonPath": ".metadata.name"}]),
    "selectable-struct": with_traits(selectableFields=[{"jsonPath": ".spec"}]),
    "selectable-too-many": with_traits(
        schema={"openAPIV3Schema": struct({"spec": struct({f"a{n}": text() for n in range(9)})})},
        selectableFields=[{"jsonPath": f".spec.a{n}"} for n in range(9)],
    ),
    # Conversion.
    "conversion-unknown": with_spec(conversion={"strategy": "Guess"}),
    "conversion-without-webhook": with_spec(conversion={"strategy": "Webhook"}),
    "conversion-over-http": with_spec(
        conversion=WEBHOOK
        | {"webhook": WEBHOOK["webhook"] | {"clientConfig": {"url": "http://a.invalid"}}}  # type: ignore[operator]
    ),
    "conversion-with-two-targets": with_spec(
        conversion=WEBHOOK
        | {
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {
                    "url": "https://a.invalid",
                    "service": {"namespace": "a", "name": "b"},
                },
            }
        }
    ),
    "conversion-with-no-known-review": with_spec(
        conversion=WEBHOOK
        | {
            "webhook": {
                "conversionReviewVersions": ["v7"],
                "clientConfig": {"url": "https://a.invalid"},
            }
        }
    ),
    "webhook-without-strategy": with_spec(conversion=WEBHOOK | {"strategy": "None"}),
}

TAKEN: Final[dict[str, Change]] = {
    "kind-with-a-dash": with_names(kind="Thing-One"),
    "additional-properties-false": with_schema(a=struct(additionalProperties=False)),
    "field-only-in-a-disjunction": with_schema(a=struct({}, anyOf=[{"properties": {"b": {}}}])),
    "int-or-string-with-type": with_schema(
        a={"type": "integer", "x-kubernetes-int-or-string": True}
    ),
    "preserve-in-a-string": with_schema(a=text(**{"x-kubernetes-preserve-unknown-fields": True})),
    "scale-path-with-brackets": with_traits(
        subresources={"scale": SCALE | {"specReplicasPath": ".spec.a[0]"}}
    ),
    "approved-group": approved("https://example.org/review", group="approved.k8s.io"),
    "unapproved-group": approved("unapproved, experimental", group="unapproved.k8s.io"),
    "negative-length": with_schema(a=text(maxLength=-1)),
    "odd-field-names": with_schema(**{"a b/c.d": text(), "": text(), "$ref-like": text()}),
    "default-is-null": with_schema(a=text(default=None)),
    "deep": with_schema(a=nested(60)),
    "pattern-that-explodes-elsewhere": with_schema(a=text(pattern="^(a+)+$")),
}
"""CRDs that look invalid, and are valid."""
