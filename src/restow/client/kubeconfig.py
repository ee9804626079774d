"""Kubeconfig files and connection flags, converted to a ClientConfig; errors name the field.

The credential is chosen as in client-go: a token, user and password, or a certificate; the plugin
of `exec` runs only without these.

Not here: writing kubeconfigs (a server writes its own), the merge of several files
(`kubeconfig_entries`), and the configuration (`config`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from restow.client.config import (
    NAMESPACE_DEFAULT,
    ClientConfig,
    in_cluster_config,
    kubeconfig_paths,
    read_text,
)
from restow.client.errors import ConfigInvalid
from restow.client.kubeconfig_entries import Entry, MergedFiles
from restow.client.kubeconfig_exec import exec_credentials, refuse_auth_provider
from restow.client.overrides import ConfigOverrides
from restow.client.proxies import ProxyAddress, environment_proxy, read_proxy

_NO_OVERRIDES: Final = ConfigOverrides()
_FLAGS: Final = "command line"


def load_config(
    environ: Mapping[str, str], *, home: Path, context: str | None = None
) -> ClientConfig:
    """The configuration that kubectl uses: $KUBECONFIG, or `.kube/config` in the home directory."""
    paths = kubeconfig_paths(environ, home=home)
    return read_kubeconfig(paths, context=context, environ=environ)


def find_config(
    environ: Mapping[str, str],
    *,
    home: Path,
    context: str | None = None,
    overrides: ConfigOverrides = _NO_OVERRIDES,
) -> ClientConfig:
    """The kubeconfig if it configures something; otherwise, in a pod, its service account."""
    files = MergedFiles.read(kubeconfig_paths(environ, home=home))
    is_pod = "KUBERNETES_SERVICE_HOST" in environ
    if files.is_empty and is_pod and context is None and not overrides.has_target:
        return _in_pod(environ, overrides)
    return _of_files(files, context, overrides, environ)


def read_kubeconfig(
    paths: Sequence[Path],
    *,
    context: str | None = None,
    overrides: ConfigOverrides = _NO_OVERRIDES,
    environ: Mapping[str, str] | None = None,
) -> ClientConfig:
    """Read a context, by default the current one, from several merged files.

    A file that does not exist is ignored if another one exists, as in kubectl. `environ` is for
    proxies and credential plugins; by default that of this process.
    """
    files = MergedFiles.read(paths)
    if not files.documents:
        raise _missing(files)
    return _of_files(files, context, overrides, os.environ if environ is None else environ)


def _of_files(
    files: MergedFiles,
    context: str | None,
    overrides: ConfigOverrides,
    environ: Mapping[str, str],
) -> ClientConfig:
    if not files.documents and not overrides.server:
        raise _missing(files)
    nothing = Entry({}, Path(), _FLAGS)
    name = context or files.current_context()
    if name is None and not overrides.server and not overrides.cluster:
        raise ConfigInvalid(f"{files.names}: current-context is not set; select a context")
    chosen = nothing if name is None else files.find("context", name)
    cluster_name = overrides.cluster or chosen.text("cluster")
    user_name = overrides.user or chosen.text("user")
    if cluster_name is None and not overrides.server:
        raise ConfigInvalid(f"{chosen.where}: cluster is not set")
    cluster = nothing if cluster_name is None else files.find("cluster", cluster_name)
    user = nothing if user_name is None else files.find("user", user_name)
    cluster = replace(cluster, fields=overrides.cluster_fields(cluster.fields))
    user = replace(user, fields=overrides.user_fields(user.fields))
    return _convert(chosen, cluster, user, environ)


def _missing(files: MergedFiles) -> ConfigInvalid:
    return ConfigInvalid(f"{files.names}: no such file; set KUBECONFIG or pass a kubeconfig")


def _convert(
    chosen: Entry, cluster: Entry, user: Entry, environ: Mapping[str, str]
) -> ClientConfig:
    server = cluster.text("server")
    if server is None:
        raise ConfigInvalid(f"{cluster.where}: server is not set")
    ca_pem = cluster.pem("certificate-authority")
    is_verified = not cluster.flag("insecure-skip-tls-verify")
    if ca_pem is not None and not is_verified:
        raise ConfigInvalid(
            f"{cluster.where}: insecure-skip-tls-verify and certificate-authority exclude each "
            "other: remove one"
        )
    refuse_auth_provider(user)
    plugin = exec_credentials(user, cluster, ca_pem=ca_pem, environ=environ)
    config = ClientConfig(
        server=server,
        ca_pem=ca_pem,
        is_verified=is_verified,
        server_name=cluster.text("tls-server-name"),
        token=user.text("token"),
        # As in kubectl: the file has precedence, the token is its earlier content.
        token_file=user.file("tokenFile"),
        basic=_basic(user),
        client_cert_pem=user.pem("client-certificate"),
        client_key_pem=user.pem("client-key"),
        impersonation=_impersonation(user),
        namespace=chosen.text("namespace") or NAMESPACE_DEFAULT,
        source=cluster.where if chosen.where == _FLAGS else chosen.where,
    )
    given = (config.token, config.token_file, config.basic, config.client_cert_pem)
    if all(each is None for each in given):
        config = replace(config, plugin=plugin)
    return replace(config, proxy=_proxy(cluster, config, environ))


def _proxy(cluster: Entry, config: ClientConfig, environ: Mapping[str, str]) -> ProxyAddress | None:
    text = cluster.text("proxy-url")
    if text is not None:
        return read_proxy(text, source=f"{cluster.where}: proxy-url")
    return _environment_proxy(config, environ)


def _environment_proxy(config: ClientConfig, environ: Mapping[str, str]) -> ProxyAddress | None:
    scheme = "https" if config.is_https else "http"
    return environment_proxy(environ, scheme=scheme, host=config.host, port=config.port)


def _basic(user: Entry) -> tuple[str, str] | None:
    name, password = user.text("username"), user.text("password")
    if name is None and password is None:
        return None
    if user.text("token") is not None or user.text("tokenFile") is not None:
        raise ConfigInvalid(f"{user.where}: username and token exclude each other: remove one")
    return name or "", password or ""


def _impersonation(user: Entry) -> tuple[tuple[str, str], ...]:
    name, groups, uid = user.text("as"), user.texts("as-groups"), user.text("as-uid")
    extra = user.inner("as-user-extra")
    if name is None:
        if groups or uid or (extra is not None and extra.fields):
            raise ConfigInvalid(f"{user.where}: as-groups, as-uid and as-user-extra require as")
        return ()
    headers = [("Impersonate-User", name)]
    headers += [("Impersonate-Group", group) for group in groups]
    if uid is not None:
        headers.append(("Impersonate-Uid", uid))
    if extra is not None:
        for key in extra.fields:
            header = f"Impersonate-Extra-{quote(str(key).lower(), safe='')}"
            headers += [(header, value) for value in extra.texts(key)]
    return tuple(headers)


def _in_pod(environ: Mapping[str, str], overrides: ConfigOverrides) -> ClientConfig:
    """The service account of the pod, with the settings of the command line."""
    config = in_cluster_config(environ)
    fields = Entry(overrides.user_fields({}), Path(), _FLAGS)
    if overrides.token:
        config = replace(config, token=overrides.token, token_file=None)
    if overrides.certificate_authority is not None:
        pem = read_text(overrides.certificate_authority, "certificate-authority", _FLAGS)
        config = replace(config, ca_pem=pem)
    if overrides.insecure_skip_tls_verify:
        config = replace(config, ca_pem=None, is_verified=False)
    return replace(
        config,
        server_name=overrides.tls_server_name or None,
        client_cert_pem=fields.pem("client-certificate"),
        client_key_pem=fields.pem("client-key"),
        impersonation=_impersonation(fields),
        proxy=_environment_proxy(config, environ),
    )
