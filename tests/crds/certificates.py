"""A family modelled on a certificate manager: six kinds that refer to each other.

Issuers nest one issuing configuration inside another, requests have conditions, and every kind has
printer columns.
"""

from __future__ import annotations

from typing import Final

from tests.crds.building import (
    AGE,
    ANYTHING,
    UNCHECKED,
    Family,
    Json,
    Maker,
    array,
    boolean,
    column,
    conditions,
    definition,
    integer,
    list_map,
    mapping,
    struct,
    text,
    version,
)

GROUP: Final = "certs.example.org"
READY: Final = column("Ready", '.status.conditions[?(@.type=="Ready")].status')
SECRET_REF: Final = struct({"name": text("Of the secret."), "key": text()}, "name")
ISSUER_REF: Final = struct(
    {
        "name": text("Of the issuer.", minLength=1),
        "kind": text(default="Issuer", enum=["Issuer", "ClusterIssuer"]),
        "group": text(),
    },
    "name",
)
USAGES: Final = ("signing", "key encipherment", "server auth", "client auth", "digital signature")


def families(group: str = GROUP) -> list[Family]:
    """All six."""
    return [
        certificate(group),
        request(group),
        issuer(group, "Issuer", scope="Namespaced"),
        issuer(group, "ClusterIssuer", scope="Cluster"),
        order(group),
        challenge(group),
    ]


def certificate(group: str = GROUP) -> Family:
    spec = struct(
        {
            "secretName": text("Where the key pair is kept.", minLength=1),
            "commonName": text(maxLength=64),
            "dnsNames": array(text(), **{"x-kubernetes-list-type": "set"}),
            "ipAddresses": array(text(format="ipv4")),
            "duration": text("Go's spelling, such as 2160h.", format="duration"),
            "renewBefore": text(format="duration"),
            "isCA": boolean(default=False),
            "usages": array(text(enum=list(USAGES)), default=["digital signature"]),
            "issuerRef": ISSUER_REF,
            "privateKey": struct(
                {
                    "algorithm": text(enum=["RSA", "ECDSA", "Ed25519"], default="RSA"),
                    "size": integer(minimum=256, maximum=8192, multipleOf=8),
                    "rotationPolicy": text(enum=["Never", "Always"]),
                },
                default={},
            ),
            "subject": struct(
                {"organizations": array(text()), "countries": array(text(maxLength=2))}
            ),
            "secretTemplate": struct({"labels": mapping(text()), "annotations": mapping(text())}),
            "revisionHistoryLimit": integer(format="int32", minimum=1),
        },
        "secretName",
        "issuerRef",
    )
    status = struct(
        {
            "conditions": conditions(),
            "notAfter": text(format="date-time"),
            "revision": integer(),
            "failedIssuanceAttempts": integer(),
        }
    )
    columns = [
        READY,
        column("Secret", ".spec.secretName"),
        column("Issuer", ".spec.issuerRef.name", priority=1),
        column("Status", '.status.conditions[?(@.type=="Ready")].message', priority=1),
        AGE,
    ]
    make = Maker(group, "v1", "Certificate")
    good = make.good("web", {"secretName": "web-tls", "issuerRef": {"name": "ca"}})
    full = make.good(
        "full",
        {
            "secretName": "full-tls",
            "commonName": "www.example.org",
            "dnsNames": ["www.example.org", "example.org"],
            "ipAddresses": ["192.0.2.7"],
            "duration": "2160h",
            "usages": ["server auth", "client auth"],
            "issuerRef": {"name": "ca", "kind": "ClusterIssuer"},
            "privateKey": {"algorithm": "ECDSA", "size": 256},
        },
    )
    make.refuse(
        "empty",
        {},
        ("spec.secretName", "FieldValueRequired", "Required value"),
        ("spec.issuerRef", "FieldValueRequired", "Required value"),
    )
    make.refuse(
        "wrong-types",
        {"secretName": 7, "issuerRef": {"name": "ca"}, "isCA": "yes"},
        (
            "spec.secretName",
            "FieldValueTypeInvalid",
            'Invalid value: "integer": spec.secretName in body must be of type string: "integer"',
        ),
        (
            "spec.isCA",
            "FieldValueTypeInvalid",
            'Invalid value: "string": spec.isCA in body must be of type boolean: "string"',
        ),
    )
    make.refuse(
        "wrong-values",
        {
            "secretName": "",
            "issuerRef": {"name": "ca", "kind": "Notary"},
            "privateKey": {"size": 9},
            "usages": ["signing", "sealing"],
        },
        (
            "spec.secretName",
            "FieldValueInvalid",
            'Invalid value: "": spec.secretName in body should be at least 1 chars long',
        ),
        (
            "spec.issuerRef.kind",
            "FieldValueNotSupported",
            'Unsupported value: "Notary": supported values: "Issuer", "ClusterIssuer"',
        ),
        (
            "spec.privateKey.size",
            "FieldValueInvalid",
            "Invalid value: 9: spec.privateKey.size in body should be greater than or equal to 256",
        ),
        (
            "spec.privateKey.size",
            "FieldValueInvalid",
            "Invalid value: 9: spec.privateKey.size in body should be a multiple of 8",
        ),
        (
            "spec.usages[1]",
            "FieldValueNotSupported",
            'Unsupported value: "sealing": supported values: "signing", "key encipherment"',
        ),
    )
    make.refuse(
        "twice",
        {"secretName": "a", "issuerRef": {"name": "ca"}, "dnsNames": ["a", "b", "a"]},
        ("spec.dnsNames[2]", "FieldValueDuplicate", 'Duplicate value: "a"'),
    )
    make.refuse(
        "formats",
        {"secretName": "a", "issuerRef": {"name": "ca"}, "ipAddresses": ["1.2.3"], "duration": "x"},
        (
            "spec.ipAddresses[0]",
            "FieldValueTypeInvalid",
            'Invalid value: "1.2.3": spec.ipAddresses[0] in body must be of type ipv4: "1.2.3"',
        ),
        (
            "spec.duration",
            "FieldValueTypeInvalid",
            'Invalid value: "x": spec.duration in body must be of type duration: "x"',
        ),
    )
    made = definition(
        group,
        "Certificate",
        [
            version(
                "v1",
                struct(
                    {"spec": spec, "status": status},
                    "spec",
                    description="A key pair that is signed, kept and renewed.",
                ),
                columns=columns,
                status=True,
            )
        ],
        names={"shortNames": ["crt", "crts"], "categories": ["certs"]},
    )
    return Family(definition=made, good=(good, full), bad=tuple(make.bad))


