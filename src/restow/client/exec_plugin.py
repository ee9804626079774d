"""Exec credential plugins: the values that are passed to them, and the credential they return.

`client.authentication.k8s.io/v1` and `v1beta1`, as in client-go: KUBERNETES_EXEC_INFO has the
request, standard output the ExecCredential.

Not here: the process (`exec_process`), and when it runs (`exec_credentials`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import orjson

from restow.apimachinery.yaml_documents import load_document

GROUP: Final = "client.authentication.k8s.io"
API_VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
INFO_VARIABLE: Final = "KUBERNETES_EXEC_INFO"
TEXT_SHOWN_MAX: Final = 500
"""Characters of a plugin's text in a message."""


class InteractiveMode(StrEnum):
    """Whether the plugin may use the terminal."""

    NEVER = "Never"
    IF_AVAILABLE = "IfAvailable"
    ALWAYS = "Always"


class PluginAnswerInvalid(Exception):
    """The output of a plugin is not a credential; the text is the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """How to run a plugin."""

    command: str
    """A path, if it contains a slash, otherwise a name that is searched for in PATH."""
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The whole environment of the process, except KUBERNETES_EXEC_INFO."""
    search_path: str = ""
    """PATH of this process: the `env` of a plugin does not change where it is searched for."""
    api_version: str
    mode: InteractiveMode
    cluster: Mapping[str, Any] | None = None
    """The cluster, if the plugin requests it by `provideClusterInfo`."""
    install_hint: str = ""
    server: str
    """The server address, for messages."""
    source: str
    """The file and the user, for messages."""

    def info(self, *, is_interactive: bool) -> str:
        """The value of KUBERNETES_EXEC_INFO."""
        spec: dict[str, Any] = {"interactive": is_interactive}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        value = {"kind": "ExecCredential", "apiVersion": self.api_version, "spec": spec}
        return orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class PluginCredential:
    """What a plugin returned: a token, a client certificate, or both."""

    token: str | None = field(default=None, repr=False)
    certificate: tuple[str, str] | None = field(default=None, repr=False)
    """Certificate chain and key, in PEM form."""
    expires: datetime | None = None


def read_answer(data: bytes, *, api_version: str) -> PluginCredential:
    """Decode the output of a plugin. Raises PluginAnswerInvalid."""
    document = _decoded(data)
    if document.get("kind") != "ExecCredential":
        raise PluginAnswerInvalid(f"printed an object of kind {_shown(document.get('kind'))}")
    found = document.get("apiVersion")
    if found != api_version:
        raise PluginAnswerInvalid(
            f"returned apiVersion {_shown(found)}, but the kubeconfig has {api_version}"
        )
    status = document.get("status")
    if not isinstance(status, dict):
        raise PluginAnswerInvalid("returned no status")
    token, cert, key = (
        _text(status, name) for name in ("token", "clientCertificateData", "clientKeyData")
    )
    if not token and not cert and not key:
        raise PluginAnswerInvalid("returned neither a token nor a client certificate")
    if bool(cert) != bool(key):
        raise PluginAnswerInvalid("returned only one of clientCertificateData and clientKeyData")
    if not (token.isascii() and token.isprintable()):
        raise PluginAnswerInvalid("returned a token that is not valid in a header")
    return PluginCredential(token or None, (cert, key) if cert else None, _expires(status))


def plain(text: str) -> str:
    """Text of others for a message: one line, bounded, without control characters."""
    words = " ".join(text.split())
    shown = "".join(each if each.isprintable() else "?" for each in words)
    return shown if len(shown) <= TEXT_SHOWN_MAX else f"{shown[:TEXT_SHOWN_MAX]}…"


def _decoded(data: bytes) -> dict[str, Any]:
    # client-go accepts YAML as well. JSON is tried first, because its errors are not YAML's.
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            document = load_document(data)
        except ValueError:
            document = None
    if isinstance(document, dict):
        return document
    if not data.strip():
        raise PluginAnswerInvalid("printed nothing")
    # The output can be a token, which must not reach a log.
    raise PluginAnswerInvalid(f"printed {len(data)} bytes that are not an ExecCredential")


def _text(status: dict[str, Any], name: str) -> str:
    value = status.get(name) or ""
    if not isinstance(value, str):
        raise PluginAnswerInvalid(f"returned a {name} that is not a string")
    return value


def _expires(status: dict[str, Any]) -> datetime | None:
    value = status.get("expirationTimestamp")
    if value is None:
        return None
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise PluginAnswerInvalid(
            f"returned an expirationTimestamp that is not a time: {_shown(value)}"
        ) from error


def _shown(value: object) -> str:
    return repr(plain(str(value)))[: TEXT_SHOWN_MAX + 2]


def command_line(plugin: ExecPlugin) -> list[str]:
    """The program and its arguments, as the user would run them."""
    return [Path(plugin.command).name, *plugin.arguments]
