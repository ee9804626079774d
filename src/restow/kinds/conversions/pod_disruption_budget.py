"""Pod disruption budgets: an empty selector means "none" in `policy/v1beta1`, "all" in `policy/v1`.

Each version can express the other one's empty selector: with a requirement on a label that no pod
has. The label is reserved for that.

Not here: other fields, which are equal in both versions.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.conversion import Converter, Object, Spoke, part_of

RESERVED_LABEL: Final = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

_ALL_IN_V1BETA1: Final = {"matchExpressions": [{"key": RESERVED_LABEL, "operator": "DoesNotExist"}]}
_NONE_IN_V1: Final = {"matchExpressions": [{"key": RESERVED_LABEL, "operator": "Exists"}]}


def _to_v1(budget: Object) -> Object:
    return _with_selector(budget, empty=_NONE_IN_V1, becomes_empty=_ALL_IN_V1BETA1)


def _from_v1(budget: Object) -> Object:
    return _with_selector(budget, empty=_ALL_IN_V1BETA1, becomes_empty=_NONE_IN_V1)


def _with_selector(budget: Object, *, empty: Object, becomes_empty: Object) -> Object:
    spec = part_of(budget, "spec")
    selector = spec.get("selector")
    # An absent selector matches nothing in both versions.
    if selector is None:
        return budget
    changed: Any
    if _is_empty(selector):
        changed = empty
    elif selector == becomes_empty:
        changed = {}
    else:
        return budget
    return {**budget, "spec": {**spec, "selector": changed}}


def _is_empty(selector: Object) -> bool:
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


CONVERTER: Final = Converter(
    "PodDisruptionBudget.policy",
    hub="policy/v1",
    spokes={"policy/v1beta1": Spoke(_to_v1, _from_v1)},
)
