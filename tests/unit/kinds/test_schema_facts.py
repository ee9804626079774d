"""Schema facts beyond names and types: the tables match the types, and rules cover the rest."""

from functools import cache

import pytest

from restow.apimachinery.types import Field, Struct
from restow.kinds import schema_facts
from restow.kinds.derived_types import all_types
from restow.kinds.schema_facts import default_of, is_required, union_of, words_of
from restow.kinds.types import load_types

CORE = "io.k8s.api.core.v1."


def find(name: str) -> tuple[Struct, Field]:
    """Returns a field of a core struct."""
    struct_name, _, field_name = name.partition(".")
    struct = all_types().struct(CORE + struct_name)
    return struct, struct.by_name[field_name]


@cache
def known() -> frozenset[str]:
    """Returns every field of every type, as the tables name it."""
    types, found = load_types(), set[str]()
    for group, version in types.group_versions():
        for struct in types.structs(group, version):
            short, whole = struct.short_name, struct.name.removeprefix("io.k8s.api.")
            found |= {f"{name}.{field.json}" for name in (short, whole) for field in struct}
    return frozenset(found)


def test_every_name_is_a_field() -> None:
    """No table names a field that no type has."""
    words = {name for names in schema_facts._WORDS for name in names.split()}
    unions = {
        f"{struct}.{field}"
        for struct, (chosen_by, fields) in schema_facts._UNIONS.items()
        for field in (*fields.split(), *([chosen_by] if chosen_by else []))
    }
    named = {*schema_facts._OPTIONAL, *schema_facts._REQUIRED, *schema_facts._DEFAULTS}
    assert {*named, *words, *unions, *schema_facts._SIGNAL_FIELDS} <= known()


@pytest.mark.parametrize(
    ("name", "required"),
    [
        ("Container.name", True),
        ("Container.image", False),
        ("Event.metadata", True),
        ("Event.reportingInstance", False),
        ("PodCertificateProjection.keyType", True),
    ],
)
def test_required(name: str, required: bool) -> None:
    """A field that Go always writes is required, with exceptions."""
    assert is_required(*find(name)) is required


def test_events_differ() -> None:
    """The two kinds of events differ in their required fields."""
    struct = all_types().struct("io.k8s.api.events.v1.Event")
    assert not is_required(struct, struct.by_name["metadata"])


def test_enumerations() -> None:
    """Fields with few values list them, signals in the order of their names."""
    assert words_of(*find("Container.imagePullPolicy")) == ("Always", "IfNotPresent", "Never")
    assert words_of(*find("Container.image")) == ()
    signals = words_of(*find("Lifecycle.stopSignal"))
    assert len(signals) == 65
    assert list(signals) == sorted(signals)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("ContainerPort.protocol", "TCP"),
        ("ContainerPort.containerPort", 0),
        ("ContainerPort.hostPort", None),
        ("Container.name", ""),
        ("ContainerStatus.ready", False),
        ("GRPCAction.service", ""),
        ("PodSpec.containers", None),
        ("ReplicationControllerSpec.replicas", 1),
    ],
)
def test_defaults(name: str, default: object) -> None:
    """Fields that Go always writes default to zero; a few have other defaults."""
    assert default_of(*find(name)) == default


def test_unions() -> None:
    """A union struct names the discriminator of each field."""
    struct, _ = find("SeccompProfile.type")
    assert union_of(struct) == ("type", {"localhostProfile": "LocalhostProfile"})
    assert union_of(all_types().struct(CORE + "Container")) is None
