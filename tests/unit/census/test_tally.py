"""Counting and verdicts: from keys and values to stale objects."""

from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.census import Census, CensusVerdict, ResourceCount, ResourceSelection, take_census
from tests.unit.census.stores import as_json, as_protobuf, message


class Values:
    """A source with given values."""

    revision = 7

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self.values = values

    async def pages(self, prefixes: Sequence[str]) -> AsyncIterator[Sequence[tuple[str, bytes]]]:
        for pair in self.values.items():
            if pair[0].startswith(tuple(prefixes)):
                yield [pair]


async def census_of(
    values: Mapping[str, bytes], *words: str, samples_max: int = 20, **targets: str
) -> Census:
    return await take_census(
        Values(values),
        selection=ResourceSelection.of(words),
        arguments={name.replace("__", "."): version for name, version in targets.items()},
        samples_max=samples_max,
    )


def only(census: Census) -> ResourceCount:
    assert len(census.resources) == 1
    return census.resources[0]


def storage_version(common: str | None) -> bytes:
    status = {} if common is None else {"commonEncodingVersion": common}
    return as_json("internal.apiserver.k8s.io/v1alpha1", "StorageVersion", spec={}, status=status)


def definition(group: str, **storage: bool) -> bytes:
    versions = [{"name": name, "storage": is_stored} for name, is_stored in storage.items()]
    spec = {"group": group, "versions": versions}
    return as_json("apiextensions.k8s.io/v1", "CustomResourceDefinition", spec=spec)


def state(group: str, resource: str, current: str) -> bytes:
    return as_json(
        "migration.k8s.io/v1alpha1",
        "StorageState",
        spec={"resource": {"group": group, "resource": resource}},
        status={"currentStorageVersionHash": current},
    )


DEPLOYMENTS = {
    "/registry/deployments/default/a": as_json("apps/v1", "Deployment"),
    "/registry/deployments/default/b": as_protobuf("apps/v1", "Deployment"),
    "/registry/deployments/default/c": as_protobuf("apps/v1beta1", "Deployment"),
    "/registry/deployments/default/d": as_protobuf("apps/v1beta1", "Deployment"),
}
WIDGETS = {
    "/registry/example.com/widgets/default/a": as_json("example.com/v1", "Widget"),
    "/registry/example.com/widgets/default/b": as_json("example.com/v2", "Widget"),
}


async def test_counts() -> None:
    """Objects are counted by resource, form, version, provider and key."""
    secrets = {
        f"/registry/secrets/default/{number}": f"k8s:enc:aescbc:v1:key{number % 2}:?".encode()
        for number in range(5)
    }
    census = await census_of({**DEPLOYMENTS, **secrets})
    assert census.revision == 7
    assert census.objects == 9
    assert [
        (each.resource, row.stored.form, row.stored.api_version, row.stored.key, row.objects)
        for each in census.resources
        for row in each.rows
    ] == [
        ("deployments.apps", "json", "apps/v1", "", 1),
        ("deployments.apps", "protobuf", "apps/v1", "", 1),
        ("deployments.apps", "protobuf", "apps/v1beta1", "", 2),
        ("secrets", "encrypted", "", "key0", 3),
        ("secrets", "encrypted", "", "key1", 2),
    ]
    assert census.verdict is CensusVerdict.NO_TARGET


@pytest.mark.parametrize(
    "value",
    [
        storage_version("apps/v1"),
        as_protobuf(
            "internal.apiserver.k8s.io/v1alpha1",
            "StorageVersion",
            message((1, message((1, b"apps.deployments"))), (3, message((2, b"apps/v1")))),
        ),
    ],
    ids=["json", "protobuf"],
)
async def test_target_of_a_storage_version(value: bytes) -> None:
    """A StorageVersion gives the common version, in both formats; other versions are stale."""
    values = {**DEPLOYMENTS, "/registry/storageversions/apps.deployments": value}
    census = await census_of(values, "deployments.apps")
    count = only(census)
    assert count.target is not None
    assert (count.target.version, count.target.source) == ("apps/v1", "StorageVersion")
    assert census.verdict is CensusVerdict.STALE
    assert count.of(CensusVerdict.STALE) == 2
    assert count.of(CensusVerdict.RIGHT) == 2
    assert [row.keys for row in count.rows if row.verdict is CensusVerdict.STALE] == [
        ("/registry/deployments/default/c", "/registry/deployments/default/d")
    ]


async def test_core_group() -> None:
    """The core group has a special name in StorageVersion names."""
    values = {
        "/registry/pods/default/a": as_json("v1", "Pod"),
        "/registry/storageversions/core.pods": storage_version("v1"),
    }
    assert (await census_of(values, "pods")).verdict is CensusVerdict.RIGHT


