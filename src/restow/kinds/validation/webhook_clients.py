"""How a webhook is reached: by a URL or by a service, and whose certificates are trusted.

Not here: calling it.
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


def check_client(config: Object, where: str, *, checks_bundle: bool) -> Causes:
    """What is wrong with a `clientConfig` that stands at a path."""
    causes: Causes = []
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        causes.append(errors.required(where, "exactly one of url or service is required"))
    elif url is not None:
        causes += _url_problems(url, f"{where}.url")
    elif isinstance(service, dict):
        causes += _service_problems(service, f"{where}.service")
    bundle = config.get("caBundle")
    if bundle and checks_bundle and (problem := _bundle_problem(bundle)):
        causes.append(errors.invalid(f"{where}.caBundle", bundle, problem))
    return causes


def has_bad_bundle(config: Object) -> bool:
    """Whether certificates are named that are none."""
    bundle = config.get("caBundle")
    return isinstance(bundle, str) and bool(bundle) and _bundle_problem(bundle) is not None


def _url_problems(url: str, where: str) -> Causes:
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
        told = f"url must be a valid URL: parse {errors.shown(url)}: {error}{_FORM}"
        return [errors.required(where, told)]
    causes: Causes = []
    if parts.scheme != "https":
        why = f"'https' is the only allowed URL scheme{_FORM}"
        causes.append(errors.invalid(where, parts.scheme, why))
    user, at, host = parts.netloc.rpartition("@")
    if not host:
        causes.append(errors.invalid(where, "", f"host must be specified{_FORM}"))
    if at:
        why = "user information is not permitted in the URL"
        causes.append(errors.invalid(where, user, why))
    if parts.fragment:
        why = "fragments are not permitted in the URL"
        causes.append(errors.invalid(where, parts.fragment, why))
    if parts.query:
        why = "query parameters are not permitted in the URL"
        causes.append(errors.invalid(where, parts.query, why))
    return causes


def _service_problems(service: Object, where: str) -> Causes:
    causes: Causes = []
    # The reference takes one for the other when it tells which is missing.
    for name in ("name", "namespace"):
        if not service.get(name):
            causes.append(errors.required(f"{where}.{name}"))
    port: Any = service.get("port")
    port = _HTTPS_PORT if port is None else port
    if not 1 <= port <= _PORT_MAX:
        why = f"port is not valid: must be between 1 and {_PORT_MAX}, inclusive"
        causes.append(errors.invalid(f"{where}.port", port, why))
    path = service.get("path") or "/"
    at = f"{where}.path"
    if path == "/":
        return causes
    if path == "//":
        return [*causes, errors.invalid(at, path, "segment[0] may not be empty")]
    if not path.startswith("/"):
        causes.append(errors.invalid(at, path, "must start with a '/'"))
    for index, step in enumerate(path[1:].removesuffix("/").split("/")):
        if not step:
            causes.append(errors.invalid(at, path, f"segment[{index}] may not be empty"))
        elif problem := subdomain_problem(step):
            causes.append(errors.invalid(at, path, f"segment[{index}]: {problem}"))
    return causes


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
        told = error.reason if isinstance(error, ssl.SSLError) else "not ASCII"
        return f"{about} failed to parse certificate: {told}"
    return None
