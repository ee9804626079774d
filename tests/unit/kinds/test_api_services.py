"""APIServices: validation, and the initial status."""

from typing import Any

import pytest

from restow.kinds.builtin import api_service_priorities, find_kind
from restow.kinds.defaults import apply_defaults, prepare_create
from restow.kinds.validation import validate

GROUP, KIND = "apiregistration.k8s.io", "APIService"
SERVICE = {"namespace": "n", "name": "s", "port": 443}


def made(name: str = "v1.example.com", **spec: Any) -> dict[str, Any]:
    whole = {
        "group": "example.com",
        "version": "v1",
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
        **spec,
    }
    return {"metadata": {"name": name}, "spec": whole}


@pytest.mark.parametrize(
    "good",
    [
        made(),
        made("v1.", group=""),
        made(service=SERVICE, caBundle="Cg=="),
        made(service=SERVICE, insecureSkipTLSVerify=True),
        made(groupPriorityMinimum=20000, versionPriority=1000),
        {**made(), "status": {"conditions": [{"type": "Available", "status": "Unknown"}]}},
    ],
)
def test_valid_objects_pass(good: dict[str, Any]) -> None:
    """Local and remote ones, the core group, and a CA bundle that is filled in later."""
    assert validate(GROUP, KIND, good) == []


BAD: list[tuple[dict[str, Any], str, str]] = [
    (
        made("v1.other"),
        "metadata.name",
        'Invalid value: "v1.other": must be `spec.version+"."+spec.group`: "v1.example.com"',
    ),
    (
        made("v2.", group="", version="v2"),
        "spec.group",
        "Required value: only v1 may have an empty group and it better be legacy kube",
    ),
    (made("v1.A_B", group="A_B"), "spec.group", 'Invalid value: "A_B": a lowercase RFC 1123'),
    (made("1.example.com", version="1"), "spec.version", 'Invalid value: "1": a DNS-1035 label'),
    (
        made(groupPriorityMinimum=0),
        "spec.groupPriorityMinimum",
        "Invalid value: 0: must be positive and less than 20000",
    ),
    (
        made(versionPriority=1001),
        "spec.versionPriority",
        "Invalid value: 1001: must be positive and less than 1000",
    ),
    (
        made(caBundle="Cg=="),
        "spec.caBundle",
        'Invalid value: "1 bytes": local APIServices may not have a caBundle',
    ),
    (
        made(insecureSkipTLSVerify=True),
        "spec.insecureSkipTLSVerify",
        "Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
    ),
    (made(service={"name": "s", "port": 1}), "spec.service.namespace", "Required value"),
    (made(service={"namespace": "n", "port": 1}), "spec.service.name", "Required value"),
    (
        made(service={**SERVICE, "port": 65536}),
        "spec.service.port",
        "Invalid value: 65536: port is not valid: must be between 1 and 65535, inclusive",
    ),
    (
        made(service=SERVICE, caBundle="Cg==", insecureSkipTLSVerify=True),
        "spec.insecureSkipTLSVerify",
        "Invalid value: true: may not be true if caBundle is present",
    ),
    (
        {**made(), "status": {"conditions": [{"type": "Available", "status": "Yes"}]}},
        "status.conditions[0].status",
        'Unsupported value: "Yes": supported values: "True", "False", "Unknown"',
    ),
]


@pytest.mark.parametrize(("bad", "field", "message"), BAD, ids=[each[1] for each in BAD])
def test_each_error_has_its_field(bad: dict[str, Any], field: str, message: str) -> None:
    """Each error is one cause, with the message of the reference."""
    [cause] = validate(GROUP, KIND, bad)
    assert cause.field == field
    assert cause.message.startswith(message)


def test_a_local_service_is_available_at_once() -> None:
    """Without a service it is available from its creation; with a service there is no condition
    yet."""
    obj = made()
    obj["metadata"]["creationTimestamp"] = "2030-01-01T00:00:00Z"
    prepare_create(GROUP, KIND, obj)
    assert obj["status"]["conditions"] == [
        {
            "type": "Available",
            "status": "True",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
            "reason": "Local",
            "message": "Local APIServices are always available",
        }
    ]
    remote = made(service={"namespace": "n", "name": "s"})
    apply_defaults(GROUP, "v1", KIND, remote)
    assert remote["spec"]["service"]["port"] == 443
    prepare_create(GROUP, KIND, remote)
    assert remote["status"] == {}


def test_the_kind_has_an_effect() -> None:
    """There is no warning, and the name of the core group, `v1.`, is valid."""
    kind = find_kind(GROUP, KIND)
    assert kind is not None
    assert not kind.behaviour_missing
    assert kind.name_problem("v1.") is None


@pytest.mark.parametrize(
    ("group", "version", "expected"),
    [
        ("", "v1", (18000, 1)),
        ("apps", "v1", (17800, 15)),
        ("autoscaling", "v2", (17500, 30)),
        ("storagemigration.k8s.io", "v1beta1", (15800, 9)),
        ("migration.k8s.io", "v1alpha1", (15700, 1)),
        ("example.com", "v1", (1000, 100)),
    ],
)
def test_priorities(group: str, version: str, expected: tuple[int, int]) -> None:
    """Built-in groups have the known order, and all others follow."""
    assert api_service_priorities(group, version) == expected
