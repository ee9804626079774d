"""Kubeconfig files: located, merged and converted to a ClientConfig; errors name the field.

Files are merged as by kubectl: the first entry of a name and the first `current-context` win.
Relative paths are relative to their own file. Inline data has precedence over a file.

Not here: writing kubeconfigs (a server writes its own), and the configuration (`config`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from restow.apimachinery.yaml_documents import load_document
from restow.client.config import (
    NAMESPACE_DEFAULT,
    ClientConfig,
    in_cluster_config,
    kubeconfig_paths,
    read_text,
)
from restow.client.errors import ConfigInvalid

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
FILES_MAX: Final = 64

# Fields of a cluster or a user that are not supported, with the alternative.
_REFUSED_OF_CLUSTER: Final = {
    "proxy-url": "proxies are not supported: make the server reachable, for example by a tunnel",
}
_REFUSED_OF_USER: Final = {
    "exec": "credential plugins are not run: put their token into `token` or `tokenFile`, or use "
    "a service account (kubectl create token)",
    "auth-provider": "auth providers are not supported: put a token into `token` or `tokenFile`",
    "username": "basic authentication is not supported, and no server since 1.19 accepts it",
    "password": "basic authentication is not supported, and no server since 1.19 accepts it",
}
_Section = dict[str, Any]


class _Entry:
    """A named cluster, user or context, and its file."""

    def __init__(self, what: str, name: str, fields: _Section, path: Path) -> None:
        self.fields = fields
        self.path = path
        self.where = f"{path}: {what} {name!r}"

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
        return None if path is None else self.path.parent / path

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

    def refuse(self, refused: Mapping[str, str]) -> None:
        for name, why in refused.items():
            if self.fields.get(name):
                raise ConfigInvalid(f"{self.where}: {name}: {why}")


def load_config(
    environ: Mapping[str, str], *, home: Path, context: str | None = None
) -> ClientConfig:
    """The configuration that kubectl uses: $KUBECONFIG, or `.kube/config` in the home directory."""
    return read_kubeconfig(kubeconfig_paths(environ, home=home), context=context)


def find_config(
    environ: Mapping[str, str], *, home: Path, context: str | None = None
) -> ClientConfig:
    """The kubeconfig if it exists; otherwise, in a pod, its service account."""
    has_file = any(path.exists() for path in kubeconfig_paths(environ, home=home))
    if not has_file and context is None and "KUBERNETES_SERVICE_HOST" in environ:
        return in_cluster_config(environ)
    return load_config(environ, home=home, context=context)


def read_kubeconfig(paths: Sequence[Path], *, context: str | None = None) -> ClientConfig:
    """Read a context, by default the current one, from several merged files.

    A file that does not exist is ignored if another one exists, as in kubectl.
    """
    if not 1 <= len(paths) <= FILES_MAX:
        raise ConfigInvalid(f"KUBECONFIG must name from 1 to {FILES_MAX} files")
    found = [(path, _read(path)) for path in paths if path.exists()]
    names = ":".join(map(str, paths))
    if not found:
        raise ConfigInvalid(f"{names}: no such file; set KUBECONFIG or pass a kubeconfig")
    name = context or _current_context(found)
    if name is None:
        raise ConfigInvalid(f"{names}: current-context is not set; select a context")
    return _of_context(name, found, names)


def _of_context(name: str, found: list[tuple[Path, _Section]], names: str) -> ClientConfig:
    chosen = _find("context", name, found, names)
    cluster_name, user_name = chosen.text("cluster"), chosen.text("user")
    if cluster_name is None:
        raise ConfigInvalid(f"{chosen.where}: cluster is not set")
    cluster = _find("cluster", cluster_name, found, names)
    cluster.refuse(_REFUSED_OF_CLUSTER)
    server = cluster.text("server")
    if server is None:
        raise ConfigInvalid(f"{cluster.where}: server is not set")
    ca_pem, is_verified = (
        cluster.pem("certificate-authority"),
        not cluster.flag("insecure-skip-tls-verify"),
    )
    if ca_pem is not None and not is_verified:
        raise ConfigInvalid(
            f"{cluster.where}: insecure-skip-tls-verify and certificate-authority exclude each "
            "other: remove one"
        )
    user = None if user_name is None else _find("user", user_name, found, names)
    if user is None:
        user = _Entry("user", "", {}, cluster.path)
    user.refuse(_REFUSED_OF_USER)
    token = user.text("token")
    return ClientConfig(
        server=server,
        ca_pem=ca_pem,
        is_verified=is_verified,
        server_name=cluster.text("tls-server-name"),
        token=token,
        # As in kubectl: the file has precedence, the token is its earlier content.
        token_file=user.file("tokenFile"),
        client_cert_pem=user.pem("client-certificate"),
        client_key_pem=user.pem("client-key"),
        impersonation=_impersonation(user),
        namespace=chosen.text("namespace") or NAMESPACE_DEFAULT,
        source=f"{cluster.path}: context {name!r}",
    )


def _impersonation(user: _Entry) -> tuple[tuple[str, str], ...]:
    name, groups, uid = user.text("as"), user.texts("as-groups"), user.text("as-uid")
    extra = user.fields.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise ConfigInvalid(f"{user.where}: as-user-extra must be a mapping")
    if name is None:
        if groups or uid or extra:
            raise ConfigInvalid(f"{user.where}: as-groups, as-uid and as-user-extra require as")
        return ()
    headers = [("Impersonate-User", name)]
    headers += [("Impersonate-Group", group) for group in groups]
    if uid is not None:
        headers.append(("Impersonate-Uid", uid))
    inner = _Entry("user", "", extra, user.path)
    inner.where = f"{user.where}: as-user-extra"
    for key in extra:
        name = f"Impersonate-Extra-{quote(str(key).lower(), safe='')}"
        headers += [(name, value) for value in inner.texts(key)]
    return tuple(headers)


def _read(path: Path) -> _Section:
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


def _current_context(found: list[tuple[Path, _Section]]) -> str | None:
    for path, document in found:
        name = document.get("current-context")
        if name and not isinstance(name, str):
            raise ConfigInvalid(f"{path}: current-context must be a string")
        if name:
            return str(name)
    return None


def _find(what: str, name: str, found: list[tuple[Path, _Section]], names: str) -> _Entry:
    known: list[str] = []
    for path, document in found:
        entries = document.get(f"{what}s") or []
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise ConfigInvalid(f"{path}: {what}s must be a list of mappings")
        for entry in entries:
            if entry.get("name") == name:
                fields = entry.get(what) or {}
                if not isinstance(fields, dict):
                    raise ConfigInvalid(f"{path}: {what} {name!r}: {what} must be a mapping")
                return _Entry(what, name, fields, path)
            known.append(str(entry.get("name")))
    listed = ", ".join(sorted(known)[:20]) or "none"
    raise ConfigInvalid(f"{names}: no {what} {name!r}; available: {listed}")
