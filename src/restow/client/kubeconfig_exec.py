"""The `exec` and `auth-provider` fields of a user.

Not here: how a plugin runs (`exec_credentials`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from restow.client.errors import ConfigInvalid
from restow.client.exec_credentials import ExecCredentials
from restow.client.exec_plugin import API_VERSIONS, GROUP, ExecPlugin, InteractiveMode
from restow.client.kubeconfig_entries import Entry

EXTENSION: Final = "client.authentication.k8s.io/exec"
_UPDATES: Final = {
    "aws": "aws eks update-kubeconfig",
    "aws-iam-authenticator": "aws eks update-kubeconfig",
    "gke-gcloud-auth-plugin": "gcloud container clusters get-credentials",
    "kubelogin": "kubelogin convert-kubeconfig",
}
_REPLACEMENTS: Final = {
    "gcp": "use gke-gcloud-auth-plugin: gcloud container clusters get-credentials",
    "azure": "use kubelogin: kubelogin convert-kubeconfig",
    "oidc": "use an exec plugin such as kubelogin (kubectl oidc-login)",
}


def refuse_auth_provider(user: Entry) -> None:
    """Raise ConfigInvalid with what to use instead: Kubernetes removed them in 1.26."""
    provider = user.inner("auth-provider")
    if provider is None:
        return
    name = provider.text("name") or ""
    instead = _REPLACEMENTS.get(name, "use the exec plugin of your provider")
    raise ConfigInvalid(
        f"{user.where}: auth-provider {name!r} is not supported, as in kubectl since 1.26: "
        f"{instead}, or a token (kubectl create token)"
    )


def exec_credentials(
    user: Entry, cluster: Entry, *, ca_pem: str | None, environ: Mapping[str, str]
) -> ExecCredentials | None:
    """The credential plugin of a user; None if the user has none."""
    entry = user.inner("exec")
    if entry is None:
        return None
    command = entry.text("command")
    if command is None:
        raise ConfigInvalid(f"{entry.where}: command is not set")
    api_version = _api_version(entry, command)
    is_told_cluster = entry.flag("provideClusterInfo")
    plugin = ExecPlugin(
        command=str((entry.directory / command).absolute()) if "/" in command else command,
        arguments=tuple(entry.texts("args")),
        environ={**environ, **_environ(entry)},
        search_path=environ.get("PATH", ""),
        api_version=api_version,
        mode=_mode(entry, api_version),
        cluster=_cluster_info(cluster, ca_pem) if is_told_cluster else None,
        install_hint=entry.text("installHint") or "",
        server=cluster.text("server") or "",
        source=user.where,
    )
    return ExecCredentials(plugin)


def _api_version(entry: Entry, command: str) -> str:
    found = entry.text("apiVersion")
    if found in API_VERSIONS:
        return found
    what = "is not set" if found is None else f"{found!r} is not supported"
    tool = _UPDATES.get(command.rpartition("/")[2])
    advice = f"update the tool, then write the kubeconfig again: {tool}" if tool else "update it"
    if found != f"{GROUP}/v1alpha1":
        advice = "check the documentation of the plugin"
    raise ConfigInvalid(
        f"{entry.where}: apiVersion {what}: it must be {' or '.join(API_VERSIONS)}, which the "
        f"plugin must support as well; {advice}"
    )


def _mode(entry: Entry, api_version: str) -> InteractiveMode:
    text = entry.text("interactiveMode")
    if text is None:
        if api_version.endswith("/v1"):
            raise ConfigInvalid(f"{entry.where}: interactiveMode is not set; v1 requires it")
        return InteractiveMode.IF_AVAILABLE
    try:
        return InteractiveMode(text)
    except ValueError as error:
        modes = ", ".join(InteractiveMode)
        raise ConfigInvalid(f"{entry.where}: interactiveMode must be one of {modes}") from error


def _environ(entry: Entry) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in entry.items("env"):
        name = each.get("name") if isinstance(each, dict) else None
        value = (each.get("value") or "") if isinstance(each, dict) else None
        if not isinstance(name, str) or not name or not isinstance(value, str):
            raise ConfigInvalid(f"{entry.where}: env must be a list of name and value, as strings")
        if "=" in name or "\0" in name + value:
            raise ConfigInvalid(f"{entry.where}: env: {name!r} is not a variable")
        found[name] = value
    return found


def _cluster_info(cluster: Entry, ca_pem: str | None) -> dict[str, Any]:
    """The cluster for KUBERNETES_EXEC_INFO, with the extension for plugins."""
    info: dict[str, Any] = {"server": cluster.text("server") or ""}
    for name in ("tls-server-name", "proxy-url"):
        if (text := cluster.text(name)) is not None:
            info[name] = text
    for name in ("insecure-skip-tls-verify", "disable-compression"):
        if cluster.flag(name):
            info[name] = True
    if ca_pem is not None:
        info["certificate-authority-data"] = base64.b64encode(ca_pem.encode()).decode()
    for each in cluster.items("extensions"):
        if isinstance(each, dict) and each.get("name") == EXTENSION:
            info["config"] = each.get("extension")
    return info
