"""Feature gates with Kubernetes' names, which disable parts of a server.

Values only. `--feature-gates A=true,B=false` becomes a `FeatureGates`; an invalid combination is
rejected with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    # Not imported for `restow serve --help`.
    from restow.request.metrics import Metrics


class FeatureGate(NamedTuple):
    """One row of the table."""

    name: str
    field: str
    stage: Literal["ALPHA", "BETA"]
    about: str


GATES: Final = (
    FeatureGate(
        "APIServerIdentity",
        "api_server_identity",
        "BETA",
        "each server holds a lease that shows that it is running",
    ),
    FeatureGate(
        "StorageVersionAPI",
        "storage_version_api",
        "BETA",
        "servers report the version in which they write, and write only after that",
    ),
    FeatureGate(
        "StorageVersionHash",
        "storage_version_hash",
        "BETA",
        "discovery contains the storage version hash of each resource",
    ),
)
_BY_NAME: Final = {gate.name: gate for gate in GATES}
# The spellings that Go's ParseBool accepts, as in Kubernetes.
_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGates:
    """The enabled features. Raises ValueError for a gate that depends on a disabled one."""

    # KEP-2339 3.48, 3.51: the feature gate
    storage_version_api: bool = True
    api_server_identity: bool = True
    # KEP-35 1.10: the feature gate of the hash; on, as in later releases of Kubernetes
    storage_version_hash: bool = True

    def __post_init__(self) -> None:
        if self.storage_version_api and not self.api_server_identity:
            # KEP-2339 3.51: it depends on APIServerIdentity
            raise ValueError(
                "feature gate StorageVersionAPI needs APIServerIdentity: entries of a"
                " StorageVersion belong to servers that hold a lease; enable both, or disable both"
            )

    def is_enabled(self, gate: FeatureGate) -> bool:
        return bool(getattr(self, gate.field))


def parse_feature_gates(texts: Iterable[str]) -> FeatureGates:
    """Parse `A=true,B=false`, any number of times; the last value of a gate counts.

    Raises ValueError that lists the known gates.
    """
    values: dict[str, bool] = {}
    for word in (word.strip() for text in texts for word in text.split(",")):
        if not word:
            continue
        name, equals, value = (part.strip() for part in word.partition("="))
        gate = _BY_NAME.get(name)
        if gate is None:
            raise ValueError(f"unknown feature gate {name!r}; {_known()}")
        if not equals or value not in _TRUE | _FALSE:
            raise ValueError(
                f"feature gate {name} is set to {value!r}, which is neither true nor false; "
                f"{_known()}"
            )
        values[gate.field] = value in _TRUE
    return FeatureGates(**values)


def publish(gates: FeatureGates, metrics: Metrics) -> None:
    """Export on `/metrics` which gates are enabled."""
    metrics.gauge(
        "kubernetes_feature_enabled",
        "Whether a feature gate is enabled: 1 or 0.",
        ("name", "stage"),
        lambda: [((gate.name, gate.stage), float(gates.is_enabled(gate))) for gate in GATES],
    )


def _known() -> str:
    return f"known gates: {', '.join(f'{gate.name}=true|false' for gate in GATES)}"
