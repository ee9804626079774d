"""A family modelled on the gateway API: CEL rules, lists of type map, two versions."""

from __future__ import annotations

from typing import Any, Final

from tests.crds.building import (
    AGE,
    INT_OR_STRING,
    UNCHECKED,
    Family,
    Json,
    Maker,
    array,
    column,
    conditions,
    definition,
    integer,
    list_map,
    mapping,
    rule,
    struct,
    text,
    version,
)

GROUP: Final = "gateways.example.com"
HOSTNAME: Final = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
PATH_SAFE: Final = r"^[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$"


def families(group: str = GROUP) -> list[Family]:
    return [gateway(group), http_route(group)]


def gateway(group: str = GROUP) -> Family:
    """Listeners, keyed by name, with rules over all of them."""
    listener = struct(
        {
            "name": text(minLength=1, maxLength=253),
            "hostname": text(minLength=1, maxLength=253, pattern=HOSTNAME),
            "port": integer(format="int32", minimum=1, maximum=65535),
            "protocol": text(minLength=1, maxLength=255),
            "tls": struct(
                {
                    "mode": text(enum=["Terminate", "Passthrough"], default="Terminate"),
                    "certificateRefs": array(struct({"name": text()}, "name"), maxItems=64),
                    "options": mapping(text(maxLength=4096), maxProperties=16),
                },
                **{
                    "x-kubernetes-validations": [
                        rule(
                            "self.mode == 'Terminate' ? size(self.certificateRefs) > 0"
                            " || size(self.options) > 0 : true",
                            "certificateRefs or options must be specified when mode is Terminate",
                        )
                    ]
                },
            ),
            "allowedRoutes": struct(
                {
                    "namespaces": struct(
                        {"from": text(enum=["All", "Selector", "Same"], default="Same")},
                        default={"from": "Same"},
                    )
                },
                default={"namespaces": {"from": "Same"}},
            ),
        },
        "name",
        "port",
        "protocol",
    )
    listeners = list_map(
        listener,
        "name",
        minItems=1,
        maxItems=64,
        **{
            "x-kubernetes-validations": [
                rule(
                    "self.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)",
                    "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']",
                ),
                rule(
                    "self.all(a, self.exists_one(b, a.port == b.port && a.protocol == b.protocol"
                    " && (has(a.hostname) ? a.hostname : '')"
                    " == (has(b.hostname) ? b.hostname : '')))",
                    "Combination of port, protocol and hostname must be unique for each listener",
                ),
            ]
        },
    )
    spec = struct(
        {
            "gatewayClassName": text(
                minLength=1,
                maxLength=253,
                **{
                    "x-kubernetes-validations": [
                        rule(
                            "self == oldSelf",
                            "a gateway keeps its class",
                            reason="FieldValueForbidden",
                        )
                    ]
                },
            ),
            "listeners": listeners,
            "addresses": array(
                struct(
                    {
                        "type": text(default="IPAddress"),
                        "value": text(minLength=1, maxLength=253),
                    },
                    "value",
                    **{
                        "x-kubernetes-validations": [
                            rule(
                                "self.type == 'IPAddress' ? isIP(self.value) : true",
                                messageExpression="'no address: ' + self.value",
                                fieldPath=".value",
                            )
                        ]
                    },
                ),
                maxItems=16,
            ),
            "infrastructure": struct(
                {"labels": mapping(text(maxLength=63), maxProperties=8)}, nullable=True
            ),
            "minReplicas": integer(default=1),
            "maxReplicas": integer(),
        },
        "gatewayClassName",
        "listeners",
        **{
            "x-kubernetes-validations": [
                rule(
                    "!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
                    "minReplicas is above maxReplicas",
                )
            ]
        },
    )
    schema = struct(
        {
            "spec": spec,
            "status": struct(
                {
                    "conditions": conditions(),
                    "addresses": array(struct({"value": text()}, "value")),
                },
            ),
        },
        "spec",
    )
    columns = [
        column("Class", ".spec.gatewayClassName"),
        column("Address", ".status.addresses[*].value"),
        column("Programmed", '.status.conditions[?(@.type=="Programmed")].status'),
        AGE,
    ]
    shared: dict[str, Any] = {
        "columns": columns,
        "status": True,
        "selectableFields": [{"jsonPath": ".spec.gatewayClassName"}],
    }
    made = definition(
        group,
        "Gateway",
        [
            version("v1", schema, **shared),
            version("v1beta1", schema, storage=False, deprecated=True, **shared),
        ],
        names={"shortNames": ["gtw"], "categories": ["gateway-api"]},
    )
    make = Maker(group, "v1", "Gateway")
    http = {"name": "http", "port": 80, "protocol": "HTTP"}
    good = make.good("outer", {"gatewayClassName": "fast", "listeners": [http]})
    other = make.good(
        "inner",
        {
            "gatewayClassName": "slow",
            "listeners": [
                http,
                {
                    "name": "https",
                    "port": 443,
                    "protocol": "HTTPS",
                    "hostname": "*.example.com",
                    "tls": {"certificateRefs": [{"name": "web-tls"}]},
                },
            ],
            "addresses": [{"value": "192.0.2.1"}, {"type": "Hostname", "value": "a.example.com"}],
            "infrastructure": None,
            "maxReplicas": 3,
        },
    )
    _refuse_gateways(make, http)
    return Family(definition=made, good=(good, other), bad=tuple(make.bad))


