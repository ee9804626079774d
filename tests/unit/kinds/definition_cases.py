"""CRDs for tests: a valid one, and invalid ones with the expected errors.

Not here: any test.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from restow.kinds.defaults import apply_defaults, prepare_create, prepare_update
from restow.kinds.validation import validate

Object = dict[str, Any]
Change = Callable[[Object], None]

GROUP, KIND = "apiextensions.k8s.io", "CustomResourceDefinition"
LABEL_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
DOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
FORM = "; desired format: https://host[/path]"


def version(name: str = "v1", *, storage: bool = True, **members: Any) -> Object:
    """Returns a version with a small schema."""
    fields = {"a": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        **members,
    }


def definition(plural: str = "things", group: str = "cases.example.com", **spec: Any) -> Object:
    """Returns a valid CRD, as a client sends it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": KIND,
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Thing"},
            "versions": [version()],
            **spec,
        },
    }


def two(**members: Any) -> list[Object]:
    """Returns two versions with different schemas."""
    second = version("v2", storage=False, **members)
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["b"] = {
        "type": "string"
    }
    return [version(**members), second]


def created(sent: Object) -> Object:
    """Returns a CRD as the server creates it."""
    obj = copy.deepcopy(sent)
    apply_defaults(GROUP, "v1", KIND, obj)
    prepare_create(GROUP, KIND, obj)
    return obj


def updated(old: Object, change: Change) -> Object:
    """Returns a CRD as the server updates it."""
    obj = copy.deepcopy(old)
    change(obj)
    apply_defaults(GROUP, "v1", KIND, obj)
    obj["status"] = old["status"]
    prepare_update(GROUP, KIND, obj, old)
    return obj


def errors_of(new: Object, old: Object | None = None) -> list[str]:
    """Returns the validation errors of a CRD."""
    return [f"{each.field}: {each.message}" for each in validate(GROUP, KIND, new, old)]


def _names(**names: Any) -> Object:
    return definition(names={"plural": "things", "kind": "Thing", **names})


def _one(**members: Any) -> Object:
    return definition(versions=[version(**members)])


def _webhook(config: Any = None, **members: Any) -> Object:
    webhook: Object = {"conversionReviewVersions": ["v1"], **members}
    if config is not None:
        webhook["clientConfig"] = config
    return definition(conversion={"strategy": "Webhook", "webhook": webhook})


def _service(**members: Any) -> Object:
    return _webhook({"service": {"name": "n", "namespace": "ns", **members}})


def _annotated(text: str | None) -> Object:
    obj = definition(group="cases.k8s.io")
    if text is not None:
        obj["metadata"]["annotations"] = {"api-approved.kubernetes.io": text}
    return obj


def _named(name: str) -> Object:
    obj = definition()
    obj["metadata"]["name"] = name
    return obj


def _schema(schema: Any) -> Object:
    return _one(schema={"openAPIV3Schema": schema})


def _selecting(*paths: str) -> Object:
    return _one(selectableFields=[{"jsonPath": path} for path in paths])


def _column(**members: Any) -> Object:
    column = {"name": "A", "type": "string", "jsonPath": ".spec.a", **members}
    return _one(additionalPrinterColumns=[column])


def _scale(**members: Any) -> Object:
    paths = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", **members}
    return _one(subresources={"scale": paths})


def _many_fields() -> Object:
    names = [f"f{index}" for index in range(9)]
    fields = {name: {"type": "string"} for name in names}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    return _one(
        schema={"openAPIV3Schema": schema},
        selectableFields=[{"jsonPath": f".spec.{name}"} for name in names],
    )


NOT_STORED = "status.storedVersions: Invalid value: null: must have at least one stored version"
ONE_STORAGE = "must have exactly one version marked as storage version"
_ABOUT = 'protected groups must have approval annotation "api-approved.kubernetes.io"'
_SEE = "see https://github.com/kubernetes/enhancements/pull/1111"
_PLAIN_FIELD = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings with "
    "formats are allowed."
)
_CONFIG = "spec.conversion.webhookClientConfig"
_REVIEWS = "spec.conversion.conversionReviewVersions"
_OTHER = "should not be set when strategy is not set to Webhook"
_COLUMNS = "spec.additionalPrinterColumns[0]"
_FIELDS = "spec.selectableFields[0].jsonPath"

