"""Feature gates by Kubernetes' names: parts of a server that can be switched off.

Values only. `--feature-gates A=true,B=false` becomes a `FeatureGates`; what cannot work is refused
with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    # Not loaded for `restow serve --help`.
    from restow.request.metrics import Metrics


class FeatureGate(NamedTuple):
    """A row of the table."""

    name: str
    field: str
    stage: Literal["ALPHA", "BETA"]
    about: str


GATES: Final = (
    FeatureGate(
        "APIServerIdentity",
        "api_server_identity",
        "BETA",
        "each server keeps a lease that says it lives",
    ),
    FeatureGate(
        "StorageVersionAPI",
        "storage_version_api",
        "BETA",
        "servers report in which version they write, and write nothing before",
    ),
    FeatureGate(
        "StorageVersionHash",
        "storage_version_hash",
        "BETA",
        "discovery shows the hash of each storage version",
    ),
)
_BY_NAME: Final = {gate.name: gate for gate in GATES}
# As Go reads a boolean, which is how people know this flag.
_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGates:
    """Which parts are on. Raises ValueError for parts that need one that is off."""

    # KEP-2339 3.48, 3.51: the feature gate
    storage_version_api: bool = True
    api_server_identity: bool = True
    # KEP-35 1.10: the feature gate of the hash; on, as in later releases of Kubernetes
    storage_version_hash: bool = True

    def __post_init__(self) -> None:
        if self.storage_version_api and not self.api_server_identity:
            # KEP-2339 3.51: it depends on APIServerIdentity
            raise ValueError(
                "feature gate StorageVersionAPI needs APIServerIdentity: a report belongs to a"
                " server that is known to live; switch both on, or both off"
            )

    def is_enabled(self, gate: FeatureGate) -> bool:
        return bool(getattr(self, gate.field))


def parse_feature_gates(texts: Iterable[str]) -> FeatureGates:
    """Read `A=true,B=false`, any number of times; the last word about a gate counts.

    Raises ValueError, naming the gates there are.
    """
    values: dict[str, bool] = {}
    for word in (word.strip() for text in texts for word in text.split(",")):
        if not word:
            continue
        name, equals, value = (part.strip() for part in word.partition("="))
        gate = _BY_NAME.get(name)
        if gate is None:
            raise ValueError(f"there is no feature gate {name!r}; {_known()}")
        if not equals or value not in _TRUE | _FALSE:
            raise ValueError(
                f"feature gate {name} is set to {value!r}, which is neither true nor false; "
                f"{_known()}"
            )
        values[gate.field] = value in _TRUE
    return FeatureGates(**values)


def publish(gates: FeatureGates, metrics: Metrics) -> None:
    """Show on `/metrics` which gates are on."""
    metrics.gauge(
        "kubernetes_feature_enabled",
        "Whether a feature gate is on: 1 or 0.",
        ("name", "stage"),
        lambda: [((gate.name, gate.stage), float(gates.is_enabled(gate))) for gate in GATES],
    )


def _known() -> str:
    return f"known are {', '.join(f'{gate.name}=true|false' for gate in GATES)}"