def _refuse_gateways(make: Maker, http: Json) -> None:
    base = {"gatewayClassName": "fast", "listeners": [http]}
    make.refuse(
        "tls-on-http",
        base | {"listeners": [http | {"tls": {"options": {"a": "b"}}}]},
        (
            "spec.listeners",
            "FieldValueInvalid",
            "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']",
        ),
    )
    make.refuse(
        "same-port",
        base | {"listeners": [http, http | {"name": "again"}]},
        (
            "spec.listeners",
            "FieldValueInvalid",
            "Combination of port, protocol and hostname must be unique for each listener",
        ),
    )
    make.refuse(
        "same-name",
        base | {"listeners": [http, http | {"port": 81}]},
        ("spec.listeners[1]", "FieldValueDuplicate", 'Duplicate value: {"name":"http"}'),
    )
    make.refuse(
        "no-listeners",
        base | {"listeners": []},
        (
            "spec.listeners",
            "FieldValueInvalid",
            "Invalid value: 0: spec.listeners in body should have at least 1 items",
        ),
    )
    make.refuse(
        "replicas",
        base | {"minReplicas": 5, "maxReplicas": 4},
        ("spec", "FieldValueInvalid", "minReplicas is above maxReplicas"),
    )
    make.refuse(
        "default-counts",
        base | {"maxReplicas": 0},
        ("spec", "FieldValueInvalid", "minReplicas is above maxReplicas"),
    )
    make.refuse(
        "address",
        base | {"addresses": [{"value": "192.0.2.1"}, {"value": "300.0.0.1"}]},
        ("spec.addresses[1].value", "FieldValueInvalid", "no address: 300.0.0.1"),
    )
    make.refuse(
        "null",
        base | {"addresses": None, "minReplicas": None, "maxReplicas": 0},
        ("spec", "FieldValueInvalid", "minReplicas is above maxReplicas"),
    )


