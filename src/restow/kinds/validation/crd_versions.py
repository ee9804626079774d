"""Validation of the versions of a CustomResourceDefinition: schemas, subresources, columns.

If all versions have the same schema, subresources or columns, they are validated once, and errors
refer to `spec` itself, as in kube-apiserver.

Not here: rules of schemas (`restow.apimachinery.structural`), and names, scope and conversion.
"""

from __future__ import annotations

import re
from typing import Any, Final

from restow.apimachinery import field_errors as errors
from restow.apimachinery.name_formats import dns_1035_label_problem
from restow.apimachinery.status import BadRequest
from restow.apimachinery.structural.schema import Schema, read_schema
from restow.apimachinery.structural.schema_rules import (
    STRICT,
    Leniency,
    definition_problems,
    leniency_of,
)
from restow.kinds.validation.fields import Causes, Object, listed, part

SELECTABLE_FIELDS_MAX: Final = 8
WARNING_BYTES_MAX: Final = 256
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = (
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
)
_SELECTABLE_TYPES: Final = frozenset({"string", "boolean", "integer"})
# The parts of a version, in the order of validation.
_PARTS: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_PATH_PIECE: Final = re.compile(r"[.\[\]]|[^.\[\]]+")


def check_versions(spec: Object, old: Object | None) -> tuple[Causes, Causes]:
    """Return errors of single versions, and of parts that are the same in all versions."""
    return _Versions(spec, part(old, "spec")).check()


class _Versions:
    """All versions of a CRD, and those of the old object."""

    def __init__(self, spec: Object, before: Object) -> None:
        self.versions = list(listed(spec, "versions", "spec.versions"))
        self.old_versions = [version for _, version in listed(before, "versions", "")]
        self.preserves = spec.get("preserveUnknownFields") is True
        self.stops_preserving = before.get("preserveUnknownFields") is True and not self.preserves
        self._read: dict[int, Schema | None] = {}
        self._leniency: Leniency | None = None

    def check(self) -> tuple[Causes, Causes]:
        single, for_all = Causes(), Causes()
        self._missing_schemas(single)
        shared = {name for name in _PARTS if self._is_shared(name)}
        if "schema" not in shared:
            # Selectable fields may exist in one schema and not in another.
            shared.discard("selectableFields")
        for where, version in self.versions:
            name = version.get("name") or ""
            if problem := dns_1035_label_problem(name):
                single.invalid(f"{where}.name", name, problem)
            _check_warning(single, version, where)
            for part_name in _PARTS:
                if part_name not in shared:
                    self._check_part(single, version, part_name, f"{where}.{part_name}")
        if self.versions:
            for part_name in _PARTS:
                if part_name in shared:
                    where = "spec.validation" if part_name == "schema" else f"spec.{part_name}"
                    self._check_part(for_all, self.versions[0][1], part_name, where)
        return single, for_all

    def _is_shared(self, name: str) -> bool:
        if not self.versions:
            return False
        first = _part_value(self.versions[0][1], name)
        return all(_part_value(version, name) == first for _, version in self.versions)

    def _missing_schemas(self, causes: Causes) -> None:
        was_complete = all(_schema_of(version) is not None for version in self.old_versions)
        for where, version in self.versions:
            at = f"{where}.schema.openAPIV3Schema"
            if _schema_of(version) is not None:
                continue
            if was_complete:
                causes.required(at)
            elif version.get("served") and not self.preserves:
                causes.required(at, "because otherwise all fields are pruned")

    def _check_part(self, causes: Causes, version: Object, name: str, where: str) -> None:
        match name:
            case "schema":
                self._check_schema(causes, version, f"{where}.openAPIV3Schema")
            case "subresources":
                _check_scale(causes, part(version, "subresources"), f"{where}.scale")
            case "additionalPrinterColumns":
                for at, column in listed(version, name, where):
                    _check_column(causes, column, at)
            case "selectableFields":
                self._check_selectable(causes, version, where)

    def _check_schema(self, causes: Causes, version: Object, where: str) -> None:
        raw = _schema_of(version)
        if raw is None or self._was_accepted(version):
            return
        try:
            schema = self._read[id(raw)] = read_schema(raw)
        except BadRequest as error:
            # Types were checked before: only the limits of the parser are left.
            self._read[id(raw)] = None
            why = error.message.rpartition(": ")[2]
            causes.invalid(where, "", why)
            return
        has_status = _has_status(version)
        found = definition_problems(schema, path=where, has_status=has_status)
        if found and self.old_versions:
            leniency = self._granted()
            if leniency != STRICT:
                found = definition_problems(
                    schema, path=where, has_status=has_status, leniency=leniency
                )
        causes += found

    def _was_accepted(self, version: Object) -> bool:
        """Whether a version of the old object had the same schema."""
        if self.stops_preserving:
            return False
        raw, has_status = _schema_of(version), _has_status(version)
        return any(
            _schema_of(each) == raw and (_has_status(each) or not has_status)
            for each in self.old_versions
        )

    def _granted(self) -> Leniency:
        """Return the exceptions that apply because the old object needs them."""
        if self._leniency is None:
            schemas = []
            for version in self.old_versions:
                try:
                    schemas.append(read_schema(_schema_of(version) or {}))
                except BadRequest:
                    continue
            self._leniency = leniency_of(schemas)
        return self._leniency

    def _check_selectable(self, causes: Causes, version: Object, where: str) -> None:
        fields = list(listed(version, "selectableFields", where))
        raw = _schema_of(version)
        if not fields:
            return
        if raw is None:
            why = "may only be set when `version.schema.openAPIV3Schema` is not included"
            causes.invalid(where, "", why)
            return
        if id(raw) not in self._read:
            try:
                self._read[id(raw)] = read_schema(raw)
            except BadRequest:
                self._read[id(raw)] = None
        schema = self._read[id(raw)]
        if schema is None:
            return
        count = _check_selectable_paths(causes, fields, schema)
        was_same = any(
            each.get("name") == version.get("name")
            and each.get("selectableFields") == version.get("selectableFields")
            for each in self.old_versions
        )
        if count > SELECTABLE_FIELDS_MAX and not was_same:
            causes.too_many(where, count=count, count_max=SELECTABLE_FIELDS_MAX)


