"""The type tables of the built-in kinds: lookup of structs by name or by kind.

`data/types.bin` has the tables: four bytes with the length of the index, the index, then one part
per Go package. Index and parts are compressed separately, and a struct is parsed on first use, so
that a server loads only the kinds that it needs. `tools/build_types.py` creates the file and
describes the notation of a field.

Not here: the kinds that a server hosts, and the use of a struct.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

from restow.apimachinery.types import (
    Embedded,
    Field,
    ListOf,
    MapOf,
    Scalar,
    Special,
    Struct,
    StructRef,
    Type,
    UnknownType,
)

DATA: Final = Path(__file__).parent / "data" / "types.bin"
META_PREFIX: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"

# Kinds of meta/v1 that clients name with the group version of the resource of the request.
KINDS_EVERYWHERE: Final = frozenset(
    (
        "CreateOptions",
        "DeleteOptions",
        "GetOptions",
        "ListOptions",
        "PatchOptions",
        "UpdateOptions",
        "WatchEvent",
    )
)

_INDEX_LENGTH_BYTES: Final = 4
_SCALARS: Final = {each.value: each for each in Scalar}
_SPECIALS: Final = {
    "T": Special.TIME,
    "M": Special.MICRO_TIME,
    "D": Special.DURATION,
    "Q": Special.QUANTITY,
    "I": Special.INT_OR_STRING,
    "R": Special.RAW_EXTENSION,
    "F": Special.FIELDS_V1,
    "J": Special.JSON,
    "A": Special.SCHEMA_OR_ARRAY,
    "B": Special.SCHEMA_OR_BOOL,
    "S": Special.SCHEMA_OR_STRINGS,
}
_TYPE_META: Final = (
    Field(json="kind", type=Scalar.STRING, omitempty=True),
    Field(json="apiVersion", type=Scalar.STRING, omitempty=True),
)


@dataclass(slots=True)
class _Package:
    """One part of the file: its position, its kinds, and its texts once they were read."""

    offset: int
    length: int
    group: str
    version: str
    kinds: tuple[str, ...]
    texts: dict[str, str] = field(default_factory=dict)


class Types:
    """All structs of the built-in kinds, each parsed on first use."""

    def __init__(self, data: bytes) -> None:
        index_end = _INDEX_LENGTH_BYTES + int.from_bytes(data[:_INDEX_LENGTH_BYTES], "big")
        index = json.loads(zlib.decompress(data[_INDEX_LENGTH_BYTES:index_end]))
        self._parts = data[index_end:]
        self._packages = {
            prefix: _Package(offset, length, group, version, tuple(kinds.split()))
            for prefix, (offset, length, group, version, kinds) in index.items()
        }
        self._prefixes = {
            (package.group, package.version): prefix for prefix, package in self._packages.items()
        }
        self._structs: dict[str, Struct] = {}

    def struct(self, name: str) -> Struct:
        """Return the struct of an OpenAPI definition name; raises UnknownType if there is none."""
        found = self._structs.get(name)
        if found is None:
            found = self._structs[name] = self._parse(name)
        return found

    def of_kind(self, group: str, version: str, kind: str) -> Struct | None:
        """Return the struct of a kind; meta kinds such as options are in many groups."""
        prefix = self._prefixes.get((group, version))
        if prefix is not None and kind in self._packages[prefix].kinds:
            return self.struct(f"{prefix}.{kind}")
        is_meta = kind in KINDS_EVERYWHERE or (group, version) == ("", "v1")
        if is_meta and kind in self._packages[META_PREFIX].kinds:
            return self.struct(f"{META_PREFIX}.{kind}")
        return None

    def group_versions(self) -> tuple[tuple[str, str], ...]:
        """Return all (group, version) pairs; meta types are in `meta.k8s.io`."""
        return tuple(self._prefixes)

    def kinds(self, group: str, version: str) -> tuple[str, ...]:
        """Return the kinds of a group version, including lists and reviews; none if unknown."""
        prefix = self._prefixes.get((group, version))
        return () if prefix is None else self._packages[prefix].kinds

    def structs(self, group: str, version: str) -> Iterator[Struct]:
        """Yield all structs of a group version, including nested ones. Parses them all."""
        prefix = self._prefixes.get((group, version))
        if prefix is not None:
            for name in self._texts(self._packages[prefix]):
                yield self.struct(f"{prefix}.{name.removesuffix('!')}")

    def _texts(self, package: _Package) -> dict[str, str]:
        if not package.texts:
            part = self._parts[package.offset : package.offset + package.length]
            for text in zlib.decompress(part).decode().split("\n\n"):
                head, _, lines = text.partition("\n")
                package.texts[head] = lines
        return package.texts

    def _parse(self, name: str) -> Struct:
        prefix, _, short_name = name.rpartition(".")
        package = self._packages.get(prefix)
        if package is None:
            raise UnknownType(name)
        is_kind = short_name in package.kinds
        lines = self._texts(package).get(short_name + "!" * is_kind)
        if lines is None:
            raise UnknownType(name)
        fields = list(_TYPE_META) if is_kind else []
        embedded: list[Embedded] = []
        for line in lines.splitlines():
            parsed = _parse_field(line, prefix)
            if parsed.json != ".":
                fields.append(parsed)
                continue
            assert isinstance(parsed.type, StructRef)
            embedded.append(Embedded(parsed.number, parsed.type.name))
            fields += [replace(each, inline=True) for each in self.struct(parsed.type.name)]
        return Struct(
            name=name, fields=tuple(fields), table=self, embedded=tuple(embedded), is_kind=is_kind
        )


@cache
def load_types() -> Types:
    """Load the tables of the package; the file is read once."""
    return Types(DATA.read_bytes())


def _parse_field(line: str, prefix: str) -> Field:
    json_name, number, text, *marks = line.split(" ")
    marked = dict(mark.split("=", 1) for mark in marks)
    return Field(
        json=json_name,
        type=_parse_type(text.removeprefix("*").removesuffix("?"), prefix),
        pointer=text[0] == "*",
        omitempty=text[-1] == "?",
        number=int(number),
        patch_strategies=tuple(marked["p"].split(",")) if "p" in marked else (),
        merge_key=marked.get("k"),
        list_type=marked.get("l"),
        list_keys=tuple(marked["i"].split(",")) if "i" in marked else (),
        map_type=marked.get("m"),
    )


def _parse_type(text: str, prefix: str) -> Type:
    match text[:2]:
        case "[]":
            return ListOf(_parse_type(text[2:], prefix))
        case "<>":
            return ListOf(_parse_type(text[2:], prefix), wrapped=True)
        case "{}":
            return MapOf(_parse_type(text[2:], prefix))
    if text[0] == "@":
        return _SPECIALS[text[1]]
    scalar = _SCALARS.get(text)
    if scalar is not None:
        return scalar
    return StructRef(text if "." in text else f"{prefix}.{text}")