def request(group: str = GROUP) -> Family:
    spec = struct(
        {
            "request": text("A PEM, in base64.", format="byte"),
            "issuerRef": ISSUER_REF,
            "isCA": boolean(),
            "extra": mapping(array(text())),
            "groups": array(text(), **{"x-kubernetes-list-type": "atomic"}),
        },
        "request",
        "issuerRef",
        **{
            "x-kubernetes-validations": [
                {"rule": "self.request == oldSelf.request", "message": "a request never changes"}
            ]
        },
    )
    status = struct({"conditions": conditions(), "certificate": text(format="byte")})
    columns = [
        column("Approved", '.status.conditions[?(@.type=="Approved")].status'),
        READY,
        column("Issuer", ".spec.issuerRef.name"),
        AGE,
    ]
    make = Maker(group, "v1", "CertificateRequest")
    good = make.good("first", {"request": "cGVt", "issuerRef": {"name": "ca"}})
    make.refuse(
        "no-base64",
        {"request": "not base64!", "issuerRef": {"name": "ca"}},
        UNCHECKED,
        ("spec.request", "FieldValueTypeInvalid", "spec.request in body must be of type byte"),
    )
    made = definition(
        group,
        "CertificateRequest",
        [
            version(
                "v1",
                struct({"spec": spec, "status": status}, "spec"),
                columns=columns,
                status=True,
            )
        ],
        names={"shortNames": ["cr", "crs"], "categories": ["certs"]},
    )
    return Family(definition=made, good=(good,), bad=tuple(make.bad))


