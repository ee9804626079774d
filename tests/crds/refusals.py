"""The expected causes for each CRD in `broken`: (field, reason, part of the message).

The messages are those of Kubernetes. The parts that come from a library (the position of an error
in a pattern or a rule) are not checked.
"""

from __future__ import annotations

from typing import Final

S: Final = "spec.validation.openAPIV3Schema"
A: Final = f"{S}.properties[spec].properties[a]"
INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
FORBIDDEN: Final = "FieldValueForbidden"
UNSUPPORTED: Final = "FieldValueNotSupported"
DUPLICATE: Final = "FieldValueDuplicate"
WRONG_TYPE: Final = "FieldValueTypeInvalid"
TOO_MANY: Final = "FieldValueTooMany"

Causes = tuple[tuple[str, str, str], ...]

REFUSALS: Final[dict[str, Causes]] = {
    "name-is-not-plural-and-group": (
        (
            "metadata.name",
            INVALID,
            'Invalid value: "things.other.example.org": must be spec.names.plural+"."+spec.group',
        ),
    ),
    "no-group": (
        ("metadata.name", INVALID, 'must be spec.names.plural+"."+spec.group'),
        ("spec.group", REQUIRED, "Required value"),
    ),
    "group-in-capitals": (
        (
            "metadata.name",
            INVALID,
            'Invalid value: "things.Things.example.org": a lowercase RFC 1123 subdomain must',
        ),
        (
            "spec.group",
            INVALID,
            'Invalid value: "Things.example.org": a lowercase RFC 1123 subdomain must consist of',
        ),
    ),
    "group-of-one-word": (
        (
            "spec.group",
            INVALID,
            'Invalid value: "things": should be a domain with at least one dot',
        ),
    ),
    "protected-group": (
        (
            "metadata.annotations[api-approved.kubernetes.io]",
            REQUIRED,
            "Required value: protected groups must have approval annotation",
        ),
    ),
    "protected-group-kubernetes": (
        (
            "metadata.annotations[api-approved.kubernetes.io]",
            REQUIRED,
            "Required value: protected groups must have approval annotation",
        ),
    ),
    "group-of-the-server": (
        ("spec.group", INVALID, 'Invalid value: "apps": should be a domain with at least one dot'),
    ),
    "group-of-the-server-with-dots": (
        (
            "metadata.annotations[api-approved.kubernetes.io]",
            REQUIRED,
            "Required value: protected groups must have approval annotation",
        ),
    ),
    "protected-group-with-a-bad-approval": (
        (
            "metadata.annotations[api-approved.kubernetes.io]",
            INVALID,
            'Invalid value: "by nobody": protected groups must have approval annotation',
        ),
    ),
    "no-plural": (
        ("metadata.name", INVALID, 'must be spec.names.plural+"."+spec.group'),
        ("spec.names.plural", REQUIRED, "Required value"),
    ),
    "plural-in-capitals": (
        ("metadata.name", INVALID, 'must be spec.names.plural+"."+spec.group'),
        ("spec.names.plural", INVALID, 'Invalid value: "Things": a DNS-1035 label must consist of'),
    ),
    "kind-is-the-list": (
        (
            "spec.names.listKind",
            INVALID,
            'Invalid value: "Thing": kind and listKind may not be the same',
        ),
    ),
    "short-name-in-capitals": (
        (
            "spec.names.shortNames[0]",
            INVALID,
            'Invalid value: "TH": a DNS-1035 label must consist of',
        ),
    ),
    "category-in-capitals": (
        (
            "spec.names.categories[0]",
            INVALID,
            'Invalid value: "ALL": a DNS-1035 label must consist of',
        ),
    ),
    "kind-of-two-words": (
        (
            "spec.names.singular",
            INVALID,
            'Invalid value: "thing one": a DNS-1035 label must consist of',
        ),
        (
            "spec.names.kind",
            INVALID,
            'Invalid value: "Thing One": may have mixed case, but should otherwise match: a',
        ),
        (
            "spec.names.listKind",
            INVALID,
            'Invalid value: "Thing OneList": may have mixed case, but should otherwise match: a',
        ),
    ),
    "no-scope": (("spec.scope", REQUIRED, "Required value"),),
    "unknown-scope": (
        (
            "spec.scope",
            UNSUPPORTED,
            'Unsupported value: "World": supported values: "Cluster", "Namespaced"',
        ),
    ),
    "no-versions": (
        (
            "spec.versions",
            INVALID,
            "Invalid value: []: must have exactly one version marked as storage version",
        ),
        (
            "status.storedVersions",
            INVALID,
            "Invalid value: null: must have at least one stored version",
        ),
    ),
    "no-storage-version": (
        ("spec.versions", INVALID, "must have exactly one version marked as storage version"),
        (
            "status.storedVersions",
            INVALID,
            "Invalid value: null: must have at least one stored version",
        ),
    ),
    "two-storage-versions": (
        ("spec.versions", INVALID, "must have exactly one version marked as storage version"),
        (
            "status.storedVersions",
            INVALID,
            'Invalid value: ["v1"]: must have the storage version v2',
        ),
    ),
    "same-version-twice": (("spec.versions", INVALID, "must contain unique version names"),),
    "version-in-capitals": (
        # The reference also names spec.version, a field that does not exist.
        ("spec.versions[0].name", INVALID, 'Invalid value: "V1": a DNS-1035 label must consist of'),
    ),
    "warning-without-deprecation": (
        (
            "spec.versions[0].deprecationWarning",
            INVALID,
            'Invalid value: "soon gone": can only be set for deprecated versions',
        ),
    ),
    "empty-warning": (
        (
            "spec.versions[0].deprecationWarning",
            INVALID,
            'Invalid value: "": must not be an empty string',
        ),
    ),
    "no-schema": (("spec.versions[0].schema.openAPIV3Schema", REQUIRED, "Required value"),),
    "empty-schema": ((f"{S}.type", REQUIRED, "Required value: must not be empty at the root"),),
    "root-is-no-object": (
        (f"{S}.type", INVALID, 'Invalid value: "string": must be object at the root'),
    ),
    "root-is-nullable": (
        (f"{S}.nullable", FORBIDDEN, "Forbidden: nullable cannot be true at the root"),
    ),
    "field-without-type": (
        (f"{A}.type", REQUIRED, "Required value: must not be empty for specified object fields"),
    ),
    "array-without-items": ((f"{A}.items", REQUIRED, "Required value: must be specified"),),
    "items-as-list": (
        (f"{A}.items", FORBIDDEN, "Forbidden: items must be a schema object and not an array"),
    ),
    "unknown-type": (
        (
            f"{A}.type",
            UNSUPPORTED,
            'Unsupported value: "text": supported values: "array", "boolean", "integer",',
        ),
    ),
    "reference": ((f"{A}.$ref", FORBIDDEN, "Forbidden: $ref is not supported"),),
    "cycle": ((f"{S}.properties[spec].$ref", FORBIDDEN, "Forbidden: $ref is not supported"),),
    "definitions": ((f"{S}.definitions", FORBIDDEN, "Forbidden: definitions is not supported"),),
    "properties-and-additional": (
        (
            f"{A}.additionalProperties",
            FORBIDDEN,
            "Forbidden: additionalProperties and properties are mutual exclusive",
        ),
    ),
    "unique-items": (
        (
            f"{A}.uniqueItems",
            FORBIDDEN,
            "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes",
        ),
    ),
    "type-in-a-disjunction": (
        (f"{A}.anyOf[0].type", FORBIDDEN, "Forbidden: must be empty to be structural"),
        (f"{A}.anyOf[1].type", FORBIDDEN, "Forbidden: must be empty to be structural"),
    ),
    "type-in-a-negation": (
        (f"{A}.not.type", FORBIDDEN, "Forbidden: must be empty to be structural"),
    ),
    "default-in-a-disjunction": (
        (f"{A}.anyOf[0].default", FORBIDDEN, "Forbidden: must be undefined to be structural"),
    ),
    "metadata-restricted": (
        (
            f"{S}.properties[metadata]",
            FORBIDDEN,
            "Forbidden: must not specify anything other than name and generateName, but",
        ),
    ),
    "preserve-is-false": (
        (
            f"{A}.x-kubernetes-preserve-unknown-fields",
            INVALID,
            "Invalid value: false: must be true or undefined",
        ),
    ),
    "embedded-without-fields": (
        (
            f"{A}.properties",
            REQUIRED,
            "Required value: must not be empty if x-kubernetes-embedded-resource is true",
        ),
    ),
    "preserve-unknown-fields": (
        (
            "spec.preserveUnknownFields",
            INVALID,
            "Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields",
        ),
    ),
    "pattern-does-not-compile": (
        (
            f"{A}.pattern",
            INVALID,
            'Invalid value: "(": must be a valid regular expression, but isn\'t',
        ),
    ),
    "pattern-looks-behind": (
        (
            f"{A}.pattern",
            INVALID,
            'Invalid value: "(?<!a)b": must be a valid regular expression, but isn\'t',
        ),
    ),
    "pattern-refers-back": (
        (
            f"{A}.pattern",
            INVALID,
            'Invalid value: "(a)\\\\1": must be a valid regular expression, but isn\'t',
        ),
    ),
    "pattern-repeats-too-often": (
        (
            f"{A}.pattern",
            INVALID,
            'Invalid value: "(a{1000}){1000}": must be a valid regular expression, but isn\'t',
        ),
    ),
    "default-of-another-type": (
        (
            f"{A}.default",
            WRONG_TYPE,
            'Invalid value: "string":  in body must be of type integer: "string"',
        ),
    ),
    "default-out-of-bounds": (
        (
            f"{A}.default",
            INVALID,
            "Invalid value: 0:  in body should be greater than or equal to 1",
        ),
    ),
    "default-is-pruned": (
        (f"{A}.default", INVALID, 'Invalid value: {"c":"d"}: must not have unknown fields'),
    ),
    "default-in-metadata": (
        (
            f"{S}.properties[metadata].properties[name].default",
            FORBIDDEN,
            "Forbidden: must not be set in top-level metadata",
        ),
    ),
    "list-map-without-keys": (
        (
            f"{A}.x-kubernetes-list-map-keys",
            REQUIRED,
            "Required value: must not be empty if x-kubernetes-list-type is map",
        ),
    ),
    "list-map-of-scalars": (
        (
            f"{A}.items.type",
            INVALID,
            'Invalid value: "string": must be object if parent array\'s x-kubernetes-list-type',
        ),
    ),
    "list-map-key-unknown": (
        (
            f"{A}.x-kubernetes-list-map-keys",
            INVALID,
            'Invalid value: ["c"]: entries must all be names of item properties',
        ),
    ),
    "list-map-key-optional": (
        (
            f"{A}.items.properties[b].default",
            REQUIRED,
            "Required value: this property is in x-kubernetes-list-map-keys, so it must have a",
        ),
    ),
    "set-of-structs": (
        (
            f"{A}.items.x-kubernetes-map-type",
            INVALID,
            "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
    ),
    "list-type-of-a-struct": (
        (
            f"{A}.type",
            INVALID,
            'Invalid value: "object": must be array if x-kubernetes-list-type is specified',
        ),
    ),
    "list-type-unknown": (
        (
            f"{A}.x-kubernetes-list-type",
            UNSUPPORTED,
            'Unsupported value: "bag": supported values: "atomic", "set", "map"',
        ),
    ),
    "map-type-unknown": (
        (
            f"{A}.x-kubernetes-map-type",
            UNSUPPORTED,
            'Unsupported value: "bag": supported values: "atomic", "granular"',
        ),
    ),
    "rule-does-not-parse": (
        (f"{A}.x-kubernetes-validations[0].rule", INVALID, "compilation failed"),
    ),
    "rule-is-no-condition": (
        (
            f"{A}.x-kubernetes-validations[0].rule",
            INVALID,
            "cel expression must evaluate to a bool",
        ),
    ),
    "rule-of-unknown-field": (
        (f"{A}.x-kubernetes-validations[0].rule", INVALID, "compilation failed"),
    ),
    "rule-is-empty": (
        (
            f"{A}.x-kubernetes-validations[0].rule",
            REQUIRED,
            "Required value: rule is not specified",
        ),
    ),
    "rule-message-of-two-lines": (
        (
            f"{A}.x-kubernetes-validations[0].message",
            INVALID,
            'Invalid value: "a\\nb": must not contain line breaks',
        ),
    ),
    "rule-message-is-no-string": (
        (
            f"{A}.x-kubernetes-validations[0].messageExpression",
            INVALID,
            "messageExpression must evaluate to a string",
        ),
    ),
    "rule-reason-unknown": (
        (
            f"{A}.x-kubernetes-validations[0].reason",
            UNSUPPORTED,
            'Unsupported value: "Whim": supported values: "FieldValueDuplicate",',
        ),
    ),
    "rule-field-path-unknown": (
        (
            f"{A}.x-kubernetes-validations[0].fieldPath",
            INVALID,
            'Invalid value: ".c": must be a valid path',
        ),
    ),
    "rule-too-expensive": (
        (
            f"{A}.x-kubernetes-validations[0].rule",
            FORBIDDEN,
            "Forbidden: estimated rule cost exceeds budget by factor of more than 100x",
        ),
        (
            f"{A}.x-kubernetes-validations[0].rule",
            FORBIDDEN,
            "Forbidden: contributed to estimated rule cost total exceeding cost limit for",
        ),
        (
            S,
            FORBIDDEN,
            "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3",
        ),
    ),
    "rule-looks-back-in-a-list": (
        (
            f"{A}.items.x-kubernetes-validations[0].rule",
            INVALID,
            'Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable',
        ),
    ),
    "column-without-path": (
        ("spec.additionalPrinterColumns[0].JSONPath", REQUIRED, "Required value"),
    ),
    "column-path-is-wrong": (
        (
            "spec.additionalPrinterColumns[0].JSONPath",
            INVALID,
            'Invalid value: "spec.a": must be a simple json path starting with .',
        ),
    ),
    "column-type-unknown": (
        (
            "spec.additionalPrinterColumns[0].type",
            INVALID,
            'Invalid value: "text": must be one of boolean,date,integer,number,string',
        ),
    ),
    "column-format-unknown": (
        (
            "spec.additionalPrinterColumns[0].format",
            INVALID,
            'Invalid value: "odd": must be one of',
        ),
    ),
    "scale-path-without-dot": (
        (
            "spec.subresources.scale.specReplicasPath",
            INVALID,
            'Invalid value: "spec.replicas": must be a simple json path starting with .',
        ),
    ),
    "scale-path-elsewhere": (
        (
            "spec.subresources.scale.specReplicasPath",
            INVALID,
            'Invalid value: ".status.replicas": should be a json path under .spec',
        ),
    ),
    "scale-without-path": (
        ("spec.subresources.scale.specReplicasPath", REQUIRED, "Required value"),
        ("spec.subresources.scale.statusReplicasPath", REQUIRED, "Required value"),
    ),
    "selectable-twice": (
        ("spec.selectableFields[1].jsonPath", DUPLICATE, 'Duplicate value: ".spec.name"'),
    ),
    "selectable-unknown": (
        (
            "spec.selectableFields[0].jsonPath",
            INVALID,
            'Invalid value: ".spec.other": is an invalid path: does not refer to a valid field',
        ),
    ),
    "selectable-metadata": (
        (
            "spec.selectableFields[0].jsonPath",
            INVALID,
            'Invalid value: ".metadata.name": is an invalid path: does not refer to a valid field',
        ),
    ),
    "selectable-struct": (
        (
            "spec.selectableFields[0].jsonPath",
            INVALID,
            'Invalid value: ".spec": must point to a field of type string, boolean or integer.',
        ),
    ),
    "selectable-too-many": (
        ("spec.selectableFields", TOO_MANY, "Too many: 9: must have at most 8 items"),
    ),
    "conversion-unknown": (
        (
            "spec.conversion.strategy",
            UNSUPPORTED,
            'Unsupported value: "Guess": supported values: "None", "Webhook"',
        ),
    ),
    "conversion-without-webhook": (
        (
            "spec.conversion.webhookClientConfig",
            REQUIRED,
            "Required value: required when strategy is set to Webhook",
        ),
        ("spec.conversion.conversionReviewVersions", REQUIRED, "Required value"),
    ),
    "conversion-over-http": (
        (
            "spec.conversion.webhookClientConfig.url",
            INVALID,
            "Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format:",
        ),
    ),
    "conversion-with-two-targets": (
        (
            "spec.conversion.webhookClientConfig",
            REQUIRED,
            "Required value: exactly one of url or service is required",
        ),
    ),
    "conversion-with-no-known-review": (
        (
            "spec.conversion.conversionReviewVersions",
            INVALID,
            'Invalid value: ["v7"]: must include at least one of v1, v1beta1',
        ),
    ),
    "webhook-without-strategy": (
        (
            "spec.conversion.webhookClientConfig",
            FORBIDDEN,
            "Forbidden: should not be set when strategy is not set to Webhook",
        ),
        (
            "spec.conversion.conversionReviewVersions",
            FORBIDDEN,
            "Forbidden: should not be set when strategy is not set to Webhook",
        ),
    ),
}