@pytest.mark.parametrize("value", [storage_version(None), b"k8s:enc:aescbc:v1:k:?", b"?"])
async def test_no_agreement(value: bytes) -> None:
    """Without a common version, or a readable StorageVersion, there is no target."""
    values = {**DEPLOYMENTS, "/registry/storageversions/apps.deployments": value}
    assert (await census_of(values, "deployments")).verdict is CensusVerdict.UNDECIDED


async def test_target_of_a_crd() -> None:
    """A CRD gives the storage version of its custom resource."""
    key = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
    values = {**WIDGETS, key: definition("example.com", v1=False, v2=True)}
    count = only(await census_of(values, "widgets.example.com"))
    assert count.target is not None
    assert count.target.source == "CustomResourceDefinition"
    assert [(row.stored.api_version, row.verdict) for row in count.rows] == [
        ("example.com/v1", CensusVerdict.STALE),
        ("example.com/v2", CensusVerdict.RIGHT),
    ]


async def test_target_of_a_state() -> None:
    """With a StorageState alone, the hash of the stored version is compared with its hash."""
    current = storage_version_hash(GroupVersionKind("example.com", "v1", "Widget"))
    key = "/registry/migration.k8s.io/storagestates/widgets.example.com"
    values = {**WIDGETS, key: state("example.com", "widgets", current)}
    count = only(await census_of(values, "widgets"))
    assert [(row.stored.api_version, row.verdict) for row in count.rows] == [
        ("example.com/v1", CensusVerdict.RIGHT),
        ("example.com/v2", CensusVerdict.STALE),
    ]


async def test_order_of_targets() -> None:
    """The user's target precedes a StorageVersion, which precedes a CRD and a StorageState."""
    values = {
        "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com": definition(
            "example.com", v3=True
        ),
        **WIDGETS,
        "/registry/migration.k8s.io/storagestates/w": state("example.com", "widgets", "x"),
        "/registry/storageversions/example.com.widgets": storage_version("example.com/v2"),
    }
    assert only(await census_of(values, "widgets")).target == (
        only(await census_of(dict(reversed(values.items())), "widgets")).target
    )
    assert str(only(await census_of(values, "widgets")).target) == "example.com/v2"
    told = await census_of(values, "widgets", widgets="v1")
    assert str(only(told).target) == "example.com/v1"
    told = await census_of(values, "widgets", widgets__example__com="other.org/v9")
    assert str(only(told).target) == "other.org/v9"
    assert told.of(CensusVerdict.STALE) == 2


async def test_a_version_that_cannot_be_known() -> None:
    """Encrypted and unreadable objects count neither as current nor as stale."""
    values = {
        "/registry/secrets/default/a": as_protobuf("v1", "Secret"),
        "/registry/secrets/default/b": b"k8s:enc:secretbox:v1:k:?",
        "/registry/secrets/default/c": b"garbage",
    }
    census = await census_of(values, secrets="v1")
    assert census.verdict is CensusVerdict.UNDECIDED
    assert (census.of(CensusVerdict.RIGHT), census.of(CensusVerdict.UNDECIDED)) == (1, 2)
    assert [(resource, row.keys) for resource, row in census.unreadable] == [
        ("secrets", ("/registry/secrets/default/c",))
    ]


async def test_samples_are_bounded_and_in_order() -> None:
    """For any number and order of keys, the first few are kept, and all are counted."""
    values = {
        f"/registry/pods/default/{(number * 7919) % 1000:04}": as_json("v1", "Pod")
        for number in range(1000)
    }
    row = only(await census_of(values, samples_max=3)).rows[0]
    assert row.objects == 1000
    assert row.keys == tuple(f"/registry/pods/default/{number:04}" for number in range(3))


async def test_resources_without_a_name() -> None:
    """It is listed by its prefix, and can be selected by it."""
    values = {
        "/registry/ranges/serviceips": as_protobuf("v1", "RangeAllocation"),
        "/registry/alone": b"1",
        "/registry/masterleases/10.0.0.1": as_protobuf("v1", "Endpoints"),
    }
    assert [each.resource for each in (await census_of(values)).resources] == [
        "/registry/",
        "/registry/masterleases/",
        "/registry/ranges/",
    ]
    assert only(await census_of(values, "/registry/ranges/")).objects == 1


async def test_known_names() -> None:
    """A resource without objects is known if a StorageVersion or a CRD names it."""
    values = {
        **WIDGETS,
        "/registry/storageversions/example.com.gears": storage_version("example.com/v1"),
    }
    census = await census_of(values)
    assert census.knows("widgets")
    assert census.knows("gears.example.com")
    assert not census.knows("gadgets")
