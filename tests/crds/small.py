"""Small CRDs, each for one aspect: the minimum, a scale, a cluster-scoped kind, an old schema."""

from __future__ import annotations

from typing import Any, Final

from tests.crds.building import (
    ANYTHING,
    Family,
    Maker,
    array,
    boolean,
    column,
    definition,
    integer,
    mapping,
    struct,
    text,
    version,
)

GROUP: Final = "small.example.org"


def families(group: str = GROUP) -> list[Family]:
    return [minimal(group), scalable(group), cluster_wide(group), old(group)]


def minimal(group: str = GROUP, **spec: Any) -> Family:
    """Only the required fields of a CRD: every field of its objects is pruned."""
    make = Maker(group, "v1", "Nothing")
    made = definition(group, "Nothing", [version("v1", struct())], plural="nothings", **spec)
    return Family(definition=made, good=(make.good("a"),))


def widget(group: str = GROUP, *, more: dict[str, Any] | None = None, **traits: Any) -> Family:
    """A kind with a few fields, for tests of other aspects."""
    schema = struct(
        {
            "spec": struct(
                {
                    "size": integer(minimum=0),
                    "colour": text(default="grey"),
                    "tags": array(text()),
                    "options": mapping(text()),
                    "enabled": boolean(),
                }
            ),
            "status": struct({"phase": text(), "size": integer()}),
        }
    )
    make = Maker(group, "v1", "Widget")
    made = definition(group, "Widget", [version("v1", schema, **traits)], **(more or {}))
    return Family(definition=made, good=(make.good("a", {"size": 1}),))


def scalable(group: str = GROUP) -> Family:
    """A kind with a scale subresource."""
    make = Maker(group, "v1", "Squad")
    schema = struct(
        {
            "spec": struct({"replicas": integer(minimum=0, default=1, format="int32")}),
            "status": struct({"replicas": integer(), "selector": text()}),
        }
    )
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    one = version(
        "v1",
        schema,
        columns=[column("Wanted", ".spec.replicas", "integer")],
        subresources={"status": {}, "scale": scale},
    )
    make.refuse(
        "negative",
        {"replicas": -1},
        (".spec.replicas", "FieldValueInvalid", "Invalid value: -1: should be a non-negative int"),
        (
            "spec.replicas",
            "FieldValueInvalid",
            "Invalid value: -1: spec.replicas in body should be greater than or equal to 0",
        ),
    )
    return Family(
        definition=definition(group, "Squad", [one]),
        good=(make.good("alpha", {"replicas": 3}), make.good("beta", {})),
        bad=tuple(make.bad),
    )


def cluster_wide(group: str = GROUP) -> Family:
    """A kind without a namespace."""
    make = Maker(group, "v1", "Territory")
    schema = struct({"spec": struct({"area": integer(minimum=1)}, "area")}, "spec")
    made = definition(
        group,
        "Territory",
        [version("v1", schema)],
        plural="territories",
        scope="Cluster",
        names={"singular": "territory", "listKind": "TerritoryList", "shortNames": ["ter"]},
    )
    make.refuse(
        "no-area",
        {"area": 0},
        (
            "spec.area",
            "FieldValueInvalid",
            "Invalid value: 0: spec.area in body should be greater than or equal to 1",
        ),
    )
    return Family(definition=made, good=(make.good("north", {"area": 5}),), bad=tuple(make.bad))


def old(group: str = GROUP) -> Family:
    """A kind without a structural schema: it preserves every field."""
    make = Maker(group, "v1", "Relic")
    made = definition(group, "Relic", [version("v1", struct(**ANYTHING))])
    good = make.good("any", {"a": {"b": [1, None, "c"]}}, extra={"kept": True})
    return Family(definition=made, good=(good,))