def _part_value(version: Object, name: str) -> Any:
    """The value of a part of a version; an empty list counts as absent."""
    found = version.get(name)
    return None if found == [] else found


def _schema_of(version: Object) -> Object | None:
    found = part(version, "schema").get("openAPIV3Schema")
    return found if isinstance(found, dict) else None


def _has_status(version: Object) -> bool:
    return part(version, "subresources").get("status") is not None


def _check_warning(causes: Causes, version: Object, where: str) -> None:
    """Validate the deprecation warning: it becomes a response header, so it must be short text."""
    text = version.get("deprecationWarning")
    if text is None:
        return
    problems = []
    if not version.get("deprecated"):
        problems.append("can only be set for deprecated versions")
    else:
        if len(text.encode(errors="replace")) > WARNING_BYTES_MAX:
            problems.append(f"must be <= {WARNING_BYTES_MAX} characters long")
        if not text:
            problems.append("must not be an empty string")
        for index, each in enumerate(text):
            if not each.isprintable():
                at = len(text[:index].encode(errors="replace"))
                problems.append(
                    "must only contain printable UTF-8 characters; non-printable character found "
                    f"at index {at}"
                )
                break
    causes += [errors.invalid(f"{where}.deprecationWarning", text, why) for why in problems]


def _check_scale(causes: Causes, subresources: Object, where: str) -> None:
    scale = subresources.get("scale")
    if not isinstance(scale, dict):
        return
    for name, beginning in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        at, path = f"{where}.{name}", scale.get(name) or ""
        if not path:
            causes.required(at)
        elif problem := _path_problem(path):
            causes.invalid(at, path, problem)
        elif not path.startswith(beginning):
            causes.invalid(at, path, f"should be a json path under {beginning[:-1]}")
    at, path = f"{where}.labelSelectorPath", scale.get("labelSelectorPath") or ""
    if not path:
        return
    if problem := _path_problem(path):
        causes.invalid(at, path, problem)
    elif not path.startswith((".spec.", ".status.")):
        causes.invalid(at, path, "should be a json path under either .spec or .status")


def _check_column(causes: Causes, column: Object, where: str) -> None:
    if not column.get("name"):
        causes.required(f"{where}.name")
    type_, format_, path = (column.get(name) or "" for name in ("type", "format", "jsonPath"))
    why = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not type_:
        causes.required(f"{where}.type", why)
    elif type_ not in _COLUMN_TYPES:
        causes.invalid(f"{where}.type", type_, why)
    if format_ and format_ not in _COLUMN_FORMATS:
        causes.invalid(f"{where}.format", format_, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not path:
        causes.required(f"{where}.JSONPath")
    elif problem := _path_problem(path):
        causes.invalid(f"{where}.JSONPath", path, problem)


def _path_problem(path: str) -> str | None:
    return None if path.startswith(".") else "must be a simple json path starting with ."


def _check_selectable_paths(
    causes: Causes, fields: list[tuple[str, Object]], schema: Schema
) -> int:
    """Check that each path refers to a scalar; return the number of distinct paths."""
    seen: set[tuple[str, ...]] = set()
    for place, each in fields:
        where, text = f"{place}.jsonPath", each.get("jsonPath") or ""
        if not text:
            causes.required(where)
            continue
        try:
            path, found = _follow(text, schema)
        except ValueError as error:
            causes.invalid(where, text, f"is an invalid path: {error}")
            continue
        if path[0] == "metadata":
            causes.invalid(where, text, "must not point to fields in metadata")
        if found is None or found.type not in _SELECTABLE_TYPES:
            why = (
                "must point to a field of type string, boolean or integer. Enum string fields and "
                "strings with formats are allowed."
            )
            causes.invalid(where, text, why)
        if path in seen:
            causes.duplicate(where, text)
        seen.add(path)
    return len(seen)


def _follow(text: str, schema: Schema) -> tuple[tuple[str, ...], Schema | None]:
    """Resolve a path of fields: its names and the schema at its end; raises ValueError."""
    pieces = iter(_PATH_PIECE.findall(text))
    names: list[str] = []
    node: Schema | None = schema
    for piece in pieces:
        if piece == "[":
            raise ValueError("array notation is not allowed")
        if piece != ".":
            raise ValueError(f"expected [ or . but got: {piece}")
        name = next(pieces, None)
        if name is None:
            raise ValueError("unexpected end of JSON path")
        if node is None or (not node.properties and node.additional is None):
            raise ValueError("does not refer to a valid field")
        if node.properties and name not in node.properties:
            raise ValueError("does not refer to a valid field")
        node = node.properties[name] if node.properties else node.additional_schema
        names.append(name)
    return tuple(names), node
