"""Events: `v1` of the core group is stored; `events.k8s.io` has other names for most fields.

Every field has a counterpart, so the conversion only renames fields and loses nothing.

Not here: the required fields of an event in each group (`restow.kinds.validation`).
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.conversion import Converter, Object, Spoke, renamed_keys

_TO_CORE: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_FROM_CORE: Final = {new: old for old, new in _TO_CORE.items()}


def _to_core(event: Object) -> Object:
    return renamed_keys(event, _TO_CORE)


def _from_core(event: Object) -> Object:
    return renamed_keys(event, _FROM_CORE)


_SPOKE: Final = Spoke(_to_core, _from_core)

CONVERTER: Final = Converter(
    "Event", hub="v1", spokes={"events.k8s.io/v1": _SPOKE, "events.k8s.io/v1beta1": _SPOKE}
)
