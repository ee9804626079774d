"""Kinds of an aggregated server, read from files of CustomResourceDefinitions.

A CRD in a file has the fields of a CRD in the API: names, scope, versions, schemas, and the storage
version. But it is no API object. It is part of the program, like the built-in types of a release,
and does not change while the server runs: two files with different storage versions are two
releases of the server. It is validated as the API validates CRDs; a field that needs another
server, such as a conversion webhook, is rejected by name.

Not here: kinds declared in Python (`restow.registry.declared`), and serving the kinds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson

from restow.apimachinery import yaml_codec
from restow.apimachinery.status_error import StatusError
from restow.kinds.builtin import find_kind
from restow.kinds.releases import default_release
from restow.registry.custom import crds
from restow.registry.custom.crds import CustomResourceDefinition
from restow.registry.custom.custom_resource import custom_resource
from restow.registry.resource import Object, Resource
from restow.registry.shapes import BuiltinShape
from restow.storage.interface import Key, Revision

__all__ = ["KindsError", "load_kinds", "read_kinds"]

FILES_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
DOCUMENT_BYTES_MAX: Final = 3 * 1024 * 1024
KINDS_MAX: Final = 10_000
DEFINITION: Final = "CustomResourceDefinition"
API_VERSION: Final = f"{crds.GROUP}/v1"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_SEPARATOR: Final = re.compile(rb"^---(?:[ \t].*)?\r?$", re.MULTILINE)


class KindsError(ValueError):
    """The files contain no valid kinds; names the file and the problem."""


def load_kinds(path: Path) -> list[Resource]:
    """Read the kinds of a file, or of all files of a directory in the order of their names.

    Blocks. Raises `KindsError`.
    """
    found: list[Resource] = []
    for each in _files(path):
        try:
            if each.stat().st_size > FILE_BYTES_MAX:
                raise KindsError(f"{each}: larger than {FILE_BYTES_MAX} bytes")
            content = each.read_bytes()
        except OSError as error:
            raise KindsError(f"{each} cannot be read: {error.strerror}") from error
        found += read_kinds(content, source=str(each))
    if not found:
        raise KindsError(f"{path} contains no {DEFINITION}")
    if len(found) > KINDS_MAX:
        raise KindsError(f"{path} contains more than {KINDS_MAX} kinds")
    _check_once(found)
    return found


def read_kinds(content: bytes, *, source: str) -> list[Resource]:
    """Parse the kinds in the documents of one file; `source` names it. Raises `KindsError`."""
    shape = _definition_shape()
    found: list[Resource] = []
    for number, document in enumerate(_documents(content), start=1):
        where = f"{source}, document {number}"
        try:
            obj = yaml_codec.decode(document, size_max=DOCUMENT_BYTES_MAX).value
            found.append(_resource(obj, shape, where))
        except StatusError as error:
            raise KindsError(f"{where}: {error.message}") from error
    return found


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
    if len(files) > FILES_MAX:
        raise KindsError(f"{path} contains more than {FILES_MAX} files")
    return files


def _documents(content: bytes) -> Iterator[bytes]:
    """Each document that has content besides comments."""
    for document in _SEPARATOR.split(content):
        lines = (line.strip() for line in document.splitlines())
        if any(line and not line.startswith(b"#") for line in lines):
            yield document.strip()


def _definition_shape() -> BuiltinShape:
    """The shape that validates CRDs, independently of the hosted resources."""
    kind = find_kind(crds.GROUP, DEFINITION)
    assert kind is not None
    converter = next(
        each.converter()
        for each in default_release().kinds
        if each.definition.group_kind == kind.group_kind
    )
    return BuiltinShape(kind, converter)


def _resource(obj: Object, shape: BuiltinShape, where: str) -> Resource:
    said = (obj.get("apiVersion"), obj.get("kind"))
    if said != (API_VERSION, DEFINITION):
        raise KindsError(f"{where}: {said[1]} of {said[0]} is not a {DEFINITION} of {API_VERSION}")
    obj, unknown = shape.check(API_VERSION, obj)
    if unknown:
        raise KindsError(f"{where}: unknown fields: {', '.join(sorted(unknown))}")
    obj = shape.default(API_VERSION, obj)
    shape.prepare_create(obj)
    obj.setdefault("metadata", {})
    problems = shape.problems(API_VERSION, obj, None)
    if problems:
        listed = "; ".join(f"{each.field}: {each.message}" for each in problems)
        raise KindsError(f"{where}: {listed}")
    spec: dict[str, Any] = obj["spec"]
    if spec["conversion"]["strategy"] != "None":
        raise KindsError(
            f"{where}: spec.conversion.strategy: {spec['conversion']['strategy']} is not supported"
            " for kinds from a file: use None, or declare the kind in Python"
        )
    # No controller reviews these names: they are accepted as declared.
    obj["status"]["acceptedNames"] = spec["names"]
    key = Key(crds.ROOT + obj["metadata"]["name"])
    hosted = custom_resource(CustomResourceDefinition(key, orjson.dumps(obj), Revision(0)))
    return replace(hosted, origin=None)


def _check_once(found: Sequence[Resource]) -> None:
    for names in (
        [str(each.kind.group_resource) for each in found],
        [str(each.kind.group_kind) for each in found],
    ):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise KindsError(f"defined more than once: {', '.join(twice)}")
