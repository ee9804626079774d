"""Feature gates: parsing, rejected values, metrics."""

import pytest

from restow.apiserver.feature_gates import GATES, FeatureGates, parse_feature_gates, publish
from restow.request.metrics import Metrics


def test_default() -> None:
    """All features are enabled by default."""
    assert parse_feature_gates([]) == FeatureGates()
    assert all(FeatureGates().is_enabled(gate) for gate in GATES)


def test_reading() -> None:
    """Lists and repetitions accumulate, the last value counts, and booleans are parsed as in Go."""
    assert parse_feature_gates(["StorageVersionHash=false"]).storage_version_hash is False
    off = FeatureGates(storage_version_api=False, api_server_identity=False)
    assert parse_feature_gates(["StorageVersionAPI=F, APIServerIdentity=0"]) == off
    assert parse_feature_gates(["StorageVersionAPI=false", "", "APIServerIdentity=FALSE,"]) == off
    twice = ["StorageVersionHash=false", "StorageVersionHash=true"]
    assert parse_feature_gates(twice) == FeatureGates()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Storage=true", "unknown feature gate 'Storage'"),
        ("storageversionapi=true", "unknown feature gate 'storageversionapi'"),
        ("=true", "unknown feature gate ''"),
        ("StorageVersionAPI", "StorageVersionAPI is set to ''"),
        ("StorageVersionAPI=", "StorageVersionAPI is set to ''"),
        ("StorageVersionAPI=yes", "StorageVersionAPI is set to 'yes'"),
        ("StorageVersionAPI=true=true", "StorageVersionAPI is set to 'true=true'"),
    ],
)
def test_invalid_values(text: str, said: str) -> None:
    """The error names an unknown gate or value, and lists the known gates."""
    with pytest.raises(ValueError, match=said) as caught:
        parse_feature_gates(["StorageVersionHash=true", text])
    assert all(gate.name in str(caught.value) for gate in GATES)


def test_invalid_combination() -> None:
    """StorageVersionAPI without APIServerIdentity is rejected with the reason."""
    with pytest.raises(ValueError, match="StorageVersionAPI needs APIServerIdentity: "):
        parse_feature_gates(["APIServerIdentity=false"])
    assert not parse_feature_gates(["StorageVersionAPI=false"]).storage_version_api


def test_metric() -> None:
    """/metrics shows each gate with its stage, enabled or disabled."""
    metrics = Metrics()
    publish(FeatureGates(storage_version_hash=False), metrics)
    lines = metrics.document().decode().splitlines()
    for line in (
        'kubernetes_feature_enabled{name="APIServerIdentity",stage="BETA"} 1.0',
        'kubernetes_feature_enabled{name="StorageVersionAPI",stage="BETA"} 1.0',
        'kubernetes_feature_enabled{name="StorageVersionHash",stage="BETA"} 0.0',
    ):
        assert line in lines
