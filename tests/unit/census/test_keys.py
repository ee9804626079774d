"""Objects that are still encrypted with one key."""

import pytest

from restow.census import count_key, take_census
from restow.census.keys import is_under
from restow.census.values import read_value
from tests.unit.census.stores import as_json
from tests.unit.census.test_tally import Values

GCM1 = b"k8s:enc:aesgcm:v1:key1:?"
CBC1 = b"k8s:enc:aescbc:v1:key1:?"
KMS = b"k8s:enc:kms:v2:vault:\x12\x02k7"
KMS_ODD = b"k8s:enc:kms:v2:vault:?"
BROKEN = b"k8s:enc:aesgcm:"
PLAIN = as_json("v1", "Secret")


@pytest.mark.parametrize(
    ("value", "key", "is_left"),
    [
        (GCM1, "key1", True),
        (GCM1, "aesgcm:key1", True),
        (GCM1, "aesgcm:key1:6f1d0c3b9a52", True),
        (GCM1, "aescbc:key1", False),
        (GCM1, "key2", False),
        (GCM1, "aesgcm", False),
        (GCM1, "identity", False),
        (CBC1, "key1", True),
        (KMS, "vault", True),
        (KMS, "kms:vault", True),
        (KMS, "kms:vault:k7", True),
        (KMS, "kms:vault:k8", False),
        (KMS, "kms:other:k7", False),
        (KMS_ODD, "kms:vault:k7", None),
        (KMS_ODD, "kms:vault", True),
        (BROKEN, "aesgcm:key1", None),
        (BROKEN, "identity", False),
        (PLAIN, "identity", True),
        (PLAIN, "aesgcm:key1", False),
        (b"garbage", "identity", False),
        (b"garbage", "aesgcm:key1", False),
    ],
)
def test_under_which_key(value: bytes, key: str, is_left: bool | None) -> None:
    """By name, by provider and name, by the ID of a plug-in's key; None if unknown."""
    assert is_under(read_value(value), key) is is_left


async def test_all_resources_are_counted() -> None:
    """Including unexpected resources; without objects the count is zero."""
    census = await take_census(
        Values(
            {
                "/registry/secrets/default/a": GCM1,
                "/registry/secrets/default/b": CBC1,
                "/registry/example.com/widgets/default/a": GCM1,
                "/registry/odd/a": GCM1,
                "/registry/configmaps/default/a": BROKEN,
            }
        )
    )
    found = count_key(census, "aesgcm:key1")
    assert found.objects == 3
    assert {name for name, _ in found.left} == {"secrets", "widgets.example.com", "/registry/odd/"}
    assert [name for name, _ in found.undecided] == ["configmaps"]
    assert count_key(census, "aesgcm:key2").objects == 0
    assert count_key(census, "key1", is_counted=lambda name: name == "secrets").objects == 2
