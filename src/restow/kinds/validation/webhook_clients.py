"""Validation of webhook clients: URL or service, and CA bundle.

Not here: calling webhooks.
"""

from __future__ import annotations

import base64
import re
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

from restow.apimachinery import field_errors as errors
from restow.apimachinery.name_formats import subdomain_problem
from restow.kinds.validation.fields import Causes, Object

_FORM: Final = "; desired format: https://host[/path]"
_PORT_MAX: Final = 65535
_HTTPS_PORT: Final = 443
_CERTIFICATE: Final = re.compile(rb"-----BEGIN [^-]+-----")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BAD_IN_HOST: Final = re.compile(r"[\s<>\"\\^`{|}]")


def check_client(causes: Causes, config: Object, where: str, *, checks_bundle: bool) -> None:
    """Validate a `clientConfig` at a field path."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        causes.required(where, "exactly one of url or service is required")
    elif url is not None:
        _url_problems(causes, url, f"{where}.url")
    elif isinstance(service, dict):
        _service_problems(causes, service, f"{where}.service")
    bundle = config.get("caBundle")
    if bundle and checks_bundle and (problem := _bundle_problem(bundle)):
        causes.invalid(f"{where}.caBundle", bundle, problem)


def has_bad_bundle(config: Object) -> bool:
    """Whether the CA bundle is set and invalid."""
    bundle = config.get("caBundle")
    return isinstance(bundle, str) and bool(bundle) and _bundle_problem(bundle) is not None


def _url_problems(causes: Causes, url: str, where: str) -> None:
    try:
        if not url.isprintable():
            raise ValueError("net/url: invalid control character in URL")
        if _BAD_ESCAPE.search(url):
            raise ValueError("invalid URL escape")
        parts = urlsplit(url)
        if _BAD_IN_HOST.search(parts.netloc):
            raise ValueError("invalid character in host name")
        if parts.port is not None and not 0 <= parts.port <= _PORT_MAX:
            raise ValueError("invalid port after host")
    except ValueError as error:
        why = f"url must be a valid URL: parse {errors.shown(url)}: {error}{_FORM}"
        causes.required(where, why)
        return
    if parts.scheme != "https":
        causes.invalid(where, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    user, at, host = parts.netloc.rpartition("@")
    if not host:
        causes.invalid(where, "", f"host must be specified{_FORM}")
    if at:
        causes.invalid(where, user, "user information is not permitted in the URL")
    if parts.fragment:
        causes.invalid(where, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        causes.invalid(where, parts.query, "query parameters are not permitted in the URL")


def _service_problems(causes: Causes, service: Object, where: str) -> None:
    # kube-apiserver reports the two in this order.
    for name in ("name", "namespace"):
        if not service.get(name):
            causes.required(f"{where}.{name}")
    port: Any = service.get("port")
    port = _HTTPS_PORT if port is None else port
    if not 1 <= port <= _PORT_MAX:
        why = f"port is not valid: must be between 1 and {_PORT_MAX}, inclusive"
        causes.invalid(f"{where}.port", port, why)
    path = service.get("path") or "/"
    at = f"{where}.path"
    if path == "/":
        return
    if path == "//":
        causes.invalid(at, path, "segment[0] may not be empty")
        return
    if not path.startswith("/"):
        causes.invalid(at, path, "must start with a '/'")
    for index, step in enumerate(path[1:].removesuffix("/").split("/")):
        if not step:
            causes.invalid(at, path, f"segment[{index}] may not be empty")
        elif problem := subdomain_problem(step):
            causes.invalid(at, path, f"segment[{index}]: {problem}")


def _bundle_problem(bundle: str) -> str | None:
    about = "unable to load root certificates:"
    try:
        pem = base64.b64decode(bundle)
    except ValueError:
        return f"{about} unable to parse bytes as PEM block"
    if not _CERTIFICATE.search(pem):
        return f"{about} unable to parse bytes as PEM block"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        why = error.reason if isinstance(error, ssl.SSLError) else "not ASCII"
        return f"{about} failed to parse certificate: {why}"
    return None
