"""Type checking of ValidatingAdmissionPolicies, with the types of the kinds that they match.

A policy is compiled without types when it is written, since it may match any kind. Kinds that its
rules name explicitly have types, though, and an access to a field that they do not have is found
here. The result is a warning for the author; it does not change what the policy does.

    kinds_named     the kinds that the rules name, without wildcards
    check           warnings for each expression

As in kube-apiserver: rules with a wildcard in groups or versions are skipped, and so are wildcards
and subresources among resources; the number of kinds is limited, here for all rules together; match
conditions are not checked.

Not here: when this runs, and the status (`admission_policies`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from restow.apimachinery.errors import MachineryError
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.structural.cel.admission import Scope
from restow.apimachinery.structural.cel.object_types import declare_custom, declare_struct
from restow.apimachinery.structural.cel.program import CompileError
from restow.apimachinery.structural.cel.types import Declared
from restow.apimachinery.types import UnknownType
from restow.kinds.derived_types import all_types
from restow.registry.catalog import Catalog
from restow.registry.custom.shape import CustomShape
from restow.registry.resource import Object, Resource

KINDS_MAX: Final = 10
"""Limit of the kinds that one policy is checked with."""
WARNINGS_BYTES_MAX: Final = 64 * 1024
"""Limit of all warnings about a policy, which are stored in its status."""
OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_EXPRESSIONS: Final = ("expression", "messageExpression")


class NamedKind(NamedTuple):
    """A version of a kind, and its resource."""

    group: str
    version: str
    kind: str
    resource: Resource

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


def kinds_named(spec: Object, catalog: Catalog) -> list[NamedKind]:
    """Return the kinds that a policy's rules name and that are hosted here, sorted; other kinds
    have no known types."""
    found: dict[tuple[str, str, str], NamedKind] = {}
    constraints = spec.get("matchConstraints") or {}
    for rule in constraints.get("resourceRules") or ():
        groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
        if any("*" in each for each in (*groups, *versions)):
            continue
        resources = [each for each in rule.get("resources") or () if not {"*", "/"} & set(each)]
        for group, version, plural in _each(groups, versions, resources):
            resource = catalog.find(group, version, plural)
            if resource is None:
                continue
            kind = resource.kind.kind
            found[group, version, kind] = NamedKind(group, version, kind, resource)
            if len(found) == KINDS_MAX:
                return [found[key] for key in sorted(found)]
    return [found[key] for key in sorted(found)]


def _each(*names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    groups, versions, resources = (sorted(set(each)) for each in names)
    for group in groups:
        for version in versions:
            for plural in resources:
                yield group, version, plural


def _typed_params(spec: Object, catalog: Catalog) -> Declared | None:
    """Return the type of a policy's parameters; None if it has none, or if the type is unknown."""
    param_kind = spec.get("paramKind")
    if not param_kind:
        return None
    try:
        group, version = GroupVersion.parse(param_kind.get("apiVersion") or "")
    except MachineryError:
        return None
    kind = param_kind.get("kind") or ""
    resource = catalog.of_kind(group, kind)
    return None if resource is None else _declared(NamedKind(group, version, kind, resource))


def _declared(named: NamedKind) -> Declared | None:
    if not named.resource.is_custom:
        struct = all_types().of_kind(named.group, named.version, named.kind)
        return None if struct is None else declare_struct(struct)
    shape = named.resource.shape
    assert isinstance(shape, CustomShape)
    try:
        # Read once, for this and for its objects: compiling the schema of a large kind is slow.
        version = shape.versions.get(f"{named.group}/{named.version}")
        schema = None if version is None else version.schema
        metadata = declare_struct(all_types().struct(OBJECT_META))
    except (StatusError, MachineryError, UnknownType):
        return None  # writes of such objects report the error
    return None if schema is None else declare_custom(schema.schema, metadata)


def check(spec: Object, catalog: Catalog) -> Iterator[dict[str, Any] | None]:
    """Yield a warning for each expression of a policy that has issues, in order; None between
    steps.

    Each step is short, so that the caller can yield to other tasks in between.
    """
    left_bytes = WARNINGS_BYTES_MAX
    params = _typed_params(spec, catalog)
    scopes: list[tuple[NamedKind, Scope]] = []
    for named in kinds_named(spec, catalog):
        declared = _declared(named)
        if declared is not None:
            scopes.append((named, _scope(spec, declared, params)))
        yield None
    for number, validation in enumerate(spec.get("validations") or ()):
        for name in _EXPRESSIONS:
            if not validation.get(name):
                continue
            texts = []
            for named, scope in scopes:
                if issues := scope.issues(validation[name]):
                    texts.append(f"{named}: {issues}\n")
                yield None
            if texts:
                warning = "\n".join(texts)
                left_bytes -= len(warning.encode())
                if left_bytes < 0:
                    return  # enough warnings
                yield {"fieldRef": f"spec.validations[{number}].{name}", "warning": warning}


def _scope(spec: Object, declared: Declared, params: Declared | None) -> Scope:
    """Return the scope of the expressions of a policy, for objects of one kind."""
    scope = Scope(
        has_params=bool(spec.get("paramKind")),
        has_variables=True,
        object_type=declared,
        params_type=params,
    )
    for variable in spec.get("variables") or ():
        try:
            scope.name(variable.get("name") or "", variable.get("expression") or "")
        except CompileError:
            continue  # the variable has type dyn; its own error is reported elsewhere
        except RecursionError:
            continue  # too deep to be checked
    return scope
