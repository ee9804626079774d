"""The expressions of a policy, checked with the types of the kinds that it is about.

A policy is compiled without types when it is written, since it can be about anything. What its
rules name one by one has types, though, and a field that such objects never have is found here: a
warning for its author, which changes nothing about what the policy does.

    kinds_named     the kinds that the rules name, without wildcards
    check           warnings, expression by expression

As in the reference: rules with a wildcard in groups or versions are left out, so are wildcards and
subresources among resources; so many kinds at most, here of all rules together; conditions are not
checked.

Not here: when this is done, and where it is written (`admission_policies`).
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
"""Kinds that one policy is checked with."""
WARNINGS_BYTES_MAX: Final = 64 * 1024
"""Of all warnings about a policy: they are stored with it."""
OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_EXPRESSIONS: Final = ("expression", "messageExpression")


class NamedKind(NamedTuple):
    """A version of a kind, and the resource that holds such objects."""

    group: str
    version: str
    kind: str
    resource: Resource

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


def kinds_named(spec: Object, catalog: Catalog) -> list[NamedKind]:
    """The kinds that a policy's rules name and that are hosted here, in the order of their names;
    others are not known here."""
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
    """What the parameters of a policy are; None if it takes none, or if that is not known."""
    said = spec.get("paramKind")
    if not said:
        return None
    try:
        group, version = GroupVersion.parse(said.get("apiVersion") or "")
    except MachineryError:
        return None
    kind = said.get("kind") or ""
    resource = catalog.of_kind(group, kind)
    return None if resource is None else _declared(NamedKind(group, version, kind, resource))


def _declared(named: NamedKind) -> Declared | None:
    if not named.resource.is_custom:
        struct = all_types().of_kind(named.group, named.version, named.kind)
        return None if struct is None else declare_struct(struct)
    shape = named.resource.shape
    assert isinstance(shape, CustomShape)
    try:
        # Read once, for this and for its objects: the schema of a large kind takes a while.
        version = shape.versions.get(f"{named.group}/{named.version}")
        schema = None if version is None else version.schema
        metadata = declare_struct(all_types().struct(OBJECT_META))
    except (StatusError, MachineryError, UnknownType):
        return None  # whoever writes such objects will be told
    return None if schema is None else declare_custom(schema.schema, metadata)


def check(spec: Object, catalog: Catalog) -> Iterator[dict[str, Any] | None]:
    """What is wrong with each expression of a policy, in their order; None if nothing is.

    Some work between two values, so that others can be served meanwhile.
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
            told = []
            for named, scope in scopes:
                if issues := scope.issues(validation[name]):
                    told.append(f"{named}: {issues}\n")
                yield None
            if told:
                warning = "\n".join(told)
                left_bytes -= len(warning.encode())
                if left_bytes < 0:
                    return  # the author has enough to do
                yield {"fieldRef": f"spec.validations[{number}].{name}", "warning": warning}


def _scope(spec: Object, declared: Declared, params: Declared | None) -> Scope:
    """What the expressions of a policy may name, if all objects are of one kind."""
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
            continue  # it has any type then, and what reads it is not to blame
        except RecursionError:
            continue  # nobody can tell
    return scope
