"""Invalid options are rejected on construction, by any caller."""

import math
from pathlib import Path
from typing import Any

import pytest

from restow.apiserver.feature_gates import FeatureGates
from restow.apiserver.options import CoordinationOptions, ServeOptions

OFF = FeatureGates(storage_version_api=False)


def options(**given: Any) -> ServeOptions:
    return ServeOptions(data_dir=Path("d"), **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"identity_lease_duration_seconds": 0}, "duration-seconds 0 is not between 1 and 86400"),
        ({"identity_lease_duration_seconds": 86_401}, "is not between"),
        ({"identity_lease_duration_seconds": 10}, "5 must be above 0 and less than half of"),
        ({"identity_lease_renew_interval_seconds": 0.0}, "renew-interval-seconds 0 must be above"),
        ({"identity_lease_renew_interval_seconds": -1.0}, "must be above 0"),
        ({"identity_lease_renew_interval_seconds": math.nan}, "must be above 0"),
        (
            {"feature_gates": OFF, "coordination": CoordinationOptions(mode="vote")},
            "--coordination vote needs the feature gate StorageVersionAPI",
        ),
    ],
)
def test_refused(given: dict[str, Any], said: str) -> None:
    """A lease that one lost renewal would end, or votes without StorageVersions."""
    with pytest.raises(ValueError, match=said):
        options(**given)


def test_lease_bounds() -> None:
    """A lease of one second works if it is renewed often enough."""
    lease = {"identity_lease_duration_seconds": 1, "identity_lease_renew_interval_seconds": 0.3}
    assert options(**lease).identity_lease_duration_seconds == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"guarantee": "loose"}, "--guarantee loose .* --coordination vote"),
        ({"vote_bootstrap": "force"}, "--vote-bootstrap force .* --coordination vote"),
        ({"mode": "vote", "loose_bound_seconds": 0}, "--loose-bound-seconds 0 is not above 0"),
        ({"mode": "vote", "loose_bound_seconds": math.inf}, "--loose-bound-seconds inf"),
        ({"mode": "vote", "loose_bound_seconds": math.nan}, "--loose-bound-seconds nan"),
    ],
)
def test_refused_coordination(given: dict[str, Any], said: str) -> None:
    """Options of votes require the coordination mode vote."""
    with pytest.raises(ValueError, match=said):
        CoordinationOptions(**given)


def test_recorded_mode() -> None:
    """One value describes the coordination mode of a server."""
    assert options().recorded_mode == "report"
    assert options(feature_gates=OFF).recorded_mode == "off"
    vote = CoordinationOptions(mode="vote")
    assert options(coordination=vote).recorded_mode == "strict"
    loose = CoordinationOptions(mode="vote", guarantee="loose")
    assert options(coordination=loose).recorded_mode == "loose"


def test_a_bound_that_no_renewal_can_keep_is_refused(tmp_path: Path) -> None:
    """A loose server is confirmed with each renewal, so the bound must be longer."""
    loose = CoordinationOptions(mode="vote", guarantee="loose", loose_bound_seconds=10)
    with pytest.raises(ValueError, match="must be more than twice"):
        ServeOptions(data_dir=tmp_path, coordination=loose)
    ServeOptions(data_dir=tmp_path, coordination=loose, identity_lease_renew_interval_seconds=4.0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"front_bind": "127.0.0.1"}, "requires --front-port"),
        ({"front_port": 7000, "front_fds": (3,)}, "cannot be used together"),
        ({"front_port": 7000, "port": 7000}, "the same as --port"),
        ({"front_fds": (3, 3)}, "different numbers"),
        ({"front_fds": (1,)}, "different numbers >= 3"),
    ],
)
def test_a_front_port_that_cannot_be_is_refused(fields: dict[str, Any], words: str) -> None:
    """Errors name the front port options that contradict each other."""
    with pytest.raises(ValueError, match=words):
        ServeOptions(data_dir=Path("d"), **fields)