def http_route(group: str = GROUP) -> Family:
    """Matches, filters and weights, with bounds so that the rules have a bounded cost."""
    path = struct(
        {
            "type": text(enum=["Exact", "PathPrefix", "RegularExpression"], default="PathPrefix"),
            "value": text(maxLength=1024, default="/"),
        },
        **{
            "x-kubernetes-validations": [
                rule(
                    "self.type in ['Exact', 'PathPrefix'] ? self.value.startsWith('/') : true",
                    "value must be an absolute path and start with '/'",
                ),
                rule(
                    "self.type in ['Exact', 'PathPrefix']"
                    f' ? self.value.matches(r"""{PATH_SAFE}""") : true',
                    "must only contain valid characters",
                ),
            ]
        },
        default={"type": "PathPrefix", "value": "/"},
    )
    header = struct({"name": text(maxLength=256), "value": text(maxLength=4096)}, "name", "value")
    backend = struct(
        {
            "name": text(maxLength=253),
            "port": dict(INT_OR_STRING),
            "weight": integer(format="int32", default=1, minimum=0, maximum=1_000_000),
        },
        "name",
    )
    filters = array(
        struct(
            {
                "type": text(enum=["RequestHeaderModifier", "RequestRedirect", "URLRewrite"]),
                "requestRedirect": struct(
                    {
                        "scheme": text(enum=["http", "https"]),
                        "statusCode": integer(enum=[301, 302], default=302),
                    }
                ),
                "urlRewrite": struct({"hostname": text(maxLength=253)}),
            },
            "type",
        ),
        maxItems=16,
        **{
            "x-kubernetes-validations": [
                rule(
                    "!(self.exists(f, f.type == 'RequestRedirect')"
                    " && self.exists(f, f.type == 'URLRewrite'))",
                    "May specify either redirect or rewrite, but not both",
                )
            ]
        },
    )
    rules = array(
        struct(
            {
                "name": text(maxLength=253),
                "matches": array(
                    struct(
                        {
                            "path": path,
                            "headers": list_map(header, "name", maxItems=16),
                            "method": text(enum=["GET", "HEAD", "POST", "PUT", "DELETE"]),
                        }
                    ),
                    maxItems=8,
                    default=[{"path": {"type": "PathPrefix", "value": "/"}}],
                ),
                "filters": filters,
                "backendRefs": array(backend, maxItems=16),
                "timeouts": struct({"request": text(pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")}),
            }
        ),
        maxItems=16,
        default=[{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}],
    )
    schema = struct(
        {
            "spec": struct(
                {
                    "hostnames": array(
                        text(minLength=1, maxLength=253, pattern=HOSTNAME), maxItems=16
                    ),
                    "parentRefs": array(struct({"name": text(), "port": integer()}, "name")),
                    "rules": rules,
                }
            ),
            "status": struct({"parents": array(struct({"conditions": conditions()}))}),
        },
        "spec",
    )
    made = definition(
        group,
        "HTTPRoute",
        [
            version(
                "v1",
                schema,
                columns=[column("Hostnames", ".spec.hostnames"), AGE],
                status=True,
            )
        ],
        names={"categories": ["gateway-api"]},
    )
    make = Maker(group, "v1", "HTTPRoute")
    good = make.good("all", {})
    full = make.good(
        "full",
        {
            "hostnames": ["*.example.com"],
            "rules": [
                {
                    "matches": [{"path": {"value": "/a"}, "method": "GET"}, {}],
                    "filters": [{"type": "RequestRedirect", "requestRedirect": {}}],
                    "backendRefs": [{"name": "a", "port": "web"}, {"name": "b", "port": 80}],
                    "timeouts": {"request": "1m30s"},
                }
            ],
        },
    )
    make.refuse(
        "relative",
        {"rules": [{"matches": [{"path": {"value": "a"}}]}]},
        (
            "spec.rules[0].matches[0].path",
            "FieldValueInvalid",
            "value must be an absolute path and start with '/'",
        ),
    )
    make.refuse(
        "characters",
        {"rules": [{"matches": [{"path": {"value": "/a b"}}]}]},
        (
            "spec.rules[0].matches[0].path",
            "FieldValueInvalid",
            "must only contain valid characters",
        ),
    )
    make.refuse(
        "both",
        {"rules": [{"filters": [{"type": "RequestRedirect"}, {"type": "URLRewrite"}]}]},
        (
            "spec.rules[0].filters",
            "FieldValueInvalid",
            "May specify either redirect or rewrite, but not both",
        ),
    )
    make.refuse(
        "port",
        {"rules": [{"backendRefs": [{"name": "a", "port": 1.5}]}]},
        UNCHECKED,
        (
            "spec.rules[0].backendRefs[0].port",
            "FieldValueTypeInvalid",
            'spec.rules[0].backendRefs[0].port in body must be of type integer,string: "number"',
        ),
    )
    make.refuse(
        "code",
        {
            "rules": [
                {"filters": [{"type": "RequestRedirect", "requestRedirect": {"statusCode": 1}}]}
            ]
        },
        UNCHECKED,
        (
            "spec.rules[0].filters[0].requestRedirect.statusCode",
            "FieldValueNotSupported",
            'Unsupported value: 1: supported values: "301", "302"',
        ),
    )
    make.refuse(
        "timeout",
        {"rules": [{"timeouts": {"request": "soon"}}]},
        (
            "spec.rules[0].timeouts.request",
            "FieldValueInvalid",
            "spec.rules[0].timeouts.request in body should match",
        ),
    )
    return Family(definition=made, good=(good, full), bad=tuple(make.bad))
