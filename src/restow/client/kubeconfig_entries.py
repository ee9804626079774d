"""Kubeconfig files: located entries of several merged files, whose fields are checked when read.

Files are merged as by kubectl: the first entry of a name and the first `current-context` win.
Relative paths are relative to their own file. Inline data has precedence over a file.

Not here: the meaning of the entries (`kubeconfig`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from restow.apimachinery.yaml_documents import load_document
from restow.client.config import read_text
from restow.client.errors import ConfigInvalid

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
FILES_MAX: Final = 64

Section = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields of a cluster, a user or a context."""

    fields: Section
    directory: Path
    """Relative paths start here."""
    where: str
    """File, kind and name, for messages."""

    def inner(self, name: str) -> Entry | None:
        """A field that is a mapping; None if it is not set."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ConfigInvalid(f"{self.where}: {name} must be a mapping")
        return Entry(value, self.directory, f"{self.where}: {name}")

    def items(self, name: str) -> list[Any]:
        value = self.fields.get(name) or []
        if not isinstance(value, list):
            raise ConfigInvalid(f"{self.where}: {name} must be a list")
        return value

    def text(self, name: str) -> str | None:
        """A string field; empty counts as unset, as in kubectl."""
        value = self.fields.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise ConfigInvalid(f"{self.where}: {name} must be a string")
        return value

    def flag(self, name: str) -> bool:
        value = self.fields.get(name, False)
        if not isinstance(value, bool):
            raise ConfigInvalid(f"{self.where}: {name} must be true or false")
        return value

    def texts(self, name: str) -> list[str]:
        value = self.fields.get(name) or []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ConfigInvalid(f"{self.where}: {name} must be a list of strings")
        return value

    def file(self, name: str) -> Path | None:
        path = self.text(name)
        return None if path is None else self.directory / path

    def pem(self, name: str) -> str | None:
        """`name-data`, or the content of the file `name`."""
        data = self.text(f"{name}-data")
        if data is not None:
            try:
                return base64.b64decode(data, validate=True).decode()
            except (binascii.Error, ValueError) as error:
                raise ConfigInvalid(
                    f"{self.where}: {name}-data is not base64-encoded text"
                ) from error
        path = self.file(name)
        return None if path is None else read_text(path, name, self.where)


@dataclass(frozen=True, slots=True)
class MergedFiles:
    """The files that exist, in order of precedence."""

    names: str
    """All files, for messages."""
    documents: Sequence[tuple[Path, Section]]

    @classmethod
    def read(cls, paths: Sequence[Path]) -> MergedFiles:
        """Read the files. One that does not exist is ignored, as in kubectl."""
        if not 1 <= len(paths) <= FILES_MAX:
            raise ConfigInvalid(f"KUBECONFIG must name from 1 to {FILES_MAX} files")
        found = [(path, _read(path)) for path in paths if path.exists()]
        return cls(":".join(map(str, paths)), found)

    @property
    def is_empty(self) -> bool:
        """Whether they configure nothing."""
        sections = ("clusters", "users", "contexts", "current-context")
        return not any(document.get(each) for _, document in self.documents for each in sections)

    def current_context(self) -> str | None:
        for path, document in self.documents:
            name = document.get("current-context")
            if name and not isinstance(name, str):
                raise ConfigInvalid(f"{path}: current-context must be a string")
            if name:
                return str(name)
        return None

    def find(self, what: str, name: str) -> Entry:
        """The first entry of this name: `what` is cluster, user or context."""
        known: list[str] = []
        for path, document in self.documents:
            entries = document.get(f"{what}s") or []
            if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
                raise ConfigInvalid(f"{path}: {what}s must be a list of mappings")
            found = [each for each in entries if each.get("name") == name]
            if len(found) > 1:
                raise ConfigInvalid(f"{path}: {what} {name!r} is listed more than once")
            if found:
                fields = found[0].get(what) or {}
                if not isinstance(fields, dict):
                    raise ConfigInvalid(f"{path}: {what} {name!r}: {what} must be a mapping")
                return Entry(fields, path.parent, f"{path}: {what} {name!r}")
            known += [str(each.get("name")) for each in entries]
        listed = ", ".join(sorted(known)[:20]) or "none"
        raise ConfigInvalid(f"{self.names}: no {what} {name!r}; available: {listed}")


def _read(path: Path) -> Section:
    try:
        size = path.stat().st_size
        if size > FILE_BYTES_MAX:
            raise ConfigInvalid(f"{path}: larger than {FILE_BYTES_MAX} bytes: not a kubeconfig")
        document = load_document(path.read_bytes())
    except OSError as error:
        raise ConfigInvalid(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigInvalid(f"{path}: not YAML: {str(error)[:500]}") from error
    if document is None:
        return {}
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        raise ConfigInvalid(f"{path}: not a kubeconfig: kind must be Config")
    return document
