"""Priority levels: `assuredConcurrencyShares` was renamed to `nominalConcurrencyShares`.

Not here: the defaults of the shares.
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.conversion import (
    SAME_SHAPE,
    Converter,
    Object,
    Spoke,
    part_of,
    renamed_keys,
)

_GROUP: Final = "flowcontrol.apiserver.k8s.io"
_OLD: Final = "assuredConcurrencyShares"
_NEW: Final = "nominalConcurrencyShares"


def _to_v1(level: Object) -> Object:
    return _with_limited(level, {_OLD: _NEW})


def _from_v1(level: Object) -> Object:
    return _with_limited(level, {_NEW: _OLD})


def _with_limited(level: Object, names: dict[str, str]) -> Object:
    spec = part_of(level, "spec")
    limited = part_of(spec, "limited")
    if names.keys().isdisjoint(limited):
        return level
    return {**level, "spec": {**spec, "limited": renamed_keys(limited, names)}}


_OLD_SHARES: Final = Spoke(_to_v1, _from_v1)

CONVERTER: Final = Converter(
    f"PriorityLevelConfiguration.{_GROUP}",
    hub=f"{_GROUP}/v1",
    spokes={
        f"{_GROUP}/v1beta3": SAME_SHAPE,
        f"{_GROUP}/v1beta2": _OLD_SHARES,
        f"{_GROUP}/v1beta1": _OLD_SHARES,
    },
)
