"""Feature gates: what is read, what is refused, what is shown."""

import pytest

from restow.apiserver.feature_gates import GATES, FeatureGates, parse_feature_gates, publish
from restow.request.metrics import Metrics


def test_default() -> None:
    """All that restow is for is on."""
    assert parse_feature_gates([]) == FeatureGates()
    assert all(FeatureGates().is_enabled(gate) for gate in GATES)


def test_reading() -> None:
    """Lists and repetitions add up, the last word counts, and booleans are as Go reads them."""
    assert parse_feature_gates(["StorageVersionHash=false"]).storage_version_hash is False
    off = FeatureGates(storage_version_api=False, api_server_identity=False)
    assert parse_feature_gates(["StorageVersionAPI=F, APIServerIdentity=0"]) == off
    assert parse_feature_gates(["StorageVersionAPI=false", "", "APIServerIdentity=FALSE,"]) == off
    twice = ["StorageVersionHash=false", "StorageVersionHash=true"]
    assert parse_feature_gates(twice) == FeatureGates()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Storage=true", "no feature gate 'Storage'"),
        ("storageversionapi=true", "no feature gate 'storageversionapi'"),
        ("=true", "no feature gate ''"),
        ("StorageVersionAPI", "StorageVersionAPI is set to ''"),
        ("StorageVersionAPI=", "StorageVersionAPI is set to ''"),
        ("StorageVersionAPI=yes", "StorageVersionAPI is set to 'yes'"),
        ("StorageVersionAPI=true=true", "StorageVersionAPI is set to 'true=true'"),
    ],
)
def test_bad_words(text: str, said: str) -> None:
    """An unknown gate or value is named, and so are all gates that there are."""
    with pytest.raises(ValueError, match=said) as caught:
        parse_feature_gates(["StorageVersionHash=true", text])
    assert all(gate.name in str(caught.value) for gate in GATES)


def test_what_cannot_work() -> None:
    """Reports without identities are refused, with the reason."""
    with pytest.raises(ValueError, match="StorageVersionAPI needs APIServerIdentity: "):
        parse_feature_gates(["APIServerIdentity=false"])
    assert not parse_feature_gates(["StorageVersionAPI=false"]).storage_version_api


def test_metric() -> None:
    """/metrics shows each gate with its stage, on or off."""
    metrics = Metrics()
    publish(FeatureGates(storage_version_hash=False), metrics)
    lines = metrics.document().decode().splitlines()
    for line in (
        'kubernetes_feature_enabled{name="APIServerIdentity",stage="BETA"} 1.0',
        'kubernetes_feature_enabled{name="StorageVersionAPI",stage="BETA"} 1.0',
        'kubernetes_feature_enabled{name="StorageVersionHash",stage="BETA"} 0.0',
    ):
        assert line in lines