def issuer(group: str, kind: str, *, scope: str) -> Family:
    webhook = struct({"groupName": text(), "solverName": text(), "config": dict(ANYTHING)})
    dns01 = struct(
        {
            "zone": struct({"project": text(), "credentials": SECRET_REF}, "project"),
            "webhook": webhook,
        },
        maxProperties=1,
    )
    http01 = struct(
        {
            "ingress": struct(
                {
                    "className": text(),
                    "podTemplate": struct(
                        {
                            "metadata": struct({"labels": mapping(text())}),
                            "spec": struct(
                                {
                                    "nodeSelector": mapping(text()),
                                    "tolerations": array(
                                        struct({"key": text(), "operator": text()})
                                    ),
                                }
                            ),
                        }
                    ),
                }
            )
        }
    )
    solvers = array(
        struct(
            {
                "selector": struct({"matchLabels": mapping(text()), "dnsZones": array(text())}),
                "dns01": dns01,
                "http01": http01,
            }
        )
    )
    spec = struct(
        {
            "acme": struct(
                {
                    "server": text(pattern="^https://"),
                    "email": text(format="email"),
                    "privateKeySecretRef": SECRET_REF,
                    "solvers": solvers,
                },
                "server",
                "privateKeySecretRef",
            ),
            "ca": struct({"secretName": text()}, "secretName"),
            "selfSigned": struct({"crlDistributionPoints": array(text(format="uri"))}),
            "vault": struct(
                {
                    "server": text(),
                    "path": text(),
                    "caBundle": text(format="byte"),
                    "auth": struct({"tokenSecretRef": SECRET_REF, "kubernetes": struct()}),
                },
                "server",
                "path",
                "auth",
            ),
        },
        minProperties=1,
        maxProperties=1,
    )
    make = Maker(group, "v1", kind)
    acme = {
        "server": "https://acme.example.org/directory",
        "privateKeySecretRef": {"name": "account"},
        "solvers": [
            {"dns01": {"webhook": {"solverName": "own", "config": {"any": ["thing", 1, None]}}}},
            {"http01": {"ingress": {"className": "nginx"}}},
        ],
    }
    good = make.good("acme", {"acme": acme})
    make.refuse(
        "two-ways",
        {"ca": {"secretName": "a"}, "selfSigned": {}},
        ("spec", "FieldValueTooMany", "Too many: 2: must have at most 1 item"),
    )
    make.refuse(
        "plain-http",
        {"acme": acme | {"server": "http://acme.example.org"}},
        (
            "spec.acme.server",
            "FieldValueInvalid",
            "spec.acme.server in body should match '^https://'",
        ),
    )
    made = definition(
        group,
        kind,
        [
            version(
                "v1",
                struct({"spec": spec, "status": struct({"conditions": conditions()})}, "spec"),
                columns=[READY, AGE],
                status=True,
            )
        ],
        scope=scope,
        names={"categories": ["certs"]},
    )
    return Family(definition=made, good=(good,), bad=tuple(make.bad))


def order(group: str = GROUP) -> Family:
    authorizations = list_map(
        struct(
            {
                "url": text(format="uri"),
                "identifier": text(),
                "wildcard": boolean(),
                "challenges": array(struct({"type": text(), "token": text()}, "type", "token")),
            },
            "url",
        ),
        "url",
    )
    make = Maker(group, "v1", "Order")
    good = make.good("first", {"request": "cGVt", "issuerRef": {"name": "acme"}})
    make.refuse(
        "null",
        {"request": None, "issuerRef": {"name": "acme"}},
        ("spec.request", "FieldValueRequired", "Required value"),
    )
    states = ["valid", "ready", "pending", "processing", "invalid", "expired", "errored"]
    made = definition(
        group,
        "Order",
        [
            version(
                "v1",
                struct(
                    {
                        "spec": struct(
                            {
                                "request": text(format="byte"),
                                "issuerRef": ISSUER_REF,
                                "dnsNames": array(text()),
                            },
                            "request",
                            "issuerRef",
                        ),
                        "status": struct(
                            {"state": text(enum=states), "authorizations": authorizations}
                        ),
                    },
                    "spec",
                ),
                columns=[column("State", ".status.state"), AGE],
                status=True,
            )
        ],
    )
    return Family(definition=made, good=(good,), bad=tuple(make.bad))


def challenge(group: str = GROUP) -> Family:
    make = Maker(group, "v1", "Challenge")
    spec = {"type": "DNS-01", "token": "t", "dnsName": "example.org", "solver": {"own": {"a": 1}}}
    make.refuse(
        "unknown-type",
        spec | {"type": "PHONE-01"},
        (
            "spec.type",
            "FieldValueNotSupported",
            'Unsupported value: "PHONE-01": supported values: "HTTP-01", "DNS-01"',
        ),
    )
    made = definition(
        group,
        "Challenge",
        [
            version(
                "v1",
                struct(
                    {
                        "spec": struct(
                            {
                                "type": text(enum=["HTTP-01", "DNS-01"]),
                                "token": text(),
                                "dnsName": text(),
                                "wildcard": boolean(default=False),
                                "solver": struct(**ANYTHING),
                            },
                            "type",
                            "token",
                            "dnsName",
                        ),
                        "status": struct(
                            {
                                "presented": boolean(),
                                "processing": boolean(),
                                "state": text(),
                                "reason": text(),
                            }
                        ),
                    },
                    "metadata",
                    "spec",
                ),
                columns=[column("State", ".status.state"), column("Domain", ".spec.dnsName"), AGE],
                status=True,
            )
        ],
    )
    return Family(definition=made, good=(make.good("dns", spec),), bad=tuple(make.bad))


def ready(obj: Json, status: str = "True", message: str = "issued") -> Json:
    """Returns the object with a condition, as its controller writes it."""
    said = {"type": "Ready", "status": status, "reason": "Issued", "message": message}
    return obj | {"status": {"conditions": [said]}}
