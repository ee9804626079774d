"""Builders for the CRDs of this folder.

A `Family` is a CRD with objects of its kind: some that any server must accept, some that it must
refuse, each with the expected causes. Only data is built here; no requests are sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

API_VERSION: Final = "apiextensions.k8s.io/v1"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause in the Status of a refusal."""

    field: str
    reason: str
    message: str
    """Part of the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An object or a CRD that is refused, and why."""

    name: str
    obj: Json
    causes: tuple[Cause, ...]
    """All of them, in any order."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A value of a field, and the expected result; without a reason: accepted."""

    value: Any
    message: str = ""
    reason: str = ""
    field: str = "spec.a"


def yes(value: Any) -> Verdict:
    return Verdict(value)


def no(value: Any, message: str, *, reason: str = "FieldValueInvalid", at: str = "") -> Verdict:
    """`at` is the path inside the field; `<nil>`: no field is named."""
    return Verdict(value, message, reason, at if at == "<nil>" else f"spec.a{at}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A CRD, with objects of its kind."""

    definition: Json
    good: tuple[Json, ...] = ()
    bad: tuple[Refused, ...] = ()

    @property
    def name(self) -> str:
        return str(self.definition["metadata"]["name"])

    @property
    def group(self) -> str:
        return str(self.definition["spec"]["group"])

    @property
    def plural(self) -> str:
        return str(self.definition["spec"]["names"]["plural"])

    @property
    def kind(self) -> str:
        return str(self.definition["spec"]["names"]["kind"])

    @property
    def namespaced(self) -> bool:
        return bool(self.definition["spec"]["scope"] == "Namespaced")

    def path(self, *parts: str, version: str = "", namespace: str = "default") -> str:
        """Returns the path of the collection, of an object, or of a subresource."""
        version = version or self.definition["spec"]["versions"][0]["name"]
        place = f"/namespaces/{namespace}" if self.namespaced else ""
        return "/".join([f"/apis/{self.group}/{version}{place}/{self.plural}", *parts])


def definition(
    group: str,
    kind: str,
    versions: Sequence[Json],
    *,
    plural: str = "",
    scope: str = "Namespaced",
    names: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Json:
    """Builds a CustomResourceDefinition."""
    plural = plural or f"{kind.lower()}s"
    return {
        "apiVersion": API_VERSION,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"plural": plural, "kind": kind, **(names or {})},
            "scope": scope,
            "versions": list(versions),
            **spec,
        },
    }


def version(
    name: str,
    schema: Json | None,
    *,
    storage: bool = True,
    served: bool = True,
    columns: Sequence[Json] = (),
    status: bool = False,
    **more: Any,
) -> Json:
    """Builds one version of a CRD. A schema of None is left out."""
    made: Json = {"name": name, "served": served, "storage": storage}
    if schema is not None:
        made["schema"] = {"openAPIV3Schema": schema}
    if columns:
        made["additionalPrinterColumns"] = list(columns)
    if status:
        made["subresources"] = {"status": {}}
    return made | more


def column(name: str, path: str, kind: str = "string", **more: Any) -> Json:
    return {"name": name, "type": kind, "jsonPath": path, **more}


AGE: Final = column("Age", ".metadata.creationTimestamp", "date")


def struct(properties: Mapping[str, Any] | None = None, /, *required: str, **more: Any) -> Json:
    made: Json = {"type": "object"}
    if properties is not None:
        made["properties"] = dict(properties)
    if required:
        made["required"] = list(required)
    return made | more


def text(description: str = "", /, **more: Any) -> Json:
    return _scalar("string", description, more)


def integer(description: str = "", /, **more: Any) -> Json:
    return _scalar("integer", description, more)


def boolean(description: str = "", /, **more: Any) -> Json:
    return _scalar("boolean", description, more)


def _scalar(kind: str, description: str, more: Json) -> Json:
    return {"type": kind, **({"description": description} if description else {}), **more}


def array(items: Json, **more: Any) -> Json:
    return {"type": "array", "items": items, **more}


def list_map(items: Json, *keys: str, **more: Any) -> Json:
    """A list of type map, with its keys."""
    return array(
        items, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}, **more
    )


def mapping(values: Json, **more: Any) -> Json:
    return {"type": "object", "additionalProperties": values, **more}


def rule(expression: str, message: str = "", **more: Any) -> Json:
    return {"rule": expression, **({"message": message} if message else {}), **more}


UNCHECKED: Final = (
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid",
)
"""Additional cause when an object is too invalid for the rules of its schema to run."""

INT_OR_STRING: Final[Json] = {"x-kubernetes-int-or-string": True}
ANYTHING: Final[Json] = {"x-kubernetes-preserve-unknown-fields": True}


def conditions() -> Json:
    """The status conditions, one entry for each type."""
    return list_map(
        struct(
            {
                "type": text("What is said.", maxLength=316),
                "status": text(enum=["True", "False", "Unknown"]),
                "reason": text("A word for programs.", minLength=1),
                "message": text("A sentence for people.", maxLength=32768),
                "lastTransitionTime": text(format="date-time"),
                "observedGeneration": integer(format="int64", minimum=0),
            },
            "type",
            "status",
        ),
        "type",
    )


def instance(family_group: str, version_name: str, kind: str, name: str, **parts: Any) -> Json:
    return {
        "apiVersion": f"{family_group}/{version_name}",
        "kind": kind,
        "metadata": {"name": name},
        **parts,
    }


@dataclass(slots=True)
class Maker:
    """Builds objects of one kind, valid and invalid."""

    group: str
    version: str
    kind: str
    bad: list[Refused] = field(default_factory=list)

    def good(self, name: str, spec: Json | None = None, **parts: Any) -> Json:
        if spec is not None:
            parts = {"spec": spec, **parts}
        return instance(self.group, self.version, self.kind, name, **parts)

    def refuse(self, name: str, spec: Json, *causes: tuple[str, str, str]) -> None:
        """Adds an object that is refused for (field, reason, part of the message)."""
        blames = tuple(Cause(field=field, reason=reason, message=m) for field, reason, m in causes)
        self.bad.append(Refused(name=name, obj=self.good(name, spec), causes=blames))