# What a client sends, and all errors of it, in order.
BAD: list[tuple[str, Object, list[str]]] = [
    (
        "group without a dot",
        definition(group="cases"),
        ['spec.group: Invalid value: "cases": should be a domain with at least one dot'],
    ),
    (
        "no domain",
        definition(group="Cases.example.com"),
        [
            f'metadata.name: Invalid value: "things.Cases.example.com": {DOMAIN_RULE}',
            f'spec.group: Invalid value: "Cases.example.com": {DOMAIN_RULE}',
        ],
    ),
    (
        "no group",
        {**definition(group=""), "metadata": {"name": "things.x"}},
        [
            'metadata.name: Invalid value: "things.x": must be spec.names.plural+"."+spec.group',
            "spec.group: Required value",
        ],
    ),
    (
        "another name",
        _named("other.cases.example.com"),
        [
            (
                'metadata.name: Invalid value: "other.cases.example.com": must be '
                'spec.names.plural+"."+spec.group'
            )
        ],
    ),
    (
        "unknown scope",
        definition(scope="Galaxy"),
        [
            'spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"',
        ],
    ),
    ("no scope", definition(scope=""), ["spec.scope: Required value"]),
    (
        "no names",
        {**definition(names={}), "metadata": {"name": "x.cases.example.com"}},
        [
            (
                'metadata.name: Invalid value: "x.cases.example.com": must be '
                'spec.names.plural+"."+spec.group'
            ),
            "spec.names.plural: Required value",
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
        ],
    ),
    (
        "bad singular",
        _names(singular="Thing"),
        [f'spec.names.singular: Invalid value: "Thing": {LABEL_RULE}'],
    ),
    (
        "bad kind",
        _names(kind="Thing_", singular="thing", listKind="ThingList"),
        [
            (
                'spec.names.kind: Invalid value: "Thing_": may have mixed case, but should '
                "otherwise "
                f"match: {LABEL_RULE}"
            )
        ],
    ),
    (
        "kind is list kind",
        _names(listKind="Thing"),
        [
            'spec.names.listKind: Invalid value: "Thing": kind and listKind may not be the same',
        ],
    ),
    (
        "bad short name",
        _names(shortNames=["ok", "No"]),
        [f'spec.names.shortNames[1]: Invalid value: "No": {LABEL_RULE}'],
    ),
    (
        "bad category",
        _names(categories=["1all"]),
        [f'spec.names.categories[0]: Invalid value: "1all": {LABEL_RULE}'],
    ),
    (
        "no versions",
        definition(versions=[]),
        [f"spec.versions: Invalid value: []: {ONE_STORAGE}", NOT_STORED],
    ),
    (
        "no storage version",
        _one(storage=False),
        [f'spec.versions: Invalid value: ["v1"]: {ONE_STORAGE}', NOT_STORED],
    ),
    (
        "two storage versions",
        definition(versions=[version(), version("v2")]),
        [
            f'spec.versions: Invalid value: ["v1","v2"]: {ONE_STORAGE}',
            'status.storedVersions: Invalid value: ["v1"]: must have the storage version v2',
        ],
    ),
    (
        "a version twice",
        definition(versions=[version(), version(storage=False)]),
        ['spec.versions: Invalid value: ["v1","v1"]: must contain unique version names'],
    ),
    (
        "bad version",
        _one(name="1.0"),
        [
            f'spec.versions[0].name: Invalid value: "1.0": {LABEL_RULE}',
        ],
    ),
    (
        "no schema",
        _one(schema=None),
        ["spec.versions[0].schema.openAPIV3Schema: Required value"],
    ),
    (
        "one of two schemas",
        definition(versions=[version(), version("v2", storage=False, schema=None)]),
        ["spec.versions[1].schema.openAPIV3Schema: Required value"],
    ),
    (
        "not structural",
        _schema({"type": "object", "properties": {"spec": {}}}),
        [
            (
                "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not "
                "be "
                "empty for specified object fields"
            )
        ],
    ),
    (
        "not structural in one of two",
        definition(
            versions=[
                version(),
                version("v2", storage=False, schema={"openAPIV3Schema": {"type": "array"}}),
            ]
        ),
        [
            "spec.versions[1].schema.openAPIV3Schema.items: Required value: must be specified",
            (
                'spec.versions[1].schema.openAPIV3Schema.type: Invalid value: "array": must be '
                "object "
                "at the root"
            ),
        ],
    ),
    (
        "restriction beside a status",
        definition(
            versions=[
                version(
                    schema={"openAPIV3Schema": {"type": "object", "minProperties": 1}},
                    subresources={"status": {}},
                )
            ]
        ),
        [
            (
                "spec.validation.openAPIV3Schema: Invalid value: "
                '{"type":"object","minProperties":1}: '
                "only [Description Type Format Title Maximum ExclusiveMaximum Minimum "
                "ExclusiveMinimum "
                "MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required "
                "Items "
                "Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are "
                "allowed at the root of the schema if the status subresource is enabled"
            )
        ],
    ),
    (
        "preserving everything",
        definition(preserveUnknownFields=True),
        [
            (
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
                "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
            )
        ],
    ),
    (
        "warning without a reason",
        _one(deprecationWarning="old"),
        [
            (
                'spec.versions[0].deprecationWarning: Invalid value: "old": can only be set for '
                "deprecated versions"
            )
        ],
    ),
    (
        "long warning",
        _one(deprecated=True, deprecationWarning="x" * 257),
        [
            (
                f'spec.versions[0].deprecationWarning: Invalid value: "{"x" * 257}": must be <= '
                "256 "
                "characters long"
            )
        ],
    ),
    (
        "empty warning",
        _one(deprecated=True, deprecationWarning=""),
        [
            'spec.versions[0].deprecationWarning: Invalid value: "": must not be an empty string',
        ],
    ),
    (
        "warning of two lines",
        _one(deprecated=True, deprecationWarning="é\nb"),
        [
            (
                'spec.versions[0].deprecationWarning: Invalid value: "é\\nb": must only contain '
                "printable UTF-8 characters; non-printable character found at index 2"
            )
        ],
    ),
    (
        "scale of nothing",
        _one(subresources={"scale": {}}),
        [
            "spec.subresources.scale.specReplicasPath: Required value",
            "spec.subresources.scale.statusReplicasPath: Required value",
        ],
    ),
    (
        "scale elsewhere",
        _scale(specReplicasPath=".status.n", statusReplicasPath="n", labelSelectorPath=".meta.x"),
        [
            (
                'spec.subresources.scale.specReplicasPath: Invalid value: ".status.n": should be a '
                "json path under .spec"
            ),
            (
                'spec.subresources.scale.statusReplicasPath: Invalid value: "n": must be a '
                "simple json "
                "path starting with ."
            ),
            (
                'spec.subresources.scale.labelSelectorPath: Invalid value: ".meta.x": should be '
                "a json "
                "path under either .spec or .status"
            ),
        ],
    ),
    (
        "empty column",
        _column(name="", type="", jsonPath=""),
        [
            f"{_COLUMNS}.name: Required value",
            f"{_COLUMNS}.type: Required value: must be one of boolean,date,integer,number,string",
            f"{_COLUMNS}.JSONPath: Required value",
        ],
    ),
    (
        "odd column",
        _column(type="text", format="long", jsonPath="spec.a"),
        [
            (
                f'{_COLUMNS}.type: Invalid value: "text": must be one of '
                "boolean,date,integer,number,string"
            ),
            (
                f'{_COLUMNS}.format: Invalid value: "long": must be one of '
                "byte,date,date-time,double,float,int32,int64,password"
            ),
            (
                f'{_COLUMNS}.JSONPath: Invalid value: "spec.a": must be a simple json path '
                "starting "
                "with ."
            ),
        ],
    ),
    ("empty field", _selecting(""), [f"{_FIELDS}: Required value"]),
    (
        "unknown field",
        _selecting(".spec.z"),
        [
            (
                f'{_FIELDS}: Invalid value: ".spec.z": is an invalid path: does not refer to a '
                "valid "
                "field"
            )
        ],
    ),
    (
        "field of a list",
        _selecting(".spec['a']"),
        [
            (
                f"{_FIELDS}: Invalid value: \".spec['a']\": is an invalid path: array notation "
                "is not "
                "allowed"
            )
        ],
    ),
    (
        "field without a dot",
        _selecting("spec.a"),
        [f'{_FIELDS}: Invalid value: "spec.a": is an invalid path: expected [ or . but got: spec'],
    ),
    (
        "half a path",
        _selecting(".spec."),
        [f'{_FIELDS}: Invalid value: ".spec.": is an invalid path: unexpected end of JSON path'],
    ),
    (
        "whole object",
        _selecting(".spec.o"),
        [f'{_FIELDS}: Invalid value: ".spec.o": {_PLAIN_FIELD}'],
    ),
    (
        "field twice",
        _selecting(".spec.a", ".spec.a"),
        ['spec.selectableFields[1].jsonPath: Duplicate value: ".spec.a"'],
    ),
    (
        "nine fields",
        _many_fields(),
        ["spec.selectableFields: Too many: 9: must have at most 8 items"],
    ),
    ("no strategy", definition(conversion={}), ["spec.conversion.strategy: Required value"]),
    (
        "unknown strategy",
        definition(conversion={"strategy": "Magic"}),
        [
            (
                'spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", '
                '"Webhook"'
            )
        ],
    ),
    (
        "webhook of no use",
        definition(
            conversion={
                "strategy": "None",
                "webhook": {
                    "clientConfig": {"url": "https://x"},
                    "conversionReviewVersions": ["v1"],
                },
            }
        ),
        [f"{_CONFIG}: Forbidden: {_OTHER}", f"{_REVIEWS}: Forbidden: {_OTHER}"],
    ),
    (
        "webhook of nobody",
        _webhook(),
        [f"{_CONFIG}: Required value: required when strategy is set to Webhook"],
    ),
    (
        "webhook nowhere",
        _webhook({}),
        [f"{_CONFIG}: Required value: exactly one of url or service is required"],
    ),
    (
        "webhook in two places",
        _webhook({"url": "https://x", "service": {"name": "n", "namespace": "ns"}}),
        [f"{_CONFIG}: Required value: exactly one of url or service is required"],
    ),
    (
        "plain URL",
        _webhook({"url": "http://u:p@host/x?a=b#c"}),
        [
            f"{_CONFIG}.url: Invalid value: \"http\": 'https' is the only allowed URL scheme{FORM}",
            f'{_CONFIG}.url: Invalid value: "u:p": user information is not permitted in the URL',
            f'{_CONFIG}.url: Invalid value: "c": fragments are not permitted in the URL',
            f'{_CONFIG}.url: Invalid value: "a=b": query parameters are not permitted in the URL',
        ],
    ),
    (
        "URL without a host",
        _webhook({"url": "https:///x"}),
        [f'{_CONFIG}.url: Invalid value: "": host must be specified{FORM}'],
    ),
    (
        "bad port",
        _service(port=70000),
        [
            (
                f"{_CONFIG}.service.port: Invalid value: 70000: port is not valid: must be "
                "between 1 "
                "and 65535, inclusive"
            )
        ],
    ),
    (
        "path without a slash",
        _service(path="x"),
        [
            f"{_CONFIG}.service.path: Invalid value: \"x\": must start with a '/'",
            f'{_CONFIG}.service.path: Invalid value: "x": segment[0] may not be empty',
        ],
    ),
    (
        "path with a hole",
        _service(path="/a//b"),
        [f'{_CONFIG}.service.path: Invalid value: "/a//b": segment[1] may not be empty'],
    ),
    (
        "no review versions",
        _webhook({"url": "https://x"}, conversionReviewVersions=[]),
        [f"{_REVIEWS}: Required value"],
    ),
    (
        "unknown review versions",
        _webhook({"url": "https://x"}, conversionReviewVersions=["v9", "v9", "V"]),
        [
            f'{_REVIEWS}[1]: Invalid value: "v9": duplicate version',
            f'{_REVIEWS}[2]: Invalid value: "V": {LABEL_RULE}',
            f'{_REVIEWS}: Invalid value: ["v9","v9","V"]: must include at least one of v1, v1beta1',
        ],
    ),
    (
        "protected group",
        _annotated(None),
        [
            f"metadata.annotations[api-approved.kubernetes.io]: Required value: {_ABOUT}, {_SEE}",
        ],
    ),
    (
        "odd approval",
        _annotated("sure"),
        [
            (
                'metadata.annotations[api-approved.kubernetes.io]: Invalid value: "sure": '
                f'{_ABOUT} with either a URL or a reason starting with "unapproved", {_SEE}'
            )
        ],
    ),
]

GOOD: list[tuple[str, Object]] = [
    ("plain", definition()),
    ("cluster", definition(scope="Cluster")),
    ("two versions", definition(versions=two())),
    ("approved", _annotated("https://github.com/kubernetes/enhancements/pull/1")),
    ("unapproved", _annotated("unapproved, experimental-only")),
    ("by URL", _webhook({"url": "https://host:8443/convert"})),
    ("by service", _service(path="/convert/", port=1)),
    # Not established yet: certificates may still be added.
    ("bad certificates", _webhook({"url": "https://x", "caBundle": "Tk9QRQ=="})),
    ("both reviews", _webhook({"url": "https://x"}, conversionReviewVersions=["v9", "v1beta1"])),
    ("scale", _scale(labelSelectorPath=".status.selector")),
    ("column", _column(format="date-time", priority=1)),
    ("selectable", _selecting(".spec.a", ".spec.n")),
    ("warning", _one(deprecated=True, deprecationWarning="use v2")),
    (
        "status",
        _one(subresources={"status": {}}),
    ),
]
